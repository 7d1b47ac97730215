"""An outbox with ids that others give: nothing of it is taken for seen that nobody has a record of."""

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from postroad import Postroad, operations
from postroad.consistency import export, repair, resend, verify
from postroad.consistency import sent as reading
from postroad.message import id_from_key, new_id, parse_id
from postroad.stores import open_store
from postroad.stores.adopt import apply_adoption, plan_adoption
from tests.support.genesis import TOPIC, SessionFinished, SessionStarted, StartSession, ThemeProposed, change, genesis
from tests.support.harm import found
from tests.support.ledgers import ahead, known_for_years

SHOUTED = str(uuid4()).upper()
WORD = "session-started-7"


def ulid() -> str:
    number, text = new_id(datetime.now(UTC), random.Random(7)).int, ""
    for _ in range(26):
        number, digit = divmod(number, 32)
        text = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[digit] + text
    return text


ULID = ulid()
pytestmark = [pytest.mark.spec("G8"), pytest.mark.usefixtures("_ahead")]


THEIRS = """CREATE TABLE theirs (
  event_id       VARCHAR(64) NOT NULL PRIMARY KEY,
  event_type     VARCHAR(64) NOT NULL,
  aggregate_type VARCHAR(64) NOT NULL,
  aggregate_id   VARCHAR(64) NOT NULL,
  payload        TEXT NOT NULL)"""


@pytest.fixture
async def road(database_url: str, tmp_path: Path) -> AsyncIterator[Postroad]:
    store = open_store(database_url)
    async with store.transaction() as connection:
        await connection.exec_driver_sql(THEIRS + " COLLATE utf8mb4_unicode_ci" * (store.dialect == "mysql"))
    plan = await plan_adoption(store, "theirs")
    await apply_adoption(store, plan)
    await store.aclose()
    table = replace(plan.outbox, topic=TOPIC, ids="text")
    async with genesis(database_url, f"embedded:{tmp_path / 'broker.db'}", outboxes=[table]) as road:
        for kind in (SessionStarted, ThemeProposed, SessionFinished):
            road.on(kind, group="readers")(_nothing)
        await road.migrate()
        yield road


@pytest.fixture
def _ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead(monkeypatch)


async def _nothing(event: object) -> None:
    return None


async def lived(road: Postroad) -> UUID:
    """One event of ours, and three as other programs write them; the id of ours."""
    async with road.running():
        (ours,) = await road.execute(StartSession("s-0"))
        for number, id in enumerate((SHOUTED, ULID, WORD)):
            await write(road, id, f"t-{number}")
        await road.drain()
    await known_for_years(road)
    return ours.id


async def write(road: Postroad, id: str, key: str) -> None:
    payload = f'{{"session_id": "{key}", "title": "t"}}'
    # `drain` waits for what has a date.
    now = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')" if road.store.dialect == "sqlite" else "CURRENT_TIMESTAMP"
    await change(
        road,
        "INSERT INTO theirs (event_id, event_type, aggregate_type, aggregate_id, payload, occurred_at)"
        f" VALUES ('{id}', 'Genesis.Session.Started', 'session', '{key}', '{payload}', {now})",
    )


async def test_whatever_others_take_for_an_id_what_was_seen_is_not_missed(road: Postroad) -> None:
    await lived(road)
    assert not await found(road)
    assert (await verify(road)).complete
    assert (await verify(road, against=await export(road))).complete


async def test_each_one_that_a_group_has_no_record_of_is_found(road: Postroad, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE", 3)
    ours = await lived(road)
    await change(road, "DELETE FROM {inbox}")
    (finding,) = (await found(road))["unseen"]
    assert (finding.where, finding.count, set(finding.ids)) == ("readers", 4, {str(ours), SHOUTED, ULID, WORD})
    for against in (None, await export(road)):
        compared = await verify(road, against=against)
        told = [id for loss in compared.losses for id in loss.ids]
        assert (sorted(told), compared.uncompared) == (sorted((str(ours), SHOUTED, ULID, WORD)), [])
        assert all(loss.named for loss in compared.losses)


@pytest.mark.parametrize("lost", ["ours", SHOUTED, ULID, WORD], ids=["ours", "shouted", "ulid", "word"])
async def test_the_one_that_is_lost_is_named_sent_again_and_seen(road: Postroad, lost: str) -> None:
    ours = await lived(road)
    lost = str(ours) if lost == "ours" else lost
    id = id_from_key("theirs", "row", WORD) if lost == WORD else parse_id(lost)
    stored = {"mysql": f"x'{id.hex}'"}.get(road.store.dialect, f"'{id}'")
    await change(road, f"DELETE FROM {{inbox}} WHERE event_id = {stored}")
    assert [one.ids for one in (await found(road))["unseen"]] == [[lost]]
    (loss,) = (await verify(road, against=await export(road))).losses
    assert (loss.ids, loss.named) == ([lost], True)
    (loss,) = (await verify(road)).losses
    assert (loss.ids, loss.sent - loss.seen) == ([lost], 1)
    async with road.running():
        assert await resend(road, [loss], actor="anna") == 1
        await road.drain()
    assert (await verify(road)).complete
    assert not await found(road)
    assert [act.subject for act in await operations.acts(road.store)] == [lost]


@pytest.mark.spec("G9")
async def test_a_domain_event_that_is_not_in_the_outbox_is_found_and_comes_back(road: Postroad) -> None:
    ours = await lived(road)
    await change(road, f"DELETE FROM theirs WHERE event_id = '{ours}'")
    (finding,) = (await found(road))["missing_outbox"]
    assert (finding.where, finding.ids) == ("theirs", [str(ours)])
    assert [one.rows for one in await repair(road, apply=True, grace=0.0)] == [1]
    assert await repair(road, apply=True, grace=0.0) == []
    async with road.running():
        await road.drain()
    assert not await found(road)
