"""What a relay holds at once is bounded in bytes too, and order and fairness hold where it is cut."""

from typing import Any

import pytest

from postroad.relay import reader
from postroad.relay.reader import DueReader
from postroad.stores.base import Result, Store
from postroad.testing.faulty_store import FaultyStore
from postroad.testing.office import Moved, Office, Posted
from tests.support.outbox import APPEND_ONLY

BOUND = 100_000
LARGE = 30_000


class WeighingStore(FaultyStore):
    """Notes how many bytes of payload each statement returned."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.weights: list[int] = []

    async def execute(self, connection: Any, statement: str, /, outbox: Any = None, **values: Any) -> Result:
        result = await super().execute(connection, statement, outbox, **values)
        if statement in ("read_due", "read_payloads"):
            self.weights.append(sum(len(row.payload or b"") for row in result.rows))
        return result


@pytest.fixture(autouse=True)
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_BYTES", BOUND)


@pytest.fixture(params=["in_row", "append_only"])
def weighed(office: Office, request: pytest.FixtureRequest) -> Office:
    tables = (APPEND_ONLY,) if request.param == "append_only" else ()
    return Office(WeighingStore(office.store), *tables)


async def post(office: Office, *parcels: tuple[str, int]) -> None:
    async with office.store.session() as session, session.begin():
        for parcel, size in parcels:
            office.outbox.add(session, Posted(parcel, "x" * size))


async def test_large_messages_are_read_and_sent_a_few_at_a_time_and_in_order(weighed: Office) -> None:
    await post(weighed, *[(parcel, size) for size in (LARGE, 10, LARGE, LARGE, LARGE) for parcel in "abc"])
    await weighed.carry()
    assert weighed.broker.first_arrivals() == {f"parcel/{parcel}": [1, 2, 3, 4, 5] for parcel in "abc"}
    assert len(weighed.broker.sent) == 15
    assert len(weighed.broker.batches) > 3
    for batch in weighed.broker.batches:
        assert sum(len(message.payload) for message in batch) <= BOUND
    assert max(weighed.store.weights) <= BOUND
    assert all(len(message.payload) > LARGE for message in weighed.broker.sent if message.version != 2)
    weighed.outbox.close()


async def test_a_message_larger_than_the_bound_goes_alone(weighed: Office) -> None:
    await post(weighed, ("a", 10), ("a", 2 * BOUND), ("a", 10), ("b", 3 * BOUND))
    await weighed.carry()
    assert weighed.broker.first_arrivals() == {"parcel/a": [1, 2, 3], "parcel/b": [1]}
    for batch in weighed.broker.batches:
        assert len(batch) == 1 or sum(len(message.payload) for message in batch) <= BOUND
    weighed.outbox.close()


async def test_small_messages_do_not_keep_a_large_one_waiting(office: Office) -> None:
    relay = office.relay()
    await post(office, ("z", BOUND - 1_000))
    await office.run("UPDATE {delivery} SET {shard} = 255")
    for round in range(3):
        await post(office, *[(f"p{round}-{n}", 20_000) for n in range(4)])
        await office.run("UPDATE {delivery} SET {shard} = 1 WHERE {shard} <> 255")
        await relay.run_once()
    assert office.broker.versions("z") == [1]


async def test_small_messages_cost_no_second_question(office: Office) -> None:
    office.store = WeighingStore(office.store)
    await post(office, *[(f"p{n}", 100) for n in range(20)])
    assert await office.relay(batch=100).run_once() == 20
    assert len(office.store.weights) == 1


async def test_a_large_message_to_a_topic_that_is_out_is_not_fetched(office: Office) -> None:
    store = WeighingStore(office.store)
    await post(office, ("a", LARGE))
    async with office.store.session() as session, session.begin():
        office.outbox.add(session, Moved("b"))
    look = await DueReader(store, office.table, 10).read(
        dict.fromkeys(range(256), 1), lambda topic: topic == "office.moves.events"
    )
    assert [due.message.aggregate_id for run in look.runs for due in run] == ["b"]
    assert max(store.weights) < LARGE


async def test_an_event_that_vanishes_while_it_is_read_holds_back_those_behind_it(office: Office) -> None:
    """Somebody deleted it: nobody knows why, and this look is no place to find out."""
    store = VanishingStore(office.store)
    await post(office, ("a", LARGE), ("a", LARGE), ("b", LARGE))
    reader = DueReader(store, office.table, 10)
    epochs = dict.fromkeys(range(256), 1)
    look = await reader.read(epochs)
    assert [due.message.ordering_key for run in look.runs for due in run] == ["parcel/b"]
    assert look.unreadable == []
    again = await reader.read(epochs)
    assert sorted(due.message.version or 0 for run in again.runs for due in run) == [1, 1, 2]


class VanishingStore(FaultyStore):
    """The first payload of a is not there when it is fetched first."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.first: Any = None

    async def execute(self, connection: Any, statement: str, /, outbox: Any = None, **values: Any) -> Result:
        result = await super().execute(connection, statement, outbox, **values)
        if statement == "read_due" and self.first is None:
            self.first = next(row.event_id for row in result.rows if row.ordering_key == "parcel/a")
        elif statement == "read_payloads" and self.first:
            gone, self.first = self.first, ""
            return Result([row for row in result.rows if row.event_id != gone], result.rowcount)
        return result
