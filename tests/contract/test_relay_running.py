"""The relay as a running loop: woken by commits, through outages of its database, to a clean stop."""

import asyncio
import logging
import subprocess
import sys

import psycopg
import pytest

from postroad.brokers.base import Outcome
from postroad.errors import StoreUnavailable
from postroad.message import SHARDS, Message
from postroad.relay import Relay
from postroad.testing import VirtualClock
from postroad.testing.faulty_store import FaultyStore
from postroad.testing.office import Office, Posted, RecordingBroker
from tests.support.outbox import until
from tests.support.relay import running

LONG = 600.0
"""Seconds between looks: whoever is woken within a test was woken by something else."""


class Signalling(RecordingBroker):
    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()

    async def send(self, batch: list[Message]) -> list[Outcome]:
        outcomes = list(await super().send(batch))
        self.arrived.set()
        return outcomes

    async def wait(self) -> None:
        async with asyncio.timeout(20):
            await self.arrived.wait()
        self.arrived.clear()


async def asleep(relay: Relay) -> None:
    """Until the relay waits for its full pause."""
    async with asyncio.timeout(20):
        while relay.wakeup._pause < LONG:
            await asyncio.sleep(0.005)
            relay.wakeup._pause *= 2


async def test_a_commit_in_the_same_process_wakes_the_relay(office: Office) -> None:
    broker = Signalling()
    relay = office.relay(broker, poll=LONG)
    office.outbox.wakes[office.table].listen(relay.wakeup.set)
    async with running(relay):
        for _ in range(3):
            await asleep(relay)
            await office.post("a")
            await broker.wait()
        await asleep(relay)
        async with office.store.engine.begin() as connection:
            await office.outbox.add(connection, Posted("b"))
        await broker.wait()
    assert office.broker is not broker
    assert broker.first_arrivals() == {"parcel/a": [1, 2, 3], "parcel/b": [1]}


@pytest.mark.parametrize("store_kind", ["postgresql", "sqlite"])
async def test_a_commit_in_another_process_wakes_the_relay(office: Office, store_kind: str, store_url: str) -> None:
    broker = Signalling()
    relay = office.relay(broker, poll=LONG)
    writer = (
        "import asyncio, sys\n"
        "from postroad.stores import open_store\n"
        "from postroad.testing.office import Office\n"
        "async def main():\n"
        "    office = Office(open_store(sys.argv[1]))\n"
        "    await office.post('a')\n"
        "    await asyncio.sleep(0.1)\n"
        "    office.outbox.close()\n"
        "    await office.store.aclose()\n"
        "asyncio.run(main())\n"
    )
    async with running(relay):
        await asleep(relay)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", writer, store_url, stderr=subprocess.PIPE)
        await broker.wait()
        _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert broker.versions("a") == [1]


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_a_notification_alone_wakes_the_relay(office: Office, store_kind: str, store_url: str) -> None:
    broker = Signalling()
    relay = office.relay(broker, poll=LONG)
    async with running(relay):
        await asleep(relay)
        await office.post("a")
        async with await psycopg.AsyncConnection.connect(store_url, autocommit=True) as connection:
            await connection.execute("NOTIFY postroad_outbox")
        await broker.wait()
    assert broker.versions("a") == [1]


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_who_is_told_in_the_process_is_not_told_by_the_database_again(
    office: Office, store_kind: str, store_url: str
) -> None:
    wakes, listening = [], asyncio.Event()

    def wake() -> None:
        wakes.append(listening.is_set())
        listening.set()

    watching = asyncio.create_task(office.store.watch("postroad_outbox", wake, but_from="me"))
    await listening.wait()
    async with await psycopg.AsyncConnection.connect(store_url, autocommit=True) as connection:
        for sender in ("me", "me", "another"):
            await connection.execute(f"NOTIFY postroad_outbox, '{sender}'")
        await until(lambda: len(wakes) > 1)
    watching.cancel()
    assert wakes == [False, True]


