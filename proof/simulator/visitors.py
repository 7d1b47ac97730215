"""Who else comes by: a stranger with odd messages, a hand that writes unreadable rows, a person who looks and decides,
and a program with its own consumer, which uses the in-process bus and the inbox by itself."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.brokers.base import Flow
from postroad.codec.upcast import Upcasters
from postroad.commands import Executor
from postroad.errors import BusinessError, PoisonError, PostroadError
from postroad.events import event
from postroad.handlers import Bus, Registry
from postroad.inbox import ConsumeOptions, Inbox, RetryScheduler
from postroad.inbox.records import WEEK
from postroad.message import Message, id_from_key, shard_of
from postroad.operations import outbox_page, parked_ids, retry_events, skip_event
from postroad.retry import CONSUMER
from postroad.stores.base import Store
from postroad.stores.tables import DEFAULT_OUTBOX
from postroad.subscriber import Subscriber, SubscriberOptions
from postroad.telemetry.canary import TYPE as CANARY
from proof.simulator.ledger import ATTEMPTS
from proof.simulator.process import Process
from proof.simulator.time import BEGINNING
from proof.simulator.workload import Made, failing, note

if TYPE_CHECKING:
    from proof.simulator.world import World

H = TypeVar("H", Inbox, Executor)

LETTERS, MANY_LETTERS = 6, 16
"""That the program hands to its bus."""
_PACE, _CALM_PACE = 0.9, 0.2
_TURN = 12.0
"""Longest time until somebody pauses a group."""
_OFTEN = 8
_OUTBOXES = (DEFAULT_OUTBOX,)
_KEPT = ConsumeOptions(lock_ttl=2.0, base_backoff=0.2, max_backoff=2.0, keep_message=True)
_PATIENT = ConsumeOptions(lock_ttl=2.0, base_backoff=0.2, wait_if_in_progress=True, wait_max=1.0)


@event("sim.aside.made", topic="sim.booking.events", aggregate="aside", key="place")
class Aside(msgspec.Struct, frozen=True):
    """Of a stranger; the group `plain` takes it, the others pass it over."""

    place: str
    dreadful: bool = False


@event("sim.remark.made", topic="sim.booking.events", aggregate="aside", key="place")
class Remark(msgspec.Struct, frozen=True):
    place: str


def also_handle(world: "World", registry: Registry) -> None:
    async def take(event: Aside, session: AsyncSession) -> None:
        if event.dreadful:
            raise PoisonError("nobody can do anything with this")
        if event.place.endswith(("3", "9")):
            raise BusinessError("not here")
        await hesitate(world)

    async def take_remark(event: Remark, session: AsyncSession) -> None:
        return None

    registry.add("plain", Aside, take)
    registry.add("picky", Aside, take, commit_every=3)
    registry.add("plain", Remark, take_remark)


async def hesitate(world: "World") -> None:
    if not world.fates.calm and world.random.random() < 0.4:
        raise ValueError("not in the mood")


class Stranger:
    """Puts on the broker what nobody here wrote."""

    def __init__(self, world: "World") -> None:
        self._world, self._number = world, 0
        self.asides: list[Message] = []
        """The last ones."""

    async def run(self) -> None:
        while not self._world.fates.calm:
            await asyncio.sleep(self._world.random.random() * 2)
            self._number += 1
            await self._world.post.put(self._odd(self._number))

    def _odd(self, number: int) -> list[Message]:
        aside = _message("sim.aside.made", number, b'{"place": "%d"}' % number)
        poison = [
            # The same id under another name; then one that was handled, but cannot be read any more.
            _message("sim.remark.made", number, b'{"place": "here"}'),
            _message("sim.aside.made", number, b"{}", schema_version=0),
            _message("sim.aside.made", -number, b'{"place": "there", "dreadful": true}'),
            _message("sim.aside.made", -number, b"{"),
            _message("sim.never.declared", -number, b"{}"),
            msgspec.structs.replace(_message("sim.aside.made", number, b"{}"), id="not an id"),
        ]
        self.asides = [*self.asides[-2:], aside]
        canary = [_message(CANARY, number, b"{}")] * (number % 3 == 0)
        return [aside, poison[number % 6], poison[(number * 5 + 1) % 6], *canary]


def _message(type: str, number: int, payload: bytes, **values: Any) -> Message:
    return Message(
        id=id_from_key("stranger", "aside", str(number)),
        type=type,
        topic="sim.booking.events",
        aggregate_type="aside",
        aggregate_id=f"{abs(number) % 3}",
        version=abs(number),
        occurred_at=BEGINNING,
        payload=payload,
        **values,
    )


class Visitor:
    """One process that does by hand, in any order, what else can be done. What it is for outlives its lives."""

    def __init__(self, world: "World", random: Random) -> None:
        self._world, self._random = world, random
        self.handed: list[str] = []
        """Ids of what the bus has taken."""
        self._rows = self._tries = 0
        self._registry = Registry()
        self._registry.add("desk", Made, self._take)

    @property
    def done(self) -> bool:
        return len(self.handed) >= (LETTERS if self._world.coverage is None else MANY_LETTERS)

    async def run(self, process: Process, store: Store) -> None:
        inbox = without_thread(Inbox(store, clock=process.clock, randomness=self._random, worker_name=process.name))
        bus = Bus(inbox, self._registry, options=_KEPT)
        scheduler = RetryScheduler(inbox, bus, _KEPT)
        acts: list[Callable[[], Awaitable[object]]] = [
            lambda: self._hand_over(bus),
            scheduler.run_once,
        ]
        odd: list[Callable[[], Awaitable[object]]] = [
            lambda: self._look(store, inbox),
            lambda: self._decide(store, inbox),
            lambda: self._meddle(process, inbox),
            lambda: self._meddle(process, inbox),
            lambda: self._consume_twice(process, inbox),
            lambda: self._hold(inbox),
            lambda: self._spoil(store),
            lambda: self._lend_a_hand(process, inbox),
        ]
        while True:
            calm = self._world.fates.calm
            # In the end all wait for what it has to hand over: there is nothing left to be seen while they do.
            await process.clock.sleep(self._random.random() * (_CALM_PACE if calm else _PACE))
            # Where every place is to be reached, each has its turn; else the bus has many, for few get through a storm.
            usual = acts if self._world.coverage is not None else acts * _OFTEN
            act = self._random.choice(acts if calm else [*usual, *odd])
            try:
                await act()
            except (PostroadError, SQLAlchemyError, TimeoutError):
                pass

    # -- the bus --------------------------------------------------------------------------------------------

    async def _hand_over(self, bus: Bus) -> None:
        """One after the other, each until the bus has it."""
        if not self.done:
            number = len(self.handed)
            letter = _letter(number)
            await bus.publish(letter)
            if len(self.handed) == number:
                self.handed.append(str(letter.id))

    async def _take(self, event: Made, session: AsyncSession, message: Message) -> None:
        async with failing(self._world, "desk handles"):
            await note(session, "desk", message)

    # -- the inbox by itself --------------------------------------------------------------------------------

    async def _consume_twice(self, process: Process, inbox: Inbox) -> None:
        """As two deliveries at once would."""
        self._tries += 1
        message = msgspec.structs.replace(_letter(0), id=id_from_key("hand", "made", str(self._tries // 3)))
        fails = self._random.random() < 0.3

        async def handle(message: Message, session: AsyncSession) -> None:
            await session.execute(text("SELECT 1"))
            if fails:
                raise ValueError("not in the mood")

        async def consume() -> None:
            await inbox.consume("hand", message, handle, _PATIENT)

        await asyncio.gather(*(process.spawn(consume()) for _ in range(2)), return_exceptions=True)

    async def _meddle(self, process: Process, inbox: Inbox) -> None:
        """Handles what a subscriber of the same group may be handling too."""

        async def handle(message: Message, session: AsyncSession) -> None:
            await hesitate(self._world)

        meddling = [
            process.spawn(inbox.consume(group, aside, handle, _KEPT))
            for group in ("plain", "picky")
            for aside in self._world.stranger.asides
        ]
        await asyncio.gather(*meddling, return_exceptions=True)

    async def _hold(self, inbox: Inbox) -> None:
        self._tries += 1
        message = msgspec.structs.replace(_letter(0), id=id_from_key("hold", "made", str(self._tries)))
        acquired = await inbox.try_acquire("hand", message, 2.0)
        if acquired.lease is not None:
            await inbox.renew(acquired.lease, 2.0)
            await inbox.release(acquired.lease)

    async def _lend_a_hand(self, process: Process, inbox: Inbox) -> None:
        """Takes some deliveries and hands them to a subscriber that does not receive by itself."""
        world = self._world
        line = world.post.line(process)
        options = SubscriberOptions(ack_deadline=2.4, lock_ttl=2.0, backoff=replace(CONSUMER, attempts=ATTEMPTS))
        subscriber = Subscriber(
            line, inbox, world.registry, Upcasters(), "plain",
            options=options, clock=process.clock, randomness=self._random,
        )  # fmt: skip
        receiver = await line.subscribe("sim.booking.events.plain", Flow())
        try:
            deliveries = await process.clock.wait_for(receiver.receive(), 1.0)
            await subscriber.handle(deliveries)
        finally:
            await receiver.aclose()

    # -- a person -------------------------------------------------------------------------------------------

    async def _look(self, store: Store, inbox: Inbox) -> None:
        await inbox.counts()
        for record in await inbox.list(limit=2):
            await inbox.find(record.group, record.event_id)
        await inbox.prune(WEEK + 1)
        await outbox_page(store, _OUTBOXES)

    async def _decide(self, store: Store, inbox: Inbox) -> None:
        for record in await inbox.stopped():
            if record.event_type == "sim.aside.made" or record.refused:
                decide = inbox.retry if self._random.random() < 0.5 else inbox.discard
                await decide(record.group, record.event_id)
                break

    async def _spoil(self, store: Store) -> None:
        """A row that cannot become a message, written past the outbox."""
        self._rows += 1
        key = f"spoilt/{self._rows % 2}"
        async with store.session() as session:
            await session.execute(
                text(
                    "INSERT INTO postroad_outbox (event_id, topic, event_type, aggregate_type, aggregate_id, version,"
                    " payload, attributes, occurred_at, ordering_key, shard) VALUES (:id, 'sim.booking.events',"
                    " 'sim.spoilt', 'spoilt', :name, :version, :payload, '{\"headers\": 7}', :at, :key, :shard)"
                ),
                {
                    "id": store.id_in(id_from_key("spoilt", "row", str(self._rows))),
                    "name": str(self._rows % 2),
                    "version": self._rows,
                    "payload": b"{}",
                    "at": store.time_in(BEGINNING),
                    "key": key,
                    "shard": shard_of(key),
                },
            )
            await session.commit()


def without_thread(holder: H) -> H:
    """Leases are not renewed while a handler runs: there is one thread here. More of them are lost, then."""
    holder._keeper._needed = False
    return holder


async def in_turns(subscriber: Subscriber, process: Process, stop: asyncio.Event, random: Random) -> None:
    """As the runner does with a group that people pause and let go on: what runs may finish, unless all is to stop."""
    while not stop.is_set():
        pause = asyncio.Event()
        running = process.spawn(subscriber.run(pause, stop))
        try:
            await process.clock.wait_for(stop.wait(), _TURN * random.random())
        except TimeoutError:
            pass
        pause.set()
        await running
        await process.clock.sleep(_PACE * random.random())


async def tidy(store: Store) -> None:
    """What is parked goes again; what cannot be read never will."""
    if not await parked_ids(store, _OUTBOXES):
        return
    page = await outbox_page(store, _OUTBOXES, state="FAILED")
    for parked in page:
        if parked.type == "sim.spoilt":
            await skip_event(store, _OUTBOXES, parked.id, actor="sim", reason="nobody wrote it")
    if again := [parked.id for parked in page if parked.type != "sim.spoilt"]:
        await retry_events(store, _OUTBOXES, again, actor="sim")


def _letter(number: int) -> Message:
    return Message(
        id=id_from_key("desk", "made", str(number)),
        type="sim.booking.made",
        topic="sim.booking.events",
        aggregate_type="desk",
        aggregate_id=str(number % 2),
        version=number + 1,
        occurred_at=BEGINNING,
        payload=msgspec.json.encode(Made("desk", f"letter {number}")),
    )
