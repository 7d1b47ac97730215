"""The embedded broker as a server of its own, and the connections through which processes reach it."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from postroad.brokers.base import (
    Broker,
    Confirmed,
    Delivery,
    Flow,
    Outcome,
    Receiver,
    Refused,
    Topology,
    Unavailable,
)
from postroad.brokers.embedded.broker import EmbeddedBroker
from postroad.brokers.embedded.database import Connection, connect
from postroad.brokers.embedded.receiver import EmbeddedReceiver
from postroad.errors import BrokerUnavailable
from postroad.message import Message
from proof.simulator.faults import RECEIVE, SEND, VERDICT
from proof.simulator.process import Process
from proof.simulator.time import LoopClock

if TYPE_CHECKING:
    from proof.simulator.world import World

T = TypeVar("T")
_NONE = Flow(messages=0)


class Post:
    """The server: it is never killed, but it may be out of reach."""

    flow = Flow()

    def __init__(self, world: "World") -> None:
        self.world = world
        self.away = False
        self.process = Process("broker")
        self._context = self.process.context()
        self.broker = EmbeddedBroker(None, LoopClock())
        self.broker._database._connection = _tables()
        self.taken: list[Message] = []
        """Everything it ever took, in that order."""

    def line(self, process: Process) -> Broker:
        return Line(self, process)

    async def prepare(self, topology: Topology) -> None:
        await self.do(lambda: self.broker.apply(topology))

    async def put(self, messages: Sequence[Message]) -> None:
        """Of somebody who needs no connection."""
        await self.do(lambda: self.broker.send(messages))

    async def left(self, subscription: str) -> int:
        return (await self.broker.depth(subscription)).messages

    async def do(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Here, whatever becomes of the one who asked."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def pass_on(doing: asyncio.Task[T]) -> None:
            error = None if doing.cancelled() else doing.exception()
            if answer.done():
                return  # nobody waits for it any more
            if doing.cancelled():
                answer.cancel()
            elif error:
                answer.set_exception(error)
            else:
                answer.set_result(doing.result())

        asyncio.get_running_loop().create_task(ask(), context=self._context).add_done_callback(pass_on)
        return await answer

    def violations(self) -> list[str]:
        return []

    def clear(self) -> None:
        """For the next world, which gets the same tables: making them, and planning anew, costs as much as some seeds'
        messages do."""
        tables = _tables()
        for (table,) in tables.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            tables.execute(f'DELETE FROM "{table}"')
        self.broker._database._connection = None


@cache
def _tables() -> Connection:
    return connect(None)


class Line:
    """One process's connection. It is a Broker to the relay and the subscribers."""

    def __init__(self, post: Post, process: Process) -> None:
        self.post, self.process = post, process
        self.features = post.broker.features
        self.address = "simulated:"

    async def aclose(self) -> None:
        """It goes with its process."""

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        world = self.post.world
        self.process.require_life()
        fault = world.fates.draw(SEND)
        if world.coverage is not None and not world.fates.calm and len({m.topic for m in batch}) > 1:
            fault = "fails" if world.random.random() < 0.7 else fault  # for several topics at once, which is rare
        cut = world.random.randrange(len(batch)) if fault in ("lost", "unconfirmed", "refused") else len(batch)
        what = f"send {len(batch)}"
        with world.reaching(self.process, what, fault):
            await self.process.step_outside(world.fates.latency())
            if fault == "killed before":
                self.process.die()
            if fault == "frozen":
                self.process.freeze(world.freeze_seconds())
                await self.process.step_outside()
            if fault == "slow":
                await self.process.step_outside(world.freeze_seconds())
            if self.post.away:
                return [Unavailable("away")] * len(batch)
            if fault == "fails":
                raise RuntimeError("an adapter should not, but may")
            through = batch if fault in ("", "unconfirmed", "killed after", "frozen", "slow") else batch[:cut]
            # The others of its key must not pass the one that was refused.
            if fault == "refused":
                through = [m for m in batch if m.wire_key != batch[cut].wire_key or batch.index(m) < cut]
            outcomes = dict(zip((m.id for m in through), await self._deliver(through), strict=True))
        with world.reaching(self.process, what, fault, done=True):
            await self.process.step_outside()
            if fault == "killed after":
                self.process.die()
        if fault == "unconfirmed":
            outcomes = {m.id: outcomes[m.id] for m in batch[:cut]}
        refused = {batch[cut].id: Refused("not today")} if fault == "refused" else {}
        return [refused.get(m.id) or outcomes.get(m.id) or Unavailable(fault) for m in batch]

    async def _deliver(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        outcomes = await self.post.do(lambda: self.post.broker.send(batch)) if batch else []
        self.post.taken += [m for m, outcome in zip(batch, outcomes, strict=True) if isinstance(outcome, Confirmed)]
        return outcomes

    async def subscribe(self, subscription: str, flow: Flow) -> "Intake":
        world = self.post.world
        with world.reaching(self.process, "subscribe", ""):
            await self._reach()
            receiver = await self.post.do(lambda: self._subscribe(subscription, flow))
        with world.reaching(self.process, "subscribe", "", done=True):
            pass
        return Intake(self, receiver)

    async def _subscribe(self, subscription: str, flow: Flow) -> EmbeddedReceiver:
        """On the server's side, which also notices when the one who asked is no more."""
        receiver = await self.post.broker.subscribe(subscription, flow)
        if self.process.alive:
            self.process.at_death[receiver] = receiver.abandon
            self.process.at_freezing[receiver] = lambda seconds: self._neglect(receiver, seconds)
        else:
            receiver.abandon()
        return receiver

    def _neglect(self, receiver: EmbeddedReceiver, seconds: float) -> None:
        """A frozen process does not extend its leases: what it holds may go to somebody else."""
        post = self.post

        async def neglect() -> None:
            post.broker._leases.drop(receiver._id)
            room, receiver._flow = receiver._flow, _NONE
            await post.process.clock.sleep(seconds)
            receiver._flow = room
            receiver._wake.set()
            if not receiver.closed and receiver._id not in post.broker._leases._deadlines:
                post.broker._leases.keep(receiver._id, receiver.found.subscription.ack_deadline)

        if not receiver.closed and receiver._flow is not _NONE:
            post.process.spawn(neglect())

    async def _reach(self) -> None:
        await self.process.step_outside(self.post.world.fates.latency())
        if self.post.away:
            raise BrokerUnavailable("The broker is away.")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.post.broker, name)


