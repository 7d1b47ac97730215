"""Refusals cost attempts and are counted; outages cost nothing; neither stops what has no part in it."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroad.brokers.base import Outcome
from postroad.clock import SystemClock
from postroad.errors import BrokerUnavailable
from postroad.message import Message
from postroad.relay.reader import DueReader
from postroad.retry import PRESETS, Backoff
from postroad.stores import open_store
from postroad.testing import FaultyBroker, VirtualClock
from postroad.testing.office import Moved, Office, Posted, RecordingBroker, opened
from tests.support.outbox import until

TOPIC = "office.parcel.events"


def refuse_a(message: Message) -> str | None:
    return "no\0t\nwelcome" if message.aggregate_id == "a" else None


async def waits(office: Office) -> float:
    """Seconds until the next attempt, by the database's own clock."""
    now = {
        "postgresql": "clock_timestamp()",
        "mysql": "UTC_TIMESTAMP(6)",
        "sqlite": "postroad_now()",
    }[office.store.dialect]
    (row,) = await office.query(f"SELECT {now} AS now, {{next_attempt_at}} AS at FROM {{delivery}}")
    at, current = office.store.time_out(row.at), office.store.time_out(row.now)
    assert at is not None
    assert current is not None
    return (at - current).total_seconds()


@pytest.mark.spec("P12", "R7", "R2", "F15")
@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("exponential", [20, 40, 80, 160]),
        ("table", [5, 30, 120]),
        ("linear-minutes", [60 * n for n in range(1, 10)]),
    ],
)
async def test_each_refusal_waits_as_its_preset_says_and_then_parks(
    office: Office, preset: str, expected: list[float]
) -> None:
    await office.post("a")
    broker = FaultyBroker(office.broker, refuse=refuse_a)
    relay = office.relay(broker, backoff=PRESETS[preset])
    for attempt, seconds in enumerate(expected, 1):
        assert await relay.run_once() == 1
        (row,) = await office.rows()
        assert (row.state, row.attempts, row.last_error) == ("RETRY", attempt, "no t welcome")
        assert seconds - 5 < await waits(office) <= seconds
        assert await relay.run_once() == 0
        await office.make_due()
    assert await relay.run_once() == 1
    (row,) = await office.rows()
    assert (row.state, row.attempts) == ("FAILED", len(expected) + 1)
    await office.make_due()
    assert await relay.run_once() == 0
    assert (relay.statistics.refused, relay.statistics.parked) == (len(expected) + 1, 1)


