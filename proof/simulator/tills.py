"""Tills whose money is moved by commands: who asks for them, who carries them out, and a read model of it all."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from sqlalchemy import BigInteger, Boolean, Column, MetaData, String, Table, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.schema import CreateTable

from postroad.codec.upcast import Upcasters
from postroad.commands import CommandBox, Commands, CommandWorker, Executor
from postroad.commands.submit import submit
from postroad.errors import CommandRefused, OperationRefused, PostroadError
from postroad.events import event
from postroad.eventstore import EventStore
from postroad.handlers import Registry
from postroad.message import Message, id_from_key
from postroad.outbox import Outbox
from postroad.projections import DELETE, Projection, Rebuild
from postroad.retry import Backoff
from postroad.stores.base import Store
from postroad.stores.tables import DEFAULT_OUTBOX
from proof.simulator.process import Process
from proof.simulator.visitors import without_thread
from proof.simulator.workload import failing

if TYPE_CHECKING:
    from proof.simulator.world import World

TILL = Table(
    "till",
    MetaData(),
    Column("till", String(20), primary_key=True),
    Column("balance", BigInteger),
    Column("moves", BigInteger),
    Column("version", BigInteger, nullable=False),
    Column("deleted", Boolean, nullable=False),
)
TABLES = (
    str(CreateTable(TILL)),
    "CREATE TABLE moved (command_id TEXT, events INTEGER)",
    "CREATE TABLE asked (number INTEGER PRIMARY KEY, kind TEXT)",
)
_MOVED = text("INSERT INTO moved VALUES (:id, :events)")
_ASKED = text("INSERT INTO asked VALUES (:number, :kind)")
_UNFINISHED = (
    "SELECT count(*) FROM postroad_command_box"
    " WHERE status IN ('PENDING', 'PROCESSING') OR (status = 'FAILED' AND next_retry_at IS NOT NULL)"
)
_IDS = ("left", "right")
_TICKETS = 5
_KINDS = ("both", "both", "north", "south", "submitted", "submitted", "by hand", "by hand")
"""Who asks for a command: both at once, one of them, either by writing it down; or events are appended without one."""
_REQUESTS = 4
"""That a caller makes before he takes a failure for an answer."""
_PATIENCE = 2.5
_BACKOFF = Backoff(attempts=4, base=0.3)
_PAGE = 3
KEPT = 7 * 86_400.0
"""Seconds for which the outbox keeps what was sent, where it will be compared with the events."""
_TOPIC: dict[str, Any] = {"topic": "sim.till.events", "aggregate": "till", "key": "till"}


@event("Sim.Till.Moved", **_TOPIC)
class Moved(msgspec.Struct, frozen=True):
    """A change upon what was there before."""

    till: str
    amount: int


@event("Sim.Till.Counted", **_TOPIC)
class Counted(msgspec.Struct, frozen=True):
    """All there is to know about the till."""

    till: str
    balance: int
    upon: int
    """The version that it was decided upon."""


@event("Sim.Till.Closed", **_TOPIC)
class Closed(msgspec.Struct, frozen=True):
    till: str


class Till(msgspec.Struct, frozen=True):
    balance: int = 0
    closed: bool = False

    def evolve(self, event: object) -> "Till":
        match event:
            case Moved(amount=amount) if not self.closed:
                return Till(self.balance + amount)
            case Counted(balance=balance):
                return Till(balance)
            case Closed():
                return Till(closed=True)
        return self


class Move(msgspec.Struct, frozen=True):
    till: str
    amount: int
    to: str = ""


class Close(msgspec.Struct, frozen=True):
    till: str


class Ticket(msgspec.Struct, frozen=True):
    number: int
    kind: str
    command: Move | Close
    id: UUID


class Tills:
    """What outlives the processes: the plan, who has come how far with it, and what the callers were told."""

    def __init__(self, world: "World", registry: Registry, *, close: bool) -> None:
        """Without `close`, no till is ever closed: a command of which nothing came would be run again by a repair."""
        self._world, self._plan, self._close = world, Random(f"{world.seed}/tills"), close
        self.tickets = [self._ticket(number) for number in range(_TICKETS)]
        self._at = {"north": 0, "south": 0}
        self._requests = {"north": 0, "south": 0}
        self.acknowledged: list[tuple[UUID, list[UUID]]] = []
        """Commands of which a caller was told that they are done, and their events."""
        self.refused: set[str] = set()
        """Events whose handler was refused its command."""
        self.rebuilt = False
        self.commands = self._commands()
        self.projection = self._projection(registry)

    def _ticket(self, number: int) -> Ticket:
        plan = self._plan
        here, there = plan.sample(_IDS, 2)
        closing = plan.random() < 0.2 and self._close
        command = Close(here) if closing else Move(here, plan.randint(-3, 6), plan.choice(("", there)))
        return Ticket(number, plan.choice(_KINDS), command, id_from_key("till", "ticket", f"{number}"))

    def _commands(self) -> Commands:
        commands = Commands()
        commands.declare("Command.Sim.Till.Move", aggregate="till", key="till")(Move)
        commands.declare("Command.Sim.Till.Close", aggregate="till", key="till")(Close)

        async def move(
            command: Move, state: Till, version: int, session: AsyncSession, message: Message
        ) -> list[object]:
            return await self._carry_out(moves(command, state, version), session, message)

        async def close(command: Close, version: int, session: AsyncSession, message: Message) -> list[object]:
            return await self._carry_out([Closed(command.till)] if version else [], session, message)

        commands.handles(Move, state=Till)(move)
        commands.handles(Close, state=None)(close)
        return commands

    async def _carry_out(self, events: list[object], session: AsyncSession, message: Message) -> list[object]:
        async with failing(self._world, "a command"):
            await session.execute(_MOVED, {"id": str(message.id), "events": len(events)})
        return events

    def _projection(self, registry: Registry) -> Projection:
        projection = Projection("till", TILL, group="view", deleted="deleted", registry=registry)

        @projection.on(Moved, delta=True)
        def moved(event: Moved, row: dict[str, Any]) -> dict[str, object]:
            return {"balance": (row.get("balance") or 0) + event.amount, "moves": (row.get("moves") or 0) + 1}

        @projection.on(Counted)
        def counted(event: Counted) -> dict[str, object]:
            return {"balance": event.balance, "moves": 0}

        @projection.on(Closed)
        def closed(event: Closed) -> object:
            return DELETE

        return projection

    @property
    def answered(self) -> bool:
        return all(at == len(self.tickets) for at in self._at.values())

    def unfinished(self, ask: Callable[[str], Sequence[Any]]) -> str:
        if not self.answered:
            return "a caller without an answer"
        if left := ask(_UNFINISHED)[0][0]:
            return f"{left} commands without an end"
        return ""

    # -- those who ask ------------------------------------------------------------------------------------

    async def ask(self, name: str, desk: "Desk", stop: asyncio.Event) -> None:
        """One ticket after the other, each until there is an answer; the next life goes on from here."""
        random = desk.random
        while self._at[name] < len(self.tickets) and not stop.is_set():
            ticket = self.tickets[self._at[name]]
            if ticket.kind in (name, "both", "submitted", "by hand") and not await self._request(ticket, name, desk):
                await desk.clock.sleep(random.random() * 0.3)
                continue
            self._at[name] += 1
            self._requests[name] = 0
            await desk.clock.sleep(random.random() * 0.2)

    async def _request(self, ticket: Ticket, name: str, desk: "Desk") -> bool:
        """Whether that is an answer."""
        self._requests[name] += 1
        try:
            if ticket.kind == "submitted":
                await self._write_down(ticket, desk)
            elif ticket.kind == "by hand":
                await self._append(ticket, desk)
            else:
                events = await desk.execute(ticket.command, ticket.id)
                self.acknowledged.append((ticket.id, events))
        except (IntegrityError, CommandRefused):
            pass  # it was committed, although we were told otherwise; or there is no sense in asking again
        except (PostroadError, SQLAlchemyError, TimeoutError):
            return False
        except (ConnectionError, ValueError):
            return self._requests[name] > _REQUESTS  # its handler failed
        return True

    async def _write_down(self, ticket: Ticket, desk: "Desk") -> None:
        async with desk.store.session() as session, session.begin():
            await session.execute(_ASKED, {"number": ticket.number, "kind": ticket.kind})
            message = desk.envelope(ticket.command, ticket.id)
            await submit(session, desk.store, message, desk.worker.wakeup.set)

    async def _append(self, ticket: Ticket, desk: "Desk") -> None:
        """Upon what was read before the transaction began: somebody may have been quicker."""
        till = ticket.command.till
        state, version = await desk.events.load(Till, "till", till)
        await desk.clock.sleep(desk.random.random() * 0.1)
        async with desk.store.session() as session, session.begin():
            await session.execute(_ASKED, {"number": ticket.number, "kind": ticket.kind})
            await desk.events.append(session, [Counted(till, state.balance + 1, version)], expected=version)

    # -- the one who rebuilds -----------------------------------------------------------------------------

    async def rebuild(self, desk: "Desk") -> None:
        while not self.rebuilt:
            await desk.clock.sleep(desk.random.random() * 3)
            try:
                await Rebuild(desk, self.projection, History(desk)).run()  # type: ignore[arg-type]
            except OperationRefused as error:
                if "being rebuilt already" not in str(error):
                    self._world.fallen.append(f"refused: {error}")
                    self.rebuilt = True
            except (PostroadError, SQLAlchemyError):
                pass
            else:
                self.rebuilt = True


def moves(command: Move, state: Till, version: int) -> list[object]:
    balance = state.balance + command.amount
    if balance < 0:
        raise CommandRefused(f"there is not so much in {command.till}")
    if command.to:
        return [Moved(command.till, command.amount), Moved(command.to, -command.amount)]
    if state.closed or balance % 3 == 0:
        return [Counted(command.till, balance, version)]
    return [Moved(command.till, command.amount - 1), Moved(command.till, 1)]


class Desk:
    """What one process has of `Postroad`."""

    def __init__(self, world: "World", tills: Tills, process: Process, store: Store, outbox: Outbox) -> None:
        self.store, self.clock, self.registry, self.upcasters = store, process.clock, world.registry, Upcasters()
        self.outbox, self.outboxes, self.outbox_retention = outbox, (DEFAULT_OUTBOX,), KEPT
        self.commands, self.projections = tills.commands, {"till": tills.projection}
        self.groups, self.broker = world.registry.groups, world.post.line(process)
        self._tills, self.random = tills, Random(f"{world.seed}/{process.name}/desk")
        self.events = EventStore(store, outbox, self.upcasters)
        box = CommandBox(store, lease=world.lease, randomness=self.random)
        executor = Executor(box, self.events, tills.commands, clock=self.clock, randomness=self.random, road=self)
        self._executor = without_thread(executor)
        self.worker = CommandWorker(executor, clock=self.clock, backoff=_BACKOFF)

    def envelope(self, command: object, id: UUID) -> Message:
        return self._executor.envelope(command, command_id=id, correlation_id=None, tenant=None, user_id=None)

    async def execute(self, command: object, id: UUID) -> list[UUID]:
        """Whoever has to wait too long leaves."""
        asked = self._executor.execute(self.envelope(command, id))
        return [one.id for one in await self.clock.wait_for(asked, _PATIENCE)]

    async def join(self, session: AsyncSession, cause: Message) -> None:
        """A command in the transaction of a handler: the first event of each account brings it about."""
        try:
            await self._executor.join(session, self.envelope(Move("left", 1), joined(cause.ordering_key)))
        except CommandRefused:
            self._tills.refused.add(str(cause.id))
            raise


def joined(account: str) -> UUID:
    return id_from_key("till", "joined", account)


class History:
    """The event store as it was when the reading began; slowly, so that more happens meanwhile."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def size(self) -> int:
        return 0

    async def read(self) -> AsyncGenerator[Message, None]:
        for message in [message async for message in self._past()]:
            await self._desk.clock.sleep(self._desk.random.random() * 0.4)
            yield message

    async def _past(self) -> AsyncGenerator[Message, None]:
        after = 0
        while page := await self._desk.events.all(after=after, limit=_PAGE):
            for one in page:
                yield one.message
            after = page[-1].position or 0
