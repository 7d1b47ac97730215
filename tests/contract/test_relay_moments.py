"""What comes before what: a lease counts from before the question, and nothing is given back that is on its way."""

import asyncio
from typing import Any

import pytest

from postroad.brokers.base import Refused
from postroad.errors import StoreUnavailable
from postroad.message import SHARDS
from postroad.relay import Relay
from postroad.testing import FaultyBroker, VirtualClock
from postroad.testing.faulty_store import FaultyStore
from postroad.testing.office import Office, RecordingBroker
from tests.support.outbox import until
from tests.support.relay import running


def busy_at(relay: Relay, step: str) -> list[set[str]]:
    """The keys that were on their way each time the relay did this with its leases."""
    noted: list[set[str]] = []
    take_it = getattr(relay.leases, step)

    async def noting() -> None:
        noted.append(set(relay._busy))
        await take_it()

    setattr(relay.leases, step, noting)
    return noted


async def post_in_one_shard(office: Office, *parcels: str) -> None:
    """So that a small look does not reach all of their keys."""
    await office.post(*parcels)
    await office.run("UPDATE {delivery} SET {shard} = 0")


@pytest.mark.parametrize("ask", ["keep", "_renew_all"])
async def test_a_lease_counts_from_before_the_question(
    office: Office, ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the answer took: the database may have counted from the moment it was asked."""
    office.clock = clock = VirtualClock()
    relay = office.relay(lease=10.0)
    await relay.leases.keep()
    execute = office.store.execute

    async def slowly(connection: Any, statement: str, /, *arguments: Any, **values: Any) -> Any:
        clock.shift(4.0 if statement == "lease_renew" else 0.0)
        return await execute(connection, statement, *arguments, **values)

    monkeypatch.setattr(office.store, "execute", slowly)
    await getattr(relay.leases, ask)()
    clock.shift(4.9)
    assert len(relay.leases.epochs) == SHARDS
    clock.shift(0.1)
    assert relay.leases.epochs == {}


async def test_what_a_failed_commit_would_have_given_is_not_ours(office: Office) -> None:
    office.store = faulty = FaultyStore(office.store)
    relay, other = office.relay(), office.relay()
    for one in (relay, other, relay):
        await one.leases.keep()
    ours = dict(relay.leases.epochs)
    await other.leases.release()
    faulty.script("lease_take", "failed_commit")
    with pytest.raises(StoreUnavailable):
        await relay.leases.keep()
    assert relay.leases.epochs == ours
    assert len(ours) == SHARDS // 2


@pytest.mark.parametrize("refusals", [[], [Refused("no")]], ids=["sent", "refused"])
async def test_what_was_read_under_an_earlier_lease_is_not_settled_under_the_next(
    office: Office, refusals: list[Refused]
) -> None:
    """In between the shard was another's, who may have sent it, and whom a person may have told to wait."""
    await office.post("a")
    relay, other = office.relay(), office.relay()
    await relay.leases.keep()
    (run,) = (await relay._reader.read(relay.leases.epochs)).runs
    for holder in (other, relay):
        await office.expire_leases()
        await office.run("UPDATE {shards} SET token = NULL")
        await holder.leases.keep()
    assert set(relay.leases.epochs.values()) == {3}
    await relay.carrier.mark([] if refusals else run, [(run[0], refusal) for refusal in refusals])
    assert await office.states() == ["NEW"]
    assert relay.leases.epochs == {}


@pytest.mark.parametrize("end", ["refused", "parked"])
async def test_a_relay_that_settled_all_it_read_has_no_doubts(office: Office, end: str) -> None:
    office.clock = VirtualClock()
    await office.post("a")
    if end == "parked":
        await office.run("UPDATE {outbox} SET {attributes} = 'not json'")
    relay = office.relay(FaultyBroker(office.broker, refuse=lambda message: "no"))
    assert await relay.run_once() == 1
    assert len(relay.leases.epochs) == SHARDS
    assert not relay.leases.due()


async def test_shards_are_given_back_only_when_nothing_is_on_its_way(office: Office) -> None:
    await post_in_one_shard(office, *"abcd")
    relay = office.relay(batch=1)
    kept = busy_at(relay, "keep")
    relay.leases.due = lambda: True  # type: ignore[method-assign]
    async with running(relay):
        await until(lambda: len(office.broker.sent) == 4)
    assert len(kept) >= 4
    assert not any(kept)


async def test_whoever_leaves_has_nothing_on_its_way_any_more(office: Office) -> None:
    class Hanging(RecordingBroker):
        begun = 0

        async def send(self, batch: Any) -> Any:
            self.begun += 1
            return await asyncio.Future()

    await post_in_one_shard(office, *"abcd")
    broker = Hanging()
    relay = office.relay(broker, batch=1)
    left = busy_at(relay, "release")
    task = asyncio.create_task(relay.run(asyncio.Event()))
    await until(lambda: broker.begun >= 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (left, broker.begun) == ([set()], 3)


async def test_a_key_whose_head_is_being_parked_is_on_its_way(office: Office) -> None:
    """Else the next round would read it once more, find it parked, and doubt its leases."""
    looks, go_on = 0, asyncio.Event()
    await post_in_one_shard(office, *"ab")
    await office.run("UPDATE {outbox} SET {attributes} = 'not json' WHERE {aggregate_id} = 'a'")
    relay = office.relay(batch=1)
    read, park, parked = relay._reader.read, relay.carrier.park, []

    async def counting(*arguments: Any) -> Any:
        nonlocal looks
        look = await read(*arguments)
        looks += 1
        return look

    async def slowly(rows: Any) -> None:
        parked.append([row.key for row in rows])
        await go_on.wait()
        await park(rows)

    relay._reader.read = counting  # type: ignore[method-assign]
    relay.carrier.park = slowly  # type: ignore[method-assign]
    async with running(relay):
        await until(lambda: looks >= 3)
        go_on.set()
        await until(lambda: relay.statistics.parked)
    assert parked == [["parcel/a"]]
    assert office.broker.versions("b") == [1]
