"""A loss between outbox and inbox shows in the sums, leads to its ids, and is healed by sending them again."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from postroad import Postroad, operations
from postroad.consistency.ledger import inbox_ledger, outbox_ledger, slice_of
from postroad.consistency.losses import Loss, export, resend, verify
from postroad.consistency.window import Window, window
from tests.support.genesis import change
from tests.support.harm import forget, lived


async def known_for_years(road: Postroad) -> None:
    """So that the group has to have heard of everything."""
    await change(road, "UPDATE {handlers} SET first_seen = '2001-01-01 00:00:00'")


async def ahead(road: Postroad) -> Window:
    """Up to a moment at which the present minute is over."""
    now = await window(road, 3_600, 0)
    return Window(now.since, now.kept_since, now.now.fromtimestamp(now.now.timestamp() + 120, now.now.tzinfo), now.now)


@pytest.fixture
def _ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(road: Postroad, since: object, grace: object) -> Window:
        return await ahead(road)

    monkeypatch.setattr("postroad.consistency.losses.window", look)


@pytest.mark.usefixtures("_ahead")
async def test_both_sides_add_up_to_the_same(road: Postroad) -> None:
    await lived(road)
    await known_for_years(road)
    at = await ahead(road)
    sent = await outbox_ledger(road, slice_of(at.since), slice_of(at.until))
    seen = (await inbox_ledger(road, at)).groups["readers"]
    assert sum(one.events for one in seen) == 6
    assert {one for one in sent if one.topic != "genesis.library.events"} == set(seen)
    assert all(one.sum for one in seen)
    assert await verify(road) == []


@pytest.mark.usefixtures("_ahead")
async def test_a_loss_is_found_and_sent_again(road: Postroad) -> None:
    _, second, _ = await lived(road)
    await known_for_years(road)
    await forget(road, "{inbox}", second)
    (loss,) = await verify(road)
    assert (loss.group, loss.type, loss.ids) == ("readers", "Genesis.Session.Theme.Proposed", [second])
    assert loss.sent - loss.seen == 1
    async with road.running():
        assert await resend(road, [loss], actor="anna") == 1
        await road.drain()
    assert await verify(road) == []
    (act,) = await operations.acts(road.store)
    assert (act.actor, act.action, act.subject) == ("anna", "verify.resend", str(second))


@pytest.mark.usefixtures("_ahead")
async def test_another_services_ledger_leads_to_the_minute(road: Postroad) -> None:
    _, second, _ = await lived(road)
    await known_for_years(road)
    assert await verify(road, against=await export(road)) == []
    await forget(road, "{inbox}", second)
    losses = await verify(road, against=await export(road))
    assert ids_of(losses) >= {second}
    assert {loss.type for loss in losses} == {"Genesis.Session.Theme.Proposed"}


@pytest.mark.usefixtures("_ahead")
async def test_one_lost_and_one_too_many_show_though_their_number_is_right(road: Postroad) -> None:
    _, second, _ = await lived(road)
    await known_for_years(road)
    flipped = UUID(int=second.int ^ 1)
    new = {"mysql": f"x'{flipped.hex}'"}.get(road.store.dialect, f"'{flipped}'")
    old = {"mysql": f"x'{second.hex}'"}.get(road.store.dialect, f"'{second}'")
    await change(road, f"UPDATE {{inbox}} SET event_id = {new} WHERE event_id = {old}")
    assert ids_of(await verify(road)) == {second}


@pytest.mark.usefixtures("_ahead")
async def test_a_group_is_not_asked_about_what_came_before_it(road: Postroad) -> None:
    _, second, _ = await lived(road)
    await forget(road, "{inbox}", second)
    await change(road, "UPDATE {handlers} SET first_seen = '2099-01-01 00:00:00'")
    assert await verify(road) == []


def ids_of(losses: Sequence[Loss]) -> set[UUID]:
    return {id for loss in losses for id in loss.ids}
