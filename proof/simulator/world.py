"""One seed from beginning to end: two processes that relay and consume, one that writes, and all that goes wrong."""

import asyncio
import contextlib
import traceback
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.brokers.base import Subscription, Topology
from postroad.codec.upcast import Upcasters
from postroad.errors import PostroadError
from postroad.handlers import Bus
from postroad.inbox import Inbox, RetryScheduler
from postroad.message import Message
from postroad.outbox import Outbox
from postroad.projections import Caretaker
from postroad.relay import Pruner, Relay, RelayOptions
from postroad.retry import Backoff
from postroad.stores.base import Store
from postroad.stores.tables import DEFAULT_OUTBOX
from postroad.subscriber import Subscriber, SubscriberOptions
from proof.simulator import books
from proof.simulator.adapters import AdapterPost
from proof.simulator.broker import Post
from proof.simulator.coverage import Coverage
from proof.simulator.database import Database
from proof.simulator.faults import DIRECTED, RABBIT_WORLD, WORLD, Fates
from proof.simulator.ledger import ATTEMPTS, violations
from proof.simulator.mender import Mender
from proof.simulator.process import Process, adopt, current
from proof.simulator.rabbitmq import RabbitPost
from proof.simulator.tills import KEPT, Desk, Tills
from proof.simulator.time import LoopClock, VirtualLoop, pass_time
from proof.simulator.visitors import Stranger, Visitor, also_handle, in_turns, tidy, without_thread
from proof.simulator.workload import Writer, handlers

LEAST_FAULTS, LONG_RUN = 50, 12
LEASE = 2.0
ACK_DEADLINE = 2.4
_BUSY = 16
"""Every so many seeds there is more going on."""
_IN_A_ROW = 13
"""In one of so many seeds, a long run of events, most of them on one key."""
_BROKERS = 3
"""Of so many seeds, one runs on RabbitMQ, the others on the embedded broker."""
_COMMANDS, _REBUILDS = 8, 3
"""In one of so many seeds there are commands and a read model; in one of so many of those, it is rebuilt, and in
another something is lost in the end, and repaired."""
_MENDING = 15.0
"""Seconds of faults in which it can be."""
_TAKEN_OVER = "UPDATE postroad_inbox SET epoch = epoch + 1 WHERE status = 0 AND locked_by IS NOT NULL RETURNING epoch"
_LONGEST_STORM = 600.0
_LONG_LOOK = 30.0
_LONGEST_CALM = 400.0
_FIRST_LOOK = 0.02
_CALM_LOOK = 0.3
TOPOLOGY = Topology(
    ("sim.booking.events", "sim.note.events"),
    (
        Subscription("sim.booking.events.plain", "sim.booking.events", ack_deadline=ACK_DEADLINE),
        Subscription("sim.booking.events.picky", "sim.booking.events", ack_deadline=ACK_DEADLINE),
        Subscription("sim.note.events.reader", "sim.note.events", ack_deadline=ACK_DEADLINE),
    ),
)
TILLS = Topology(
    (*TOPOLOGY.topics, "sim.till.events"),
    (*TOPOLOGY.subscriptions, Subscription("sim.till.events.view", "sim.till.events", ack_deadline=ACK_DEADLINE)),
)


class StoodStill(KeyboardInterrupt):
    """That nobody on the way takes for a failure of his own, and that asyncio passes on at once."""


@dataclass(slots=True)
class Outcome:
    seed: int
    violations: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    keys: list[int] = field(default_factory=list)
    """How many events each of them has."""
    sent: int = 0
    seconds: float = 0.0
    """Virtual."""
    trace: list[str] = field(default_factory=list)
    drawn: int = 0