async def test_a_watch_that_breaks_off_is_taken_up_again(office: Office) -> None:
    clock = VirtualClock()
    tries = 0

    class Breaking(FaultyStore):
        async def watch(self, channel: str, wake: object, but_from: str = "") -> None:
            nonlocal tries
            tries += 1
            raise StoreUnavailable("gone")

    office.store, office.clock = Breaking(office.store), clock
    async with running(office.relay()):
        for expected in (1, 2, 3):
            await until(lambda expected=expected: tries == expected)
            await clock.advance(1.0)
    assert tries >= 3


async def test_stopping_settles_what_is_in_hand_and_hands_the_leases_back(office: Office) -> None:
    sending, answer = asyncio.Event(), asyncio.Event()

    class Slow(RecordingBroker):
        async def send(self, batch: list[Message]) -> list[Outcome]:
            sending.set()
            await answer.wait()
            return list(await super().send(batch))

    await office.post("a")
    relay, stop = office.relay(Slow()), asyncio.Event()
    task = asyncio.create_task(relay.run(stop))
    await asyncio.wait_for(sending.wait(), 20)
    stop.set()
    await asyncio.sleep(0)
    assert not task.done()
    answer.set()
    await asyncio.wait_for(task, 20)
    assert await office.states() == ["SENT"]
    (free,) = await office.query(
        "SELECT count(*) AS n FROM {shards} WHERE token IS NULL AND outbox = 'postroad_outbox'"
    )
    assert free.n == SHARDS
    assert not await office.query("SELECT id FROM {workers}")


async def test_an_idle_relay_stops_at_once(office: Office) -> None:
    relay = office.relay(poll=LONG)
    async with running(relay):
        await asleep(relay)
    assert relay.leases.epochs == {}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay hardly waits for a database in trouble."""
    monkeypatch.setattr("postroad.relay.relay._LONGEST_STORE_PAUSE", 0.0001)


async def test_an_outage_of_the_database_ends_by_itself_and_tells_little(
    office: Office, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    """However long: after more than a thousand failures 2 to their power fits into no float."""
    caplog.set_level(logging.INFO)
    broker = Signalling()
    office.store = faulty = FaultyStore(office.store)
    relay = office.relay(broker, poll=0.01)
    async with running(relay):
        faulty.down = True
        await until(lambda: "failure 1024 in a row" in caplog.text)
        asked = faulty.refused
        await until(lambda: faulty.refused > asked + 100)
        faulty.down = False
        await office.post("a")
        await broker.wait()
    told = [record for record in caplog.records if "The database is away." in record.getMessage()]
    assert 5 < len(told) <= 12


async def test_busy_writers_do_not_make_the_relay_hammer_a_database_in_trouble(office: Office) -> None:
    """Each commit elsewhere is a wake-up; the pause after a failure is not for it to end, only for a stop."""
    office.clock = clock = VirtualClock()
    office.store = faulty = FaultyStore(office.store)
    faulty.down = True
    relay = office.relay()
    async with running(relay):
        for failures, pause in enumerate((0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0), 1):
            await until(lambda failures=failures: faulty.refused == failures)
            for _ in range(5):
                relay.wakeup.set()
                await clock.advance(pause * 0.19)
            assert faulty.refused == failures
            await clock.advance(pause * 0.05)


async def test_a_database_error_of_any_kind_does_not_end_the_relay(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Signalling()
    relay = office.relay(broker, poll=0.01)
    async with running(relay) as task:
        await office.post("a")
        await broker.wait()
        await office.run("ALTER TABLE postroad_worker RENAME TO away")
        await until(lambda: caplog.records)
        await office.run("ALTER TABLE away RENAME TO postroad_worker")
        await office.post("a")
        await broker.wait()
        assert not task.done()
    assert broker.versions("a") == [1, 2]


async def test_a_busy_database_is_worth_a_line_only_if_it_lasts(
    office: Office, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    office.store = faulty = FaultyStore(office.store)
    faulty.script("lease_renew", *["busy"] * 9)
    broker = Signalling()
    await office.post("a")
    async with running(office.relay(broker, poll=0.001)):
        await broker.wait()
    (record,) = caplog.records
    assert "failure 8 in a row" in record.getMessage()