@pytest.mark.spec("P12")
async def test_parking_tells_a_person_what_to_do(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    (added,) = await office.post("a")
    await office.carry(FaultyBroker(office.broker, refuse=refuse_a), backoff=Backoff(attempts=1))
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"event {added.id} (parcel.posted) is parked after 1 attempts" in record.getMessage()
    assert f"postroad outbox retry {added.id}" in record.getMessage()


async def test_a_reason_of_any_length_fits(office: Office) -> None:
    await office.post("a")
    await office.carry(FaultyBroker(office.broker, refuse=lambda message: "☃" * 100_000))
    (row,) = await office.rows()
    assert (row.state, len(row.last_error)) == ("RETRY", 255)


async def test_an_outage_burns_no_attempts_and_ends_with_one_probe(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    office.clock = clock
    await office.post(*"abcd")
    broker = FaultyBroker(office.broker)
    relay = office.relay(broker)
    broker.down = True
    for _ in range(120):  # a minute of it
        assert await relay.run_once() == 0
        clock.shift(0.5)
    assert {(row.state, row.attempts) for row in await office.rows()} == {("NEW", 0)}
    assert relay.statistics.outages == 1
    told = "does not take office.parcel.events; it is tried again, and no attempts are counted: outage"
    assert len([r for r in caplog.records if told in r.message]) == 1
    broker.down = False
    clock.shift(0.5)
    assert (await relay.run_once(), len(office.broker.sent)) == (1, 1)
    assert (await relay.run_once(), len(office.broker.sent)) == (3, 4)


async def test_an_open_breaker_asks_nothing_of_its_topic_and_the_others_go_on(office: Office) -> None:
    clock = VirtualClock()
    office.clock = clock
    asked: list[str] = []

    class Half(RecordingBroker):
        async def send(self, batch: list[Message]) -> list[Outcome]:
            asked.extend(message.topic for message in batch)
            if any(message.topic == TOPIC for message in batch):
                raise BrokerUnavailable("half of it is away")
            return list(await super().send(batch))

    broker = Half()
    relay = office.relay(broker)
    await office.post(*"abcdef")
    assert await relay.run_once() == 0
    asked.clear()
    async with office.store.session() as session, session.begin():
        office.outbox.add(session, Moved("z"))
    assert await relay.run_once() == 1
    assert asked == ["office.moves.events"]
    assert await relay.run_once() == 0


async def test_a_topic_that_is_out_may_fill_every_batch_and_still_hides_nothing(office: Office) -> None:
    await office.post(*"abcdef")
    async with office.store.session() as session, session.begin():
        office.outbox.add(session, Moved("z"))
    await office.run("UPDATE {delivery} SET {shard} = 0")
    look = await DueReader(office.store, office.table, batch=2).read({0: 1}, lambda topic: topic != TOPIC)
    assert [due.message.aggregate_id for run in look.runs for due in run] == ["z"]


async def test_a_publish_that_hangs_is_an_outage(office: Office) -> None:
    clock = VirtualClock()
    office.clock = clock

    class Hanging(RecordingBroker):
        async def send(self, batch: list[Message]) -> list[Outcome]:
            await clock.sleep(1_000)
            return []

    await office.post("a")
    relay = office.relay(Hanging(), publish_timeout=30.0, lease=1_000.0)
    await relay.leases.keep()
    round = asyncio.create_task(relay.run_once())
    await until(clock.next_alarm)
    await clock.advance(30)
    assert await round == 0
    assert relay.breaker.open_destinations == [TOPIC]
    assert {(row.state, row.attempts) for row in await office.rows()} == {("NEW", 0)}


async def test_a_row_that_is_no_message_is_parked_and_stops_nobody(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    await office.post(*"aab")
    await office.run("UPDATE {outbox} SET {attributes} = 'not json' WHERE {aggregate_id} = 'a' AND {version} = 2")
    relay = await office.carry()
    assert await office.states() == ["SENT", "FAILED", "SENT"]
    assert "the row is no message" in (await office.rows())[1].last_error
    assert relay.statistics.parked == 1
    assert "Its key parcel/a waits" in caplog.text


async def test_attributes_of_newer_code_do_not_stop_an_older_relay(office: Office) -> None:
    await office.post("a")
    await office.run("UPDATE {outbox} SET {attributes} = :new", new='{"baggage": "x", "user_id": "u"}')
    await office.carry()
    assert [message.user_id for message in office.broker.sent] == ["u"]


async def test_the_highest_version_that_travels_is_carried(office: Office) -> None:
    await office.post("a", version=10**18 - 1)
    await office.carry()
    assert Message.from_wire(TOPIC, office.broker.sent[0].attributes(), b"{}").version == 10**18 - 1


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_back_off_follows_the_databases_clock(store_kind: str, tmp_path: Path) -> None:
    clock = VirtualClock(datetime(2030, 1, 1, tzinfo=UTC))
    async with opened(open_store(f"sqlite:///{tmp_path / 'x.db'}", clock=clock), clock=clock) as office:
        await office.post("a")
        broker = FaultyBroker(office.broker, refuse=refuse_a)
        relay = office.relay(broker, backoff=PRESETS["table"])
        tries = []
        for _ in range(200):
            if await relay.run_once():
                tries.append(clock.monotonic())
            clock.shift(1)
        assert tries == [0, 5, 35, 155]


class WrongClock(SystemClock):
    def __init__(self, days: int) -> None:
        self._off = timedelta(days=days)

    def now(self) -> datetime:
        return super().now() + self._off


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
@pytest.mark.parametrize("days", [365, -365], ids=["ahead", "behind"])
async def test_a_relay_whose_clock_is_a_year_off_waits_by_the_databases(
    office: Office, store_url: str, store_kind: str, days: int
) -> None:
    clock = WrongClock(days)
    mistaken = Office(open_store(store_url, clock=clock), clock=clock)
    await office.post("a")
    relay = mistaken.relay(FaultyBroker(mistaken.broker, refuse=refuse_a), backoff=PRESETS["table"])
    for seconds in (5, 30):
        assert await relay.run_once() == 1
        # A minute more, so that it does not pass in a slow test.
        await office.run("UPDATE {delivery} SET {next_attempt_at} = {next_attempt_at} + INTERVAL '60' SECOND")
        assert seconds + 30 < await waits(office) <= seconds + 60
        assert await relay.run_once() == 0
        await office.run("UPDATE {delivery} SET {next_attempt_at} = {next_attempt_at} - INTERVAL '95' SECOND")
        assert await waits(office) < 0
    assert await relay.run_once() == 1
    await relay.leases.release()
    await mistaken.store.aclose()


async def test_a_hot_key_does_not_starve_the_others(office: Office) -> None:
    await office.post(*["hot"] * 60, *(f"p{n}" for n in range(10)))
    await office.run("UPDATE {delivery} SET {shard} = 0")
    reader = DueReader(office.store, office.table, batch=8)
    looked: set[str] = set()
    for _ in range(4):
        look = await reader.read({0: 1})
        looked |= {run[0].message.aggregate_id for run in look.runs}
    assert looked == {"hot", *(f"p{n}" for n in range(10))}


async def test_long_runs_of_some_shards_do_not_starve_the_others(office: Office) -> None:
    added = await office.post(*(f"p{n % 24}" for n in range(24 * 8)))
    for n in range(24):
        await office.run(
            f"UPDATE {{delivery}} SET {{shard}} = {n} WHERE {{ordering_key}} = '{added[n].message.ordering_key}'"
        )
    epochs = dict.fromkeys(range(24), 1)
    reader = DueReader(office.store, office.table, batch=8)
    looked: set[str] = set()
    longest = 0
    for _ in range(30):  # nothing is marked: each look finds all of them due
        runs = (await reader.read(epochs)).runs
        looked |= {run[0].message.aggregate_id for run in runs}
        longest = max(longest, *map(len, runs))
    assert looked == {f"p{n}" for n in range(24)}
    assert longest == 8


async def test_an_event_outside_any_shard_of_ours_is_left_to_its_owner(office: Office) -> None:
    async with office.store.session() as session, session.begin():
        office.outbox.add(session, Posted("a"))
    await office.run("UPDATE {delivery} SET {shard} = 7")
    reader = DueReader(office.store, office.table, batch=8)
    assert not await reader.read({6: 1, 8: 1})
    assert (await reader.read({7: 1})).runs
