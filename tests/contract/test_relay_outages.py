"""While a destination is out: asked seldom, its backlog hardly read, and everybody else goes on."""

import logging
import math
from typing import Any

import pytest

from postroad.brokers.base import Outcome
from postroad.message import Message
from postroad.relay import relay as relay_module
from postroad.relay.reader import DueReader
from postroad.stores.base import Result
from postroad.testing import FaultyBroker, VirtualClock
from postroad.testing.faulty_store import FaultyStore
from postroad.testing.office import Moved, Office, RecordingBroker

TOPIC = "office.parcel.events"
FIRST_PAUSE = 0.1


class CountingStore(FaultyStore):
    """Counts how often each named statement was run."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.runs: dict[str, int] = {}

    async def execute(self, connection: Any, statement: str, /, outbox: Any = None, **values: Any) -> Result:
        self.runs[statement] = self.runs.get(statement, 0) + 1
        return await super().execute(connection, statement, outbox, **values)


async def move(office: Office, *parcels: str) -> None:
    async with office.store.session() as session, session.begin():
        for parcel in parcels:
            office.outbox.add(session, Moved(parcel))


async def test_one_failed_batch_is_one_failure_however_many_keys_were_in_it(office: Office) -> None:
    office.clock = clock = VirtualClock()
    await office.post(*(f"p{n}" for n in range(12)))
    broker = FaultyBroker(office.broker)
    broker.down = True
    relay = office.relay(broker)
    assert await relay.run_once() == 0
    broker.down = False
    clock.shift(FIRST_PAUSE)
    # After twelve failures in a row the pause would be longer by far.
    assert (await relay.run_once(), len(office.broker.sent)) == (1, 1)


async def test_the_backlog_of_a_topic_that_is_out_is_not_read_to_its_end_at_every_look(office: Office) -> None:
    office.store, office.clock = CountingStore(office.store), VirtualClock()
    await office.post(*(f"p{n:02}" for n in range(60)))
    await move(office, "z")
    await office.run("UPDATE {delivery} SET {shard} = 0")
    broker = FaultyBroker(office.broker)
    broker.down = True
    relay = office.relay(broker, batch=2)
    assert await relay.run_once() == 0
    assert relay.breaker.open_destinations == [TOPIC]
    broker.down = False
    looks = 0
    while not office.broker.sent:
        office.store.runs.clear()
        await relay.run_once()
        looks += 1
        assert office.store.runs["read_due"] <= relay_module._PAGES_IN_OUTAGE
    # The cursor went on from look to look, until it came to the one behind them.
    assert looks > 1
    assert [message.aggregate_id for message in office.broker.sent] == ["z"]


async def test_an_adapter_that_raises_costs_no_attempt_and_stops_no_other_topic(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    office.clock = clock = VirtualClock()

    class Broken(RecordingBroker):
        broken = True

        async def send(self, batch: list[Message]) -> list[Outcome]:
            if self.broken and any(message.topic == TOPIC for message in batch):
                raise ZeroDivisionError("an adapter shall not raise")
            return list(await super().send(batch))

    broker = Broken()
    relay = office.relay(broker)
    await office.post("a", "a", "b")
    await move(office, "y", "z")
    assert await relay.run_once() == 2
    assert {message.topic for message in broker.sent} == {"office.moves.events"}
    assert {(row.state, row.attempts) for row in await office.rows() if row.state != "SENT"} == {("NEW", 0)}
    assert relay.breaker.open_destinations == [TOPIC]
    assert any(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)

    # Also while the broken one is tried again beside it.
    clock.shift(FIRST_PAUSE)
    await move(office, "x")
    assert await relay.run_once() == 1
    broker.broken = False
    clock.shift(2 * FIRST_PAUSE)
    while await relay.run_once():
        pass
    assert set(await office.states()) == {"SENT"}
    assert broker.versions("a") == [1, 2]


async def test_while_a_topic_is_out_a_look_goes_only_so_far(office: Office) -> None:
    """Else its whole backlog would be read again and again, to send nothing of it."""
    relay = office.relay()
    asked: list[float] = []
    read = relay._reader.read

    async def noting(epochs: Any, wanted: Any, pages: float, busy: Any) -> Any:
        asked.append(pages)
        return await read(epochs, wanted, pages, busy)

    relay._reader.read = noting  # type: ignore[method-assign]
    await relay.run_once()
    relay.breaker.tripped("office.parcel.events")
    await relay.run_once()
    assert asked == [math.inf, 8]


async def test_only_after_a_few_it_takes_a_breath(office: Office) -> None:
    relay = office.relay(batch=2)
    breaths: list[int] = []

    async def breath() -> None:
        breaths.append(len(office.broker.sent))

    relay.wakeup.breath = breath  # type: ignore[method-assign]
    await office.post("a")
    assert await relay.run_once() == 1
    await office.post("b", "c")
    assert await relay.run_once() == 2
    assert breaths == [1]


async def test_a_look_of_two_pages_reads_two(office: Office) -> None:
    await office.post(*"abcdefgh")
    await office.run("UPDATE {delivery} SET {shard} = 0")
    store = CountingStore(office.store)
    look = await DueReader(store, office.table, 1).read({0: 1}, lambda topic: False, pages=2)
    assert not look
    assert store.runs["read_due"] == 2


async def test_one_event_goes_ahead_however_many_its_key_has(office: Office) -> None:
    office.clock = clock = VirtualClock()
    await office.post(*"aaa")
    broker = FaultyBroker(office.broker)
    broker.down = True
    relay = office.relay(broker)
    assert await relay.run_once() == 0
    broker.down = False
    clock.shift(FIRST_PAUSE)
    assert (await relay.run_once(), office.broker.versions("a")) == (1, [1])
    assert (await relay.run_once(), office.broker.versions("a")) == (2, [1, 2, 3])


async def test_a_refusal_shows_too_that_the_broker_is_back(office: Office) -> None:
    office.clock = clock = VirtualClock()
    await office.post("a")
    broker = FaultyBroker(office.broker, refuse=lambda message: "no")
    broker.down = True
    relay = office.relay(broker)
    assert await relay.run_once() == 0
    assert relay.breaker.open_destinations == [TOPIC]
    broker.down = False
    clock.shift(60)
    assert await relay.run_once() == 1
    assert relay.breaker.open_destinations == []
    broker.refuse = lambda message: None
    await office.make_due()
    assert await relay.run_once() == 1
    assert (relay.statistics.refused, relay.statistics.sent) == (1, 1)
