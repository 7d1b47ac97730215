"""A loss between outbox and inbox shows in the sums, leads to its ids, and is healed by sending them again."""

from collections.abc import Sequence
from uuid import UUID

import msgspec
import pytest

from postroad import Postroad, operations
from postroad.consistency import Ledger, Loss, Uncompared, export, resend, verify
from postroad.consistency import ledger as ledgers
from postroad.consistency import sent as reading
from postroad.consistency.ledger import inbox_ledger, outbox_ledger, slice_of
from tests.support.genesis import SessionStarted, change
from tests.support.harm import forget, lived
from tests.support.ledgers import ahead, known_for_years, look_ahead

pytestmark = pytest.mark.usefixtures("_ahead")
STARTED = "Genesis.Session.Started"


@pytest.fixture
def _ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead(monkeypatch)


async def started(road: Postroad, count: int, *, keys: bool = False, delay: float | None = None) -> list[UUID]:
    """Events of one transaction, and so of one minute; with `keys`, their ids tell no time."""
    async with road.running():
        async with road.session() as session, session.begin():
            added = [
                road.add(
                    session,
                    SessionStarted(session_id=f"k-{number}", title="t"),
                    idempotency_key=f"key-{number}" if keys else None,
                    delay=delay,
                )
                for number in range(count)
            ]
        await road.drain()
    await known_for_years(road)
    return [one.id for one in added]


async def carried(road: Postroad, asked: Sequence[Loss] = ()) -> Ledger:
    """As another service gets it: in a file."""
    return msgspec.json.decode(msgspec.json.encode(await export(road, asked=asked)), type=Ledger)


async def test_both_sides_add_up_to_the_same(road: Postroad) -> None:
    await lived(road)
    await known_for_years(road)
    at = await look_ahead(road)
    sent = await outbox_ledger(road, slice_of(at.since), slice_of(at.until), at.now)
    seen = (await inbox_ledger(road, at)).groups["readers"]
    assert sum(one.events for one in seen) == 6
    assert {one.place: one for one in sent if one.topic != "genesis.library.events"} == {one.place: one for one in seen}
    assert all(one.sum for one in seen)
    assert (await verify(road)).complete


async def test_a_loss_is_found_and_sent_again(road: Postroad) -> None:
    _, second, _ = await lived(road)
    await known_for_years(road)
    await forget(road, "{inbox}", second)
    (loss,) = (await verify(road)).losses
    assert (loss.group, loss.type, loss.ids) == ("readers", "Genesis.Session.Theme.Proposed", [str(second)])
    assert loss.sent - loss.seen == 1
    async with road.running():
        assert await resend(road, [loss], actor="anna") == 1
        await road.drain()
    assert (await verify(road)).complete
    (act,) = await operations.acts(road.store)
    assert (act.actor, act.action, act.subject) == ("anna", "verify.resend", str(second))


async def test_the_one_that_another_service_lacks_is_named_by_the_sums(road: Postroad) -> None:
    ids = await started(road, 5)
    assert (await verify(road, against=await carried(road))).complete
    await forget(road, "{inbox}", ids[3])
    (loss,) = (await verify(road, against=await carried(road))).losses
    assert (loss.ids, loss.named, loss.sent, loss.seen) == ([str(ids[3])], True, 5, 4)


async def test_several_that_another_service_lacks_are_named_when_it_is_asked_and_only_they_are_sent_again(
    road: Postroad,
) -> None:
    ids = await started(road, 6)
    lost = [ids[1], ids[4]]
    for id in lost:
        await forget(road, "{inbox}", id)
    found = (await verify(road, against=await carried(road))).losses
    (loss,) = found
    assert (loss.named, set(loss.ids)) == (False, set(map(str, ids)))
    assert await resend(road, found) == 0
    answer = await carried(road, found)
    assert [len(entry.ids or ()) for entry in answer.groups["readers"]] == [4]
    (loss,) = (await verify(road, against=answer)).losses
    assert (loss.named, sorted(loss.ids)) == (True, sorted(map(str, lost)))
    async with road.running():
        assert await resend(road, [loss]) == 2
        await road.drain()
    assert (await verify(road, against=await carried(road))).complete
    assert sorted(act.subject for act in await operations.acts(road.store)) == sorted(map(str, lost))


async def test_a_minute_of_which_another_service_got_nothing_needs_no_question(road: Postroad) -> None:
    ids = await started(road, 3)
    await change(road, "DELETE FROM {inbox}")
    (loss,) = (await verify(road, against=await carried(road))).losses
    assert (loss.named, loss.seen, sorted(loss.ids)) == (True, 0, sorted(map(str, ids)))


@pytest.mark.parametrize("how", ["key", "delay"])
async def test_what_belongs_to_no_minute_is_missed_as_well(
    road: Postroad, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE", 2)
    monkeypatch.setattr(ledgers, "PAGE", 2)
    ids = await started(road, 5, keys=True) if how == "key" else await started(road, 5, delay=0.001)
    assert (await verify(road)).complete
    assert (await verify(road, against=await carried(road))).complete
    await forget(road, "{inbox}", ids[2])
    await forget(road, "{inbox}", ids[3])
    for against in (None, await carried(road)):
        found = await verify(road, against=against)
        (loss,) = found.losses
        assert (loss.type, loss.sent, loss.seen, loss.slice) == (STARTED, 5, 3, None)
        assert (set(loss.ids), loss.named, found.uncompared) == ({str(ids[2]), str(ids[3])}, True, [])
    async with road.running():
        assert await resend(road, [loss]) == 2
        await road.drain()
    assert (await verify(road, against=await carried(road))).complete


async def test_what_a_ledger_does_not_tell_is_no_success(road: Postroad, monkeypatch: pytest.MonkeyPatch) -> None:
    await started(road, 3, keys=True)
    older = msgspec.to_builtins(await export(road))
    del older["singles"]
    found = await verify(road, against=msgspec.convert(older, Ledger))
    assert (found.losses, found.uncompared, found.complete) == ([], [Uncompared("readers", 3)], False)
    monkeypatch.setattr(ledgers, "MOST_SINGLES", 2)
    assert (await verify(road, against=await carried(road))).uncompared == [Uncompared("readers", 3)]
    monkeypatch.setattr(ledgers, "MOST_SINGLES", 3)
    assert (await verify(road, against=await carried(road))).complete


async def test_one_lost_and_one_too_many_show_though_their_number_is_right(road: Postroad) -> None:
    _, second, _ = await lived(road)
    await known_for_years(road)
    flipped = UUID(int=second.int ^ 1)
    new = {"mysql": f"x'{flipped.hex}'"}.get(road.store.dialect, f"'{flipped}'")
    old = {"mysql": f"x'{second.hex}'"}.get(road.store.dialect, f"'{second}'")
    await change(road, f"UPDATE {{inbox}} SET event_id = {new} WHERE event_id = {old}")
    assert {id for loss in (await verify(road)).losses for id in loss.ids} == {str(second)}
    found = (await verify(road, against=await carried(road))).losses
    (loss,) = (await verify(road, against=await carried(road, found))).losses
    assert (loss.ids, loss.named) == ([str(second)], True)


async def test_a_group_is_not_asked_about_what_came_before_it(road: Postroad) -> None:
    _, second, _ = await lived(road)
    keyed = await started(road, 2, keys=True)
    await forget(road, "{inbox}", second)
    await forget(road, "{inbox}", keyed[0])
    await change(road, "UPDATE {handlers} SET first_seen = '2099-01-01 00:00:00'")
    assert (await verify(road)).complete
    assert (await verify(road, against=await carried(road))).complete
