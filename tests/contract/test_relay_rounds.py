"""Several rounds on their way at once: never two of them with the same key, and nobody waits for a hanging one."""

import asyncio
from typing import Any

import pytest

from postroad.brokers.base import Outcome
from postroad.message import SHARDS, Message
from postroad.relay import Relay
from postroad.testing import FaultyBroker, VirtualClock
from postroad.testing.office import Moved, Office, RecordingBroker
from tests.support.outbox import until
from tests.support.relay import running

TOPIC = "office.parcel.events"


class Gated(RecordingBroker):
    """Takes nothing for this topic until the gate is open."""

    def __init__(self, topic: str = TOPIC) -> None:
        super().__init__()
        self._topic = topic
        self.gate = asyncio.Event()
        self.begun: list[list[str]] = []

    async def send(self, batch: list[Message]) -> list[Outcome]:
        self.begun.append([message.aggregate_id for message in batch])
        if any(message.topic == self._topic for message in batch):
            await self.gate.wait()
        return list(await super().send(batch))


async def post_in_one_shard(office: Office, *parcels: str) -> None:
    """So that a small look does not reach all of their keys."""
    await office.post(*parcels)
    await office.run("UPDATE {delivery} SET {shard} = 0")


def looks(relay: Relay) -> list[int]:
    """How many runs each look found."""
    found: list[int] = []
    read = relay._reader.read

    async def noting(*arguments: Any) -> Any:
        look = await read(*arguments)
        found.append(len(look.runs))
        return look

    relay._reader.read = noting  # type: ignore[method-assign]
    return found


async def test_while_one_round_is_on_its_way_the_next_one_goes_out(office: Office) -> None:
    broker = Gated()
    await post_in_one_shard(office, *"abcdef")
    async with running(office.relay(broker, batch=2)):
        await until(lambda: len(broker.begun) >= 2)
        first, second = broker.begun[:2]
        assert not set(first) & set(second)
        broker.gate.set()
        await until(lambda: len(broker.sent) == 6)
    assert await office.states() == ["SENT"] * 6
    assert sorted(message.aggregate_id for message in broker.sent) == [*"abcdef"]


@pytest.mark.parametrize("delay", [None, 3_600.0], ids=["", "delayed"])
async def test_a_key_that_is_on_its_way_is_not_sent_by_the_next_round(office: Office, delay: float | None) -> None:
    broker = Gated()
    await office.post("a", delay=delay)
    relay = office.relay(broker, batch=1, poll=0.001)
    found = looks(relay)
    async with running(relay):
        await until(lambda: len(found) > 1)
        assert broker.begun == [["a"]]
        broker.gate.set()
        await until(lambda: bool(broker.sent) and not relay._rounds)
    assert [message.version for message in broker.sent] == [1]


async def test_what_is_settled_during_a_look_is_not_sent_again(office: Office) -> None:
    """The look saw it unsent."""
    broker = Gated()
    await office.post("a")
    relay = office.relay(broker, batch=1, poll=0.001)
    found, read_due = looks(relay), relay._reader._read_due

    async def slowly(*arguments: Any) -> Any:
        rows = await read_due(*arguments)
        if rows and relay._rounds:
            broker.gate.set()
            await until(relay._rounds[0].done)
        return rows

    relay._reader._read_due = slowly  # type: ignore[method-assign]
    async with running(relay):
        await until(lambda: len(found) > 2)
    assert [message.version for message in broker.sent] == [1]


async def test_what_is_on_its_way_is_settled_before_the_relay_leaves(office: Office) -> None:
    broker = Gated()
    await post_in_one_shard(office, *"abcd")
    relay = office.relay(broker, batch=2)
    async with running(relay):
        await until(lambda: len(broker.begun) >= 2)
        asyncio.get_running_loop().call_later(0.01, broker.gate.set)
    sent = [row.state for row in await office.rows()].count("SENT")
    assert sent == len(broker.sent) == sum(map(len, broker.begun))
    held = await office.query("SELECT count(*) AS held FROM {shards} WHERE token IS NOT NULL")
    assert held[0].held == 0


async def test_whoever_is_cancelled_leaves_no_round_behind(office: Office) -> None:
    broker = Gated()
    await post_in_one_shard(office, *"abcd")
    relay = office.relay(broker, batch=2)
    task = asyncio.create_task(relay.run(asyncio.Event()))
    await until(lambda: len(broker.begun) >= 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    broker.gate.set()
    assert await office.relay(office.broker).run_once() == 4
    assert broker.sent == []


async def test_nobody_waits_for_a_probe_that_hangs(office: Office) -> None:
    broker = Gated()
    relay = office.relay(broker)
    relay.breaker.tripped(TOPIC)
    relay.breaker._open_until[TOPIC] = 0.0
    await office.post(*"ab")
    async with running(relay):
        await until(lambda: len(broker.begun) == 1)
        for parcel in "xyz":
            async with office.store.session() as session, session.begin():
                office.outbox.add(session, Moved(parcel))
            await until(lambda parcel=parcel: bool(broker.versions(parcel)))  # type: ignore[misc]
        assert broker.begun[1:] == [["x"], ["y"], ["z"]]
        broker.gate.set()
        await until(lambda: bool(broker.versions("a") and broker.versions("b")))
    assert await office.states() == ["SENT"] * 5
    assert len(broker.sent) == 5


async def test_a_relay_that_was_stopped_beside_a_probe_runs_again(office: Office) -> None:
    broker = Gated()
    relay = office.relay(broker)
    relay.breaker.tripped(TOPIC)
    relay.breaker._open_until[TOPIC] = 0.0
    await office.post("a")
    async with running(relay):
        await until(lambda: len(broker.begun) == 1)
    broker.gate.set()
    relay.breaker._open_until[TOPIC] = 0.0
    async with running(relay):
        await until(lambda: bool(broker.versions("a")))
    assert broker.versions("a") == [1]


async def test_writers_do_not_keep_a_relay_busy_whose_broker_is_out(office: Office) -> None:
    office.clock = VirtualClock()
    broker = FaultyBroker(office.broker)
    broker.down = True
    await office.post("a")
    relay = office.relay(broker)
    found = looks(relay)
    async with running(relay):
        await until(lambda: bool(relay.breaker.open_destinations))
        before = len(found)
        for _ in range(100):
            relay.wakeup.set()
            await asyncio.sleep(0.001)
        assert len(found) - before <= 2


async def test_a_row_that_is_no_message_and_no_longer_ours_is_not_parked(office: Office) -> None:
    await office.post("a")
    await office.run("UPDATE {outbox} SET {attributes} = 'not json'")
    relay = office.relay()
    await relay.leases.keep()
    look = await relay._reader.read(relay.leases.epochs)
    await office.expire_leases()
    heir = office.relay()
    await heir.leases.keep()
    await relay.carrier.park(look.unreadable)
    assert (relay.statistics.parked, relay.leases.epochs) == (0, {})
    assert len(heir.leases.epochs) == SHARDS
