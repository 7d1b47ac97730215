"""A group, an outbox or a worker that a person told to stand still: nothing lost, counted, reordered or taken."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Backoff, Postroad, SubscriberOptions, event, operations
from postroad.brokers.base import Subscription, Topology
from postroad.errors import OperationRefused
from postroad.handlers import Bus
from postroad.inbox import RetryScheduler
from postroad.inbox.record import ConsumeOptions
from postroad.runner import Runner
from postroad.telemetry.reading import stuck
from postroad.telemetry.telemetry import Telemetry
from tests.support.commands import Shell
from tests.support.consuming import GROUP as RECEIPTS
from tests.support.consuming import Broken, bench, handlers, placed
from tests.support.kafka import remove_topics
from tests.support.outbox import until

TOPIC, GROUP = "pause.stone.events", "masons"
SUBSCRIPTION = f"{TOPIC}.{GROUP}"
KAFKA_TOPIC = f"pause.brick{uuid4().hex[:8]}.events"


@event("stone.cut", topic=TOPIC, aggregate="stone", key="stone")
class StoneCut(msgspec.Struct, frozen=True):
    stone: str
    step: int


@event("brick.laid", topic=KAFKA_TOPIC, aggregate="brick", key="stone")
class BrickLaid(msgspec.Struct, frozen=True):
    stone: str
    step: int


class Yard:
    """A service whose handler waits to be let go on, or fails, as it is told."""

    def __init__(self, database_url: str, broker_url: str = "embedded:", kind: type = StoneCut) -> None:
        # No grace at all: what is in hand may finish because it is a pause, and for no other reason.
        options = SubscriberOptions(grace=0.0, backoff=Backoff(attempts=3, base=0.05), ack_deadline=30.0)
        self.road = Postroad("yard", database_url, broker_url, subscriber=options)
        self.kind, self.seen, self.tried = kind, [], []
        self.failures = 0
        self.free = asyncio.Event()
        self.free.set()

        @self.road.on(kind, group=GROUP)
        async def cut(stone: kind, session: AsyncSession) -> None:  # type: ignore[valid-type]
            self.tried.append((stone.stone, stone.step))
            await self.free.wait()
            if self.failures:
                self.failures -= 1
                raise RuntimeError("the chisel broke")
            self.seen.append((stone.stone, stone.step))

    async def write(self, stones: str, steps: range) -> None:
        for step in steps:
            async with self.road.session() as session, session.begin():
                for stone in stones:
                    self.road.add(session, self.kind(stone, step))

    async def pause(self, runner: Runner) -> None:
        road = self.road
        if road.store.one_writer:
            self.free.set()  # with one writer at a time, whoever pauses waits for the handler's commit
        await operations.pause_group(road.store, road.groups, GROUP, actor="ann", reason="dust")
        await until(lambda: not runner._gates.of("group", GROUP).is_open)
        await until(lambda: not runner.subscribers[0].lanes.waiting)

    async def resume(self) -> None:
        await operations.resume_group(self.road.store, GROUP, actor="ann")

    def steps(self, stone: str) -> list[int]:
        return [step for one, step in self.seen if one == stone]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.runner.LOOK_EVERY", 0.02)
    monkeypatch.setattr("postroad.runner._RETRY_INTERVAL", 0.02)


@asynccontextmanager
async def opened(database_url: str, *broker: str) -> AsyncIterator[Yard]:
    yard = Yard(database_url, *broker)
    await yard.road.migrate()
    async with yard.road:
        yield yard


def at_rest(runner: Runner) -> Callable[[], bool]:
    """Nothing in hand, and no receiver through which anything could come."""
    return lambda: all(not one._working and not one._receivers for one in runner.subscribers)


async def eventually(ask: Callable[[], Awaitable[bool]]) -> None:
    """For what only the database or the broker can tell."""
    async with asyncio.timeout(60):
        while not await ask():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def listed(yard: Yard, count: int) -> Sequence[operations.WorkerStatus]:
    found: Sequence[operations.WorkerStatus] = ()

    async def asked() -> bool:
        nonlocal found
        found = (await operations.status(yard.road.store, ())).workers
        return len(found) == count

    await eventually(asked)
    return found


async def test_what_is_in_hand_is_finished_and_the_rest_is_handled_in_order_once_it_is_resumed(
    database_url: str,
) -> None:
    async with opened(database_url) as yard:
        road, runner = yard.road, yard.road.runner()
        yard.free.clear()
        await yard.write("ab", range(5))
        async with runner.started():
            await until(lambda: yard.tried)
            await yard.pause(runner)
            await yard.write("ab", range(5, 8))
            if not road.store.one_writer:
                assert not at_rest(runner)()
                assert yard.seen == []
            yard.free.set()
            await until(at_rest(runner))
            assert len(yard.seen) <= 10
            if not road.store.one_writer:
                assert sorted(yard.seen) == [("a", 0), ("b", 0)]
            found = await operations.status(road.store, road.outboxes, road.broker, groups=road.groups)
            (group,) = found.groups
            assert (group.paused.actor, group.paused.reason) == ("ann", "dust")
            assert [one.detail for one in found.workers if one.kind == "worker"] == [GROUP]
            await yard.resume()
            await road.drain()
        assert yard.steps("a") == yard.steps("b") == list(range(8))
        assert yard.tried == yard.seen  # nothing was begun in vain
        assert await operations.dead_page(road.broker, [TOPIC]) == []
        (group,) = (await operations.status(road.store, road.outboxes, road.broker)).groups
        assert (group.paused, group.highest_retry_count, group.failed) == (None, 0, 0)


async def test_what_would_be_tried_again_waits_for_the_end_of_the_pause(database_url: str) -> None:
    async with opened(database_url) as yard:
        road, runner = yard.road, yard.road.runner()
        yard.failures = 1
        yard.free.clear()
        await yard.write("a", range(3))
        async with runner.started():
            await until(lambda: yard.tried)
            await yard.pause(runner)
            yard.free.set()  # it fails, and is due a twentieth of a second later
            await until(at_rest(runner))
            record = (await operations.inbox_page(road.store, group=GROUP))[0]
            await until(lambda: record.next_retry_at is None or record.next_retry_at < road.clock.now())
            tried = list(yard.tried)
            await yard.resume()
            await road.drain()
        assert yard.tried == [("a", 0), ("a", 0), ("a", 1), ("a", 2)]
        assert tried == [("a", 0)] or road.store.one_writer
        (group,) = (await operations.status(road.store, road.outboxes, road.broker)).groups
        assert group.highest_retry_count == 0


async def leave_to_the_scheduler(yard: Yard) -> None:
    """An event that is due, and that no broker holds."""
    road, yard.failures = yard.road, 1
    async with road.session() as session, session.begin():
        id = road.add(session, StoneCut("a", 0)).id
    async with road.runner().started():
        await road.drain()
    await operations.replay_event(road.store, road.outboxes, GROUP, id, actor="ann")


async def test_what_no_broker_holds_is_not_tried_during_a_pause_either(sqlite_url: str) -> None:
    async with opened(sqlite_url) as yard:
        road = yard.road
        await leave_to_the_scheduler(yard)
        await operations.pause_group(road.store, road.groups, GROUP, actor="ann")
        runner = road.runner(groups=[])  # of a process that has no consumer of the group: only its scheduler
        runner.scheduler = RetryScheduler(road.inbox, road.bus)
        tries = len(yard.tried)
        async with runner.started():
            looks = spy(runner.scheduler, "run_once")
            await until(lambda: len(looks) > 3)
            assert len(yard.tried) == tries
            await yard.resume()
            await until(lambda: len(yard.tried) == tries + 1)


def spy(owner: object, name: str) -> list[object]:
    calls, original = [], getattr(owner, name)

    async def noted(*given: object) -> object:
        calls.append(given)
        return await original(*given)

    setattr(owner, name, noted)
    return calls


async def test_a_pause_ends_the_schedulers_round_after_the_one_in_hand(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        broken = Broken({1: 1, 2: 1, 3: 1})
        registry = handlers(broken)
        bus = Bus(b.inbox, registry)
        for number in (1, 2, 3):
            message = placed(number, order=str(number))
            with pytest.raises(RuntimeError):
                await bus.consume(RECEIPTS, message, ConsumeOptions(keep_message=True))
            await b.make_due(message)
        tried = len(broken.tried)
        assert await RetryScheduler(b.inbox, bus).run_once(lambda _: len(broken.tried) == tried) == 1
        assert await RetryScheduler(b.inbox, bus).run_once() == 2


async def test_who_follows_what_is_handled_is_told_of_what_the_scheduler_has_handled(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        broken = Broken({1: 1, 2: 2})
        scheduler = RetryScheduler(b.inbox, Bus(b.inbox, handlers(broken)))
        told: list[tuple[str, int | None]] = []
        scheduler.tell = lambda group, message, seconds: told.append((group, message.version))
        for number in (1, 2):
            message = placed(number, order=str(number))
            with pytest.raises(RuntimeError):
                await scheduler._bus.consume(RECEIPTS, message, ConsumeOptions(keep_message=True))
            await b.make_due(message)
        assert await scheduler.run_once() == 2
        assert told == [(RECEIPTS, 1)]  # the other has failed again


async def test_a_process_that_stops_begins_nothing_more_by_itself(sqlite_url: str) -> None:
    async with opened(sqlite_url) as yard:
        road = yard.road
        await leave_to_the_scheduler(yard)
        tries, runner = len(yard.tried), road.runner()
        runner.scheduler = RetryScheduler(road.inbox, road.bus)
        runner._stop.set()
        await runner._retry()
        assert len(yard.tried) == tries
        runner._stop.clear()
        await runner._retry()
        assert len(yard.tried) == tries + 1


async def test_who_is_started_during_a_pause_takes_nothing(sqlite_url: str) -> None:
    async with opened(sqlite_url) as yard:
        road = yard.road
        await operations.pause_group(road.store, road.groups, GROUP, actor="ann")
        await yard.write("a", range(2))
        runner = road.runner()
        await runner.prepare()
        assert not runner._gates.of("group", GROUP).is_open
        subscribed, looks = spy(road.broker, "subscribe"), spy(runner._gates, "look")
        async with runner.started():
            await until(lambda: len(looks) > 3)
            assert subscribed == []
            await yard.resume()
            await road.drain()
        assert yard.steps("a") == [0, 1]


async def test_a_pause_is_no_attempt_even_where_the_broker_counts_them(
    tmp_path: Path, fresh_postgresql_url: str
) -> None:
    async with opened(fresh_postgresql_url, f"embedded:{tmp_path / 'broker.db'}") as yard:
        road = yard.road
        await operations.pause_group(road.store, road.groups, GROUP, actor="ann")
        await yard.write("abc", range(3))
        runner = road.runner()
        async with runner.started():
            await road.broker.apply(Topology((TOPIC,), (Subscription(SUBSCRIPTION, TOPIC, max_attempts=1),)))

            async def all_there() -> bool:
                return (await road.broker.depth(SUBSCRIPTION)).messages == 9

            await eventually(all_there)
            await yard.resume()
            for _ in range(2):
                yard.free.clear()
                await until(lambda: runner.subscribers[0].lanes.waiting)
                await yard.pause(runner)
                yard.free.set()
                await until(at_rest(runner))
                await yard.resume()
            await road.drain()
        assert [yard.steps(stone) for stone in "abc"] == [[0, 1, 2]] * 3
        assert await operations.dead_page(road.broker, [TOPIC]) == []


async def test_a_process_that_must_end_during_a_pause_waits_no_longer_than_its_grace(fresh_postgresql_url: str) -> None:
    async with opened(fresh_postgresql_url) as yard:
        runner = yard.road.runner()
        yard.free.clear()
        await yard.write("a", range(1))
        async with asyncio.timeout(30):
            async with runner.started():
                await until(lambda: yard.tried)
                resting = spy(runner.subscribers[0], "_rest")
                await yard.pause(runner)
                await until(lambda: resting)
            assert yard.seen == []
            yard.free.set()
            await yard.resume()
            async with yard.road.running():
                await yard.road.drain()
        assert yard.seen == [("a", 0)]


async def test_a_paused_outbox_sends_nothing_and_gives_back_its_shards(database_url: str) -> None:
    async with opened(database_url) as yard:
        road, runner = yard.road, yard.road.runner()
        async with runner.started():
            await yard.write("a", range(2))
            await road.drain()
            await operations.pause_outbox(road.store, road.outboxes, "postroad_outbox", actor="ann")
            await until(lambda: not runner.relays[0].leases.epochs)
            await yard.write("a", range(2, 4))
            await listed(yard, 1)
            (outbox,) = (await operations.status(road.store, road.outboxes)).outboxes
            assert outbox.shards_without_owner == 256
            assert (outbox.waiting, outbox.paused.actor) == (2, "ann")
            assert stuck([runner], road.clock.monotonic() + 3_600) == []
            page = (await Telemetry(road).metrics()).decode()
            assert 'outbox_paused{outbox="postroad_outbox"} 1.0' in page
            assert 'group_paused{group="masons"} 0.0' in page
            await operations.resume_outbox(road.store, "postroad_outbox", actor="ann")
            await road.drain()
        assert yard.steps("a") == [0, 1, 2, 3]


async def test_a_drained_worker_finishes_leaves_and_takes_no_more_while_the_others_go_on(database_url: str) -> None:
    async with opened(database_url) as yard:
        road, first = yard.road, yard.road.runner()
        yard.free.clear()
        async with first.started():
            (worker,) = [one.id for one in await listed(yard, 2) if one.kind == "worker"]
            await yard.write("a", range(1))
            await until(lambda: yard.tried)
            if road.store.one_writer:
                yard.free.set()
            assert await operations.drain_worker(road.store, worker, actor="ann", reason="deploy") == [worker]
            await until(lambda: first.drained)
            left = [one for one in (await operations.status(road.store, ())).workers if one.kind == "worker"]
            assert [one.draining.reason for one in left] == ["deploy"] or road.store.one_writer
            yard.free.set()
            await listed(yard, 0)
            assert yard.seen == [("a", 0)]
            assert not first._gates.of("group", "any").is_open  # nor does it try again what others have left
            assert "drained" in await Telemetry(road).obstacles()
            assert (await operations.leases(road.store)) == []
            handled = len(yard.seen)
            second = road.runner()
            async with second.started():
                await yard.write("a", range(1, 4))
                await road.drain()
                assert not second.drained
            assert first.subscribers[0].statistics.handled == handled
        assert yard.steps("a") == [0, 1, 2, 3]
        with pytest.raises(OperationRefused, match=r"No worker 'nobody:1' is alive. At work: nobody"):
            await operations.drain_worker(road.store, "nobody:1", actor="ann")


async def test_draining_a_process_by_name_drains_all_that_it_runs_and_forgets_those_that_are_gone(
    sqlite_url: str,
) -> None:
    async with opened(sqlite_url) as yard:
        road = yard.road
        for _ in range(2):
            runner = road.runner()
            async with runner.started():
                found = await listed(yard, 2)
                process = min((one.name for one in found), key=len)
                assert set(await operations.drain_worker(road.store, process, actor="ann")) == {one.id for one in found}
                await until(lambda: runner.drained)  # noqa: B023
        assert {one.name for one in await operations.pauses(road.store)} == {one.id for one in found}


async def test_what_does_not_fit_is_refused_and_what_was_done_is_written_down(database_url: str) -> None:
    async with opened(database_url) as yard:
        store, road = yard.road.store, yard.road
        with pytest.raises(OperationRefused, match=r"There is no group 'mason'. Known: masons."):
            await operations.pause_group(store, road.groups, "mason", actor="ann")
        with pytest.raises(OperationRefused, match=r"There is no outbox 'inbox'. Known: postroad_outbox."):
            await operations.pause_outbox(store, road.outboxes, "inbox", actor="ann")
        with pytest.raises(OperationRefused, match="'masons' is not paused"):
            await yard.resume()
        await operations.pause_group(store, road.groups, GROUP, actor="ann", reason="dust")
        with pytest.raises(OperationRefused, match="'masons' is paused already"):
            await operations.pause_group(store, road.groups, GROUP, actor="bob")
        await yard.resume()
        done = [(one.actor, one.action, one.subject, one.detail) for one in await operations.acts(store)]
        assert done == [("ann", "group.resume", GROUP, ""), ("ann", "group.pause", GROUP, "dust")]


def test_a_pause_outlives_kill_9_and_is_seen_and_ended_by_commands(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with shell.running("dev shop:road") as running:
        running.until("started")
        assert json.loads(shell("pause receipts --app shop:road --reason fire --json")) == {
            "paused": {"group": "receipts"}
        }
        running.signal(signal.SIGKILL)
    with shell.running("dev shop:road") as running:
        running.until("started")
        shell("publish shop:road order.placed", '{"order_id": "7", "cents": 1}')
        told = shell("status shop:road")
        assert "receipts is paused by" in told
        assert "postroad resume receipts --app shop:road" in told
        assert not (tmp_path / "receipts").exists()
        assert "goes on within seconds" in shell("resume receipts --app shop:road")
        running.until("handled by receipts")
        relay = f"{socket.gethostname()}:{running.process.pid}"
        assert f"{relay} is alive. Let it give them back" in shell(f"release {relay} --app shop:road", expect=1)
        assert "takes no more" in shell(f"drain {socket.gethostname()}:{running.process.pid} --app shop:road")


@pytest.mark.parametrize("broker", ["rabbitmq_url", "pubsub_url", "kafka_url"])
async def test_each_broker_gives_what_was_not_begun_again_in_order(
    fresh_postgresql_url: str, broker: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(broker)
    yard = Yard(fresh_postgresql_url, url, BrickLaid)
    road, runner = yard.road, yard.road.runner()
    await road.migrate()
    async with road:
        yard.free.clear()
        await yard.write("ab", range(6))
        async with runner.started():
            await until(lambda: yard.tried)
            await until(lambda: runner.subscribers[0].lanes.waiting)
            await yard.pause(runner)
            yard.free.set()
            await until(at_rest(runner))
            assert sorted(yard.seen) == [("a", 0), ("b", 0)]
            await yard.resume()
            await until(lambda: len(yard.seen) == 12)
        assert yard.steps("a") == yard.steps("b") == list(range(6))
        assert yard.tried == yard.seen
    if broker == "kafka_url":
        remove_topics(url, KAFKA_TOPIC, f"{KAFKA_TOPIC}.dlq")