class World:
    def __init__(
        self,
        seed: int,
        database: Database,
        *,
        only: Container[int] | None = None,
        tracing: bool = False,
        coverage: Coverage | None = None,
        broker: str | None = None,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.busy = coverage is not None or seed % _BUSY == 0
        """Whether strangers come by, rows are spoilt, and people look at things."""
        self.in_a_row = coverage is None and seed % _IN_A_ROW == _IN_A_ROW // 2
        self.broker = broker or ("rabbitmq" if coverage is None and seed % _BROKERS == _BROKERS - 1 else "embedded")
        likelier = DIRECTED[seed % len(DIRECTED)] if coverage is not None else None
        self.fates = Fates(Random(seed + 1), only=only, likelier=likelier)
        self.trace: list[str] | None = [] if tracing else None
        self.coverage = coverage
        self.unwatched = coverage is None and not tracing
        self.doing: dict[asyncio.Task[Any] | None, tuple[str, bool]] = {}
        """What each task is about to do outside, or has done there without knowing it yet."""
        self.clock = LoopClock()
        """The one that is right."""
        self._database = database
        self._server = database.serve(self)
        self.writer_store = database.stores[2]
        self.registry = handlers(self)
        self.lease = LEASE
        commanded = coverage is None and seed % _COMMANDS == 1
        self._rebuilds = commanded and seed // _COMMANDS % _REBUILDS == 0
        mends = commanded and seed // _COMMANDS % _REBUILDS == 1
        self.tills = Tills(self, self.registry, close=not mends) if commanded else None
        self.mender = Mender(self) if mends else None
        self._desks: dict[Process, Desk] = {}
        self._topology = TILLS if commanded else TOPOLOGY
        self.writer = Writer(self, Random(seed + 2))
        self.stranger, self.visitor = Stranger(self), Visitor(self, Random(seed + 3))
        if self.busy:
            also_handle(self, self.registry)
        self.outboxes: dict[Process, Outbox] = {}
        self._lives: Counter[str] = Counter()
        self._alive: dict[str, Process] = {}
        self.fallen: list[str] = []
        self._stops: list[asyncio.Event] = []

    # -- what the others report ---------------------------------------------------------------------------

    def reaching(
        self, process: Process, what: str, fault: str, *, done: bool = False
    ) -> "_Step | contextlib.nullcontext[None]":
        if self.trace is not None and (fault or not done):
            moment = asyncio.get_running_loop().time()
            told = f" ✗ {fault}" if fault else ""
            self.trace.append(f"{moment:10.3f}  {process.name:<8} {'has done ' * done}{what}{told}")
        if self.coverage is None:
            return _NOBODY_LOOKS
        step = _Step(self, what, done)
        if process.alive and not self.fates.calm and self.coverage.wants(process, what, done):
            with step:
                process.die()
        return step

    def tell(self, who: str, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{asyncio.get_running_loop().time():10.3f}  {who:<8} {what}")

    def freeze_seconds(self) -> float:
        """Longer than any lease."""
        return LEASE * (1.3 + self.random.random() * (1 if self.coverage is None else 2))

    def aimed(self, process: Process, what: str) -> str:
        """A fault for a place that chance finds too rarely."""
        assert self.coverage is not None
        if self.fates.calm or what != "BEGIN IMMEDIATE" or not self.coverage.in_between():
            return ""
        if self._server.keeps_out_others(process):
            return ""
        if self.random.random() < 0.5 or self._server.is_locked():
            return "frozen"
        # Or it was frozen for so long that somebody took over, who died with it.
        self.tell("world", f"leases held now are taken from {process.name}")
        self._database.ask(_TAKEN_OVER)
        return ""

    # -- one run ------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        outcome = Outcome(self.seed)
        loop = VirtualLoop(adopt)
        loop.set_exception_handler(lambda loop, context: None)
        try:
            loop.run_until_complete(self._run(outcome))
        except (Exception, StoodStill) as error:
            # With its seed, it can be looked at like any other failure.
            outcome.violations.append("broke off: " + "".join(traceback.format_exception(error)).strip())
        finally:
            outcome.seconds, outcome.faults, outcome.drawn = loop.time(), self.fates.happened, self.fates.drawn
            outcome.trace = self.trace or []
            self._server.stop()
            loop.close()
            self._database.reset()
        return outcome

    async def _run(self, outcome: Outcome) -> None:
        self.post = self._opened()
        await self.post.prepare(self._topology)
        slots = [asyncio.create_task(self._keep_up(name, index)) for index, name in enumerate(("north", "south"))]
        slots.append(asyncio.create_task(self._keep_writing()))
        if self.coverage is None:
            await self._until_something_is_written()
        if self._rebuilds:
            slots.append(asyncio.create_task(self._keep_rebuilding()))
        if self.busy:
            slots.append(asyncio.create_task(self._keep_visiting()))
            slots.append(asyncio.create_task(self.stranger.run()))
        slots.append(asyncio.create_task(self._weather()))
        try:
            await self._storm()
            await self._calm(outcome)
            if self.mender is not None and not outcome.violations:
                while self._server.is_locked():
                    await pass_time(_CALM_LOOK)
                self.mender.plant(self._database.ask)
                self.fates.calm = False
                slots += [asyncio.create_task(self._keep_mending(self.mender)), asyncio.create_task(self._weather())]
                await self.post.process.clock.sleep(_MENDING)
                await self._calm(outcome)
        finally:
            for task in slots:
                task.cancel()
            await asyncio.wait(slots)
            self.post.process.kill()
            await self.post.process.buried()
            self.post.clear()
        outcome.keys = [count for (count,) in self._database.ask("SELECT count(*) FROM booking GROUP BY account")]
        outcome.sent = len(self.post.taken)
        refused = self.tills.refused if self.tills else ()
        outcome.violations += [*self.fallen, *self.post.violations()]
        outcome.violations += violations(self._database.ask, self.post.taken, self.visitor.handed, refused)
        if self.tills is not None:
            outcome.violations += books.violations(
                self._database.ask, self.post.taken, self.tills.tickets, self.tills.acknowledged
            )
        if self.mender is not None:
            outcome.violations += self.mender.violations(self._database.ask)

    def _opened(self) -> Post | AdapterPost:
        if self.broker == "pubsub":
            from proof.simulator.pubsub import PubSubPost  # needs Google's libraries

            return PubSubPost(self)
        if self.broker == "kafka":
            from proof.simulator.kafka import KafkaPost  # needs Kafka's

            return KafkaPost(self)
        return RabbitPost(self) if self.broker == "rabbitmq" else Post(self)

    async def _until_something_is_written(self) -> None:
        """Before, most faults would hit processes that have nothing to do."""
        self.fates.calm = True
        while not self.writer.begun:
            await self.post.process.clock.sleep(_FIRST_LOOK)
        self.fates.calm = False

    async def _storm(self) -> None:
        """Until all is written and enough went wrong."""
        loop = asyncio.get_running_loop()
        # Where kills are aimed, it is not their number that counts.
        faults, least = (LEAST_FAULTS, 0.0) if self.coverage is None else (0, _LONG_LOOK)
        while loop.time() < _LONGEST_STORM and (
            self.fates.drawn < faults or not self.writer.finished or loop.time() < least
        ):
            await self.post.process.clock.sleep(0.2)

    async def _calm(self, outcome: Outcome) -> None:
        """Nothing goes wrong any more: all that was written must come to its end."""
        self.fates.calm = True
        self._server.be_away(False)
        self.post.away = False
        if isinstance(self.post, RabbitPost):
            self.post.server.short_of_memory = False
        self.tell("world", "calm")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LONGEST_CALM
        while left := await self._unfinished():
            if loop.time() > deadline:
                outcome.violations.append(f"lost: long after the last fault there is still {left}")
                return
            await pass_time(_CALM_LOOK)

    async def _unfinished(self) -> str:
        if not self.writer.finished:
            return "something to write"
        if self.tills is not None and (left := self.tills.unfinished(self._database.ask)):
            return left
        if self._rebuilds and self.tills is not None and not self.tills.rebuilt:
            return "a table to rebuild"
        if self.mender is not None and self.mender.planted and not self.mender.done:
            return "a loss to mend"
        unsent = self._database.ask("SELECT count(*) FROM postroad_outbox WHERE state NOT IN ('SENT', 'SKIPPED')")[0][0]
        if unsent:
            return f"{unsent} unsent events"
        if self.busy and not self.visitor.done:
            return "something to hand to the bus"
        waiting = self._database.ask(
            "SELECT count(*) FROM postroad_inbox"
            " WHERE consumer_group <> 'hand' AND message IS NOT NULL AND (status = 0 OR next_retry_at IS NOT NULL)"
        )[0][0]
        if waiting:
            return f"{waiting} records that nobody but the scheduler will try again"
        for subscription in self._topology.subscriptions:
            if messages := await self.post.left(subscription.name):
                return f"{messages} messages in {subscription.name}"
        return ""

    # -- processes ----------------------------------------------------------------------------------------

    async def _keep_up(self, name: str, index: int) -> None:
        while True:
            process = self._born(name)
            store = self._database.stores[index]
            work = process.spawn(self._serve(process, store))
            await self._until_death(process, store, work)

    async def _keep_writing(self) -> None:
        while True:
            process = self._born("writer")
            outbox = Outbox(self.writer_store, "sim", clock=process.clock, randomness=Random(self._seed_of(process)))
            work = process.spawn(self.writer.run(process, outbox))
            if not await self._until_death(process, self.writer_store, work):
                return

    async def _keep_visiting(self) -> None:
        store = self._database.stores[3]
        while True:
            process = self._born("visitor")
            work = process.spawn(self.visitor.run(process, store))
            await self._until_death(process, store, work)

    async def _keep_rebuilding(self) -> None:
        assert self.tills is not None
        store = self._database.stores[4]
        while True:
            process = self._born("builder")
            work = process.spawn(self.tills.rebuild(self._desk(process, store, Outbox(store, "sim"))))
            if not await self._until_death(process, store, work):
                return

    async def _keep_mending(self, mender: Mender) -> None:
        store = self._database.stores[4]
        while True:
            process = self._born("mender")
            work = process.spawn(mender.run(process, self._desk(process, store, Outbox(store, "sim"))))
            if not await self._until_death(process, store, work):
                return

    def _desk(self, process: Process, store: Store, outbox: Outbox) -> Desk:
        assert self.tills is not None
        self._desks[process] = Desk(self, self.tills, process, store, outbox)
        return self._desks[process]

    async def join_a_command(self, session: AsyncSession, message: Message) -> None:
        if self.tills is not None:
            process = current.get()
            assert process is not None
            await self._desks[process].join(session, message)

    def _born(self, name: str) -> Process:
        self._lives[name] += 1
        process = self._alive[name] = Process(f"{name}.{self._lives[name]}")
        if self.coverage is not None:
            process.at_murder = partial(self.coverage.witness, process, self.doing)
        self.tell(process.name, "starts")
        return process

    def _seed_of(self, process: Process) -> str:
        return f"{self.seed}/{process.name}"

    async def _until_death(self, process: Process, store: Store, work: asyncio.Task[Any]) -> bool:
        """Whether it was killed, and not simply done."""
        try:
            await asyncio.wait([work])
            killed = not process.alive
            if not killed and (error := work.exception()):
                # Nothing that goes wrong outside may end a process from within.
                self.fallen.append(f"fell over: {process.name} ended with {error!r}")
                killed = True
        finally:
            process.kill()
            await process.buried()
            self._database.forget(store)
        if killed:
            self.tell(process.name, "was killed")
            await pass_time(self.random.random())
        return killed

    async def _serve(self, process: Process, store: Store) -> None:
        """What `Postroad.runner` starts, on this process's connections."""
        chance = Random(self._seed_of(process))
        line = self.post.line(process)
        outbox = Outbox(store, "sim", clock=process.clock, randomness=chance)
        inbox = without_thread(Inbox(store, clock=process.clock, randomness=chance))
        registry, upcasters = self.registry, Upcasters()
        self.outboxes[process] = outbox
        relay = Relay(
            store,
            line,
            options=RelayOptions(lease=LEASE, poll=2.0, batch=6, backoff=Backoff(attempts=4, base=0.4)),
            clock=process.clock,
            randomness=chance,
            name=process.name,
            wake=outbox.wakes[DEFAULT_OUTBOX],
        )
        options = SubscriberOptions(
            ack_deadline=ACK_DEADLINE,
            lock_ttl=LEASE,
            backoff=Backoff(attempts=ATTEMPTS, base=0.2),
            grace=3.0,
            flow=self.post.flow,
        )
        desk = self._desk(process, store, outbox) if self.tills else None
        stop = asyncio.Event()
        self._stops = [*(other for other in self._stops if not other.is_set()), stop]
        parts = [relay.run(stop)]
        for group in registry.groups:
            subscriber = Subscriber(
                line, inbox, registry, upcasters, group,
                options=options, clock=process.clock, randomness=chance, road=desk,
            )  # fmt: skip
            parts.append(subscriber.run(stop) if self.coverage is None else in_turns(subscriber, process, stop, chance))
        if self.tills is not None and desk is not None:
            parts += [desk.worker.run(stop), self.tills.ask(process.name.partition(".")[0], desk, stop)]
        scheduler = RetryScheduler(inbox, Bus(inbox, registry, upcasters))
        keeping = process.spawn(self._housekeeping(process, store, scheduler))
        await asyncio.gather(*(process.spawn(part) for part in parts))
        keeping.cancel()
        await line.aclose()

    async def _housekeeping(self, process: Process, store: Store, scheduler: RetryScheduler) -> None:
        pruner = Pruner(store, DEFAULT_OUTBOX, retention=4.0 if self.mender is None else KEPT)
        while True:
            await process.clock.sleep(5)
            try:
                await scheduler.run_once()
                await pruner.run_once()
                if self._rebuilds:
                    await Caretaker(store).run_once()
                await tidy(store)
            except (PostroadError, SQLAlchemyError):
                pass

    # -- what happens to all ------------------------------------------------------------------------------

    async def _weather(self) -> None:
        while not self.fates.calm:
            await pass_time(0.2 + self.random.random() * 0.7)
            fault = self.fates.draw(RABBIT_WORLD if isinstance(self.post, RabbitPost) else WORLD)
            if fault:
                self.tell("world", f"✗ {fault}")
            if fault == "broker away":
                self.post.away = True
                await pass_time(self.random.random() * 2)
                self.post.away = False
            elif isinstance(self.post, RabbitPost) and fault == "broker short of memory":
                self.post.server.short_of_memory = True
                await pass_time(self.random.random() * 2)
                self.post.server.short_of_memory = False
            elif fault == "database away":
                self._server.be_away(True)
                await pass_time(self.random.random() * 2)
                self._server.be_away(False)
            elif fault == "stopped":
                # As SIGTERM asks for: what is in hand is finished, the rest goes back.
                if self._stops:
                    self.random.choice(self._stops).set()
            elif fault == "clock jumps":
                for process in self._alive.values():
                    process.clock.skew += self.random.uniform(-3_600, 3_600)


_NOBODY_LOOKS = contextlib.nullcontext()


class _Step:
    """`with world.reaching(…)`: so that whoever is killed can be found where it stood."""

    __slots__ = ("_before", "_done", "_task", "_what", "_world")

    def __init__(self, world: World, what: str, done: bool) -> None:
        self._world, self._what, self._done = world, what, done
        self._task = asyncio.current_task()

    def __enter__(self) -> None:
        doing = self._world.doing
        # A handler is such a step, with others in it.
        self._before = doing.get(self._task)
        doing[self._task] = (self._what, self._done)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._before is None:
            self._world.doing.pop(self._task, None)
        else:
            self._world.doing[self._task] = self._before
