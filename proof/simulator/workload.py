"""What is simulated: bookings with an event each, and three groups that keep books of what they saw."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.errors import BusinessError, StoreError
from postroad.events import event
from postroad.handlers import Registry
from postroad.message import Message
from postroad.outbox import Outbox
from proof.simulator.faults import HANDLER
from proof.simulator.process import Process, current

if TYPE_CHECKING:
    from proof.simulator.world import World

TABLES = (
    "CREATE TABLE booking (event_id TEXT PRIMARY KEY, name TEXT UNIQUE, account TEXT)",
    "CREATE TABLE effect (n INTEGER PRIMARY KEY AUTOINCREMENT, consumer_group TEXT, event_id TEXT, account TEXT,"
    " version INTEGER)",
)
_BOOK = text("INSERT INTO booking VALUES (:id, :name, :account)")
_NOTE = text("INSERT INTO effect (consumer_group, event_id, account, version) VALUES (:group, :id, :account, :v)")
ACCOUNTS = ("ada", "bob", "cy")
FEW_ACCOUNTS = ("ada", "ada", "ada", "bob")
"""Most events are of one key, and some beside it."""
TRANSACTIONS, FEW_TRANSACTIONS, MANY_TRANSACTIONS, IN_A_ROW = 3, 2, 6, 14
TRANSACTIONS_ON_PUBSUB = 12
"""So that each key has several events on their way when a stream breaks."""
_PAUSE, _SHORT_PAUSE = 0.4, 0.1


@event("sim.booking.made", topic="sim.booking.events", aggregate="account", key="account")
class Made(msgspec.Struct, frozen=True):
    account: str
    name: str
    unwelcome: bool = False
    """The group `picky` will never take it."""
    bulk: str = ""


@event("sim.note.taken", topic="sim.note.events", aggregate="note", key="account")
class Noted(msgspec.Struct, frozen=True):
    """What the group `plain` writes in answer, in the transaction of its handler."""

    account: str
    name: str


class Writer:
    """Writes until all is written. Whatever it was told about a commit, it tries until it knows."""

    def __init__(self, world: "World", random: Random) -> None:
        self._world, self._random = world, random
        few = FEW_TRANSACTIONS if world.tills else TRANSACTIONS
        few = TRANSACTIONS_ON_PUBSUB if world.broker == "pubsub" else few
        self._transactions = few if world.coverage is None else MANY_TRANSACTIONS
        self._accounts: Sequence[str] = ACCOUNTS
        self._pause = _PAUSE
        if world.in_a_row:
            self._transactions, self._accounts, self._pause = IN_A_ROW, FEW_ACCOUNTS, _SHORT_PAUSE
        self._done = 0
        """Transactions that are over, one way or the other; the next life goes on from here."""

    @property
    def begun(self) -> bool:
        return self._done > 0

    @property
    def finished(self) -> bool:
        return self._done >= self._transactions

    async def run(self, process: Process, outbox: Outbox) -> None:
        while not self.finished:
            try:
                await self._transact(outbox, self._done)
            except IntegrityError:
                pass  # it was committed, although we were told otherwise
            except (StoreError, SQLAlchemyError):
                await process.clock.sleep(self._random.random() * 0.3)
                continue
            self._done += 1
            await process.clock.sleep(self._random.random() * self._pause)

    async def _transact(self, outbox: Outbox, number: int) -> None:
        # The same number must mean the same transaction in every life of the writer.
        plan = Random(f"{self._world.seed}/{number}")
        accounts = [plan.choice(self._accounts) for _ in range(plan.randint(1, 2))]
        session = self._world.writer_store.session()
        async with session:
            await session.begin()
            for n, account in enumerate(accounts):
                await self._book(session, outbox, account, f"{number}.{n}", unwelcome=plan.random() < 0.1)
            if plan.random() < 0.2:
                async with session.begin_nested() as savepoint:
                    await self._book(session, outbox, plan.choice(self._accounts), f"{number}.never")
                    await session.flush()
                    await savepoint.rollback()
            if plan.random() < 0.15:
                await session.flush()
                await session.rollback()
                return
            await session.commit()

    async def _book(
        self, session: AsyncSession, outbox: Outbox, account: str, name: str, *, unwelcome: bool = False
    ) -> None:
        # Now and then more than comes with its row.
        bulk = "x" * 70_000 if self._world.busy and name.endswith(".1") else ""
        added = outbox.add(session, Made(account, name, unwelcome, bulk), idempotency_key=name)
        await session.execute(
            _BOOK,
            {"id": str(added.id), "name": name, "account": account},
        )


async def note(session: AsyncSession, group: str, message: Message) -> None:
    await session.execute(
        _NOTE,
        {"group": group, "id": str(message.id), "account": message.ordering_key, "v": message.version},
    )


@asynccontextmanager
async def failing(world: "World", what: str) -> AsyncIterator[None]:
    """Around the work of a handler: it may fail before or after, be slow, or be killed."""
    process = current.get()
    assert process is not None
    fault = world.fates.draw(HANDLER)
    with world.reaching(process, what, fault):
        if fault == "killed":
            process.die()
        if fault == "slow":
            await asyncio.sleep(4)  # longer than any lease
        if fault == "fails before":
            raise ConnectionError("the weather")
        yield
        if fault == "fails after":
            raise ValueError("second thoughts")


def handlers(world: "World") -> Registry:
    registry = Registry()

    async def plain(event: Made, session: AsyncSession, message: Message) -> None:
        async with failing(world, "plain handles"):
            await note(session, "plain", message)
            process = current.get()
            assert process is not None
            world.outboxes[process].add(session, Noted(event.account, event.name))

    async def picky(event: Made, session: AsyncSession, message: Message) -> None:
        async with failing(world, "picky handles"):
            await note(session, "picky", message)
            await world.join_a_command(session, message)
            if event.unwelcome:
                raise BusinessError("no, thank you")

    async def read_notes(events: list[Noted], session: AsyncSession, messages: list[Message]) -> None:
        for message in messages:
            await note(session, "reader", message)

    registry.add("plain", Made, plain)
    registry.add("picky", Made, picky, commit_every=3)
    registry.add("reader", Noted, read_notes, batch=4)
    return registry