class Intake:
    def __init__(self, line: Line, receiver: Receiver) -> None:
        self._line, self._receiver = line, receiver

    async def receive(self) -> Sequence[Delivery]:
        line, world = self._line, self._line.post.world
        with world.reaching(line.process, "receive", ""):
            await line._reach()
            arrived = await line.post.do(lambda: self._receiver.receive())
        fault = world.fates.draw(RECEIVE)
        with world.reaching(line.process, f"receive {len(arrived)}", fault, done=True):
            await line.process.step_outside(3.0 if fault == "late" else world.fates.latency())
            if fault == "killed after":
                line.process.die()
        deliveries = [Parcel(line, delivery) for delivery in arrived]
        if fault == "twice":
            again = world.random.randrange(len(deliveries))
            deliveries.insert(again, deliveries[again])
        return deliveries

    async def aclose(self) -> None:
        line, world = self._line, self._line.post.world
        with world.reaching(line.process, "close the receiver", ""):
            await line.process.step_outside()
            await line.post.do(self._receiver.aclose)
        with world.reaching(line.process, "close the receiver", "", done=True):
            pass


class Parcel:
    """A delivery; its verdict may get lost on the way to the broker, or the answer on the way back."""

    def __init__(self, line: Line, delivery: Delivery) -> None:
        self._line, self._delivery = line, delivery
        self.topic, self.subscription, self.key = delivery.topic, delivery.subscription, delivery.key
        self.attributes: Mapping[str, str] = delivery.attributes
        self.data, self.attempt = delivery.data, delivery.attempt

    async def ack(self) -> None:
        await self._decide("ack", self._delivery.ack)

    async def retry(self, after: float) -> None:
        await self._decide("retry", lambda: self._delivery.retry(after))

    async def dead(self, reason: str) -> None:
        await self._decide("dead", lambda: self._delivery.dead(reason))

    async def _decide(self, verdict: str, give: Callable[[], Coroutine[Any, Any, None]]) -> None:
        line, world = self._line, self._line.post.world
        line.process.require_life()
        fault = world.fates.draw(VERDICT)
        with world.reaching(line.process, verdict, fault):
            await line._reach()
            if fault == "killed before":
                line.process.die()
            if fault == "frozen":
                line.process.freeze(world.freeze_seconds())
                await line.process.step_outside()
            if fault == "out of reach":
                raise BrokerUnavailable("no connection")
            # Lost without a word: the broker will find out, and deliver it again.
            await line.post.do((lambda: self._delivery.retry(0)) if fault == "lost" else give)
        with world.reaching(line.process, verdict, fault, done=True):
            await line.process.step_outside()
            if fault == "killed after":
                line.process.die()
            if fault == "unanswered":
                raise BrokerUnavailable("no answer")
