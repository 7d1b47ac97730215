"""Append with the version that was expected; read one history, one flow, or all there is."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from postroad.codec.upcast import Upcasters, choose
from postroad.errors import ConfigurationError, NoTransaction, StoreError, UnknownEventType, VersionConflict
from postroad.events import aggregate_id_of, declared, event_type_of
from postroad.eventstore.record import DomainEvent, columns_of, message_of
from postroad.message import Message
from postroad.outbox import Outbox
from postroad.stores.base import Result, Store

Target = AsyncSession | AsyncConnection
Place = tuple[str, str]
"""An aggregate's type and id."""
_NUMBERED_AT_ONCE: Final = 1_000
_ALL: Final = 2**62


class Evolving(Protocol):
    """What an aggregate is made of: it begins without arguments, and each event makes the next of it."""

    def evolve(self, event: Any, /) -> Any: ...


S = TypeVar("S", bound=Evolving)


class EventStore:
    def __init__(self, store: Store, outbox: Outbox, upcasters: Upcasters) -> None:
        self._store, self._outbox, self._upcasters = store, outbox, upcasters

    # -- writing ---------------------------------------------------------------------------------------

    async def append(
        self, target: Target, events: Sequence[object], *, expected: int | Mapping[Place, int] | None = None
    ) -> Sequence[DomainEvent]:
        """Write events, each with its outbox row of the same id and version, in the target's open transaction.

        `expected` is the version up to which their aggregate was read (or for several aggregates, by type and id):
        raises VersionConflict if it has gone on since. Then roll back, read again and repeat. Without it they follow
        whatever is there now.
        """
        if not target.in_transaction():
            raise NoTransaction(
                "No transaction is open, so the events could not commit together with your rows. "
                "Write: async with session.begin(): await road.events.append(session, events)"
            )
        known = await self._expected(target, events, expected) if isinstance(expected, int) else expected or {}
        added = await self._add(target, events, known)
        # In the order in which they happened, which is kept.
        return [await self._append(target, event, message) for event, message in zip(events, added, strict=True)]

    async def _expected(self, target: Target, events: Sequence[object], expected: int) -> Mapping[Place, int]:
        places = {place_of(event) for event in events}
        if len(places) > 1:
            raise ConfigurationError(
                "`expected` is one aggregate's version, but the events are of several. Append each aggregate's apart."
            )
        for place in places:
            if expected > (now := await self.version(*place, target)):
                # Its events would leave a gap behind them.
                raise ConfigurationError(
                    f"`expected` is {expected}, but {place[0]} {place[1]!r} is at version {now}. "
                    "Give the version up to which you have read it."
                )
        return dict.fromkeys(places, expected)

    async def _add(self, target: Target, events: Sequence[object], expected: Mapping[Place, int]) -> list[Message]:
        """Their outbox rows, and with them the locks on the aggregates' counters."""
        versions = dict(expected)
        added: dict[int, Message] = {}
        in_order = list(enumerate(events))
        if not isinstance(target, AsyncSession):
            # Two transactions that lock the same counters in the same order cannot deadlock. A session's flush sorts.
            in_order.sort(key=lambda one: place_of(one[1]))
        for place, event in in_order:
            aggregate = place_of(event)
            if aggregate not in versions:
                versions[aggregate] = await self.version(*aggregate, target)
            versions[aggregate] += 1
            added[place] = (await self._outbox.add(target, event, version=versions[aggregate])).message
        if isinstance(target, AsyncSession):
            await target.flush()
        return [added[place] for place in range(len(events))]

    async def _append(self, target: Target, event: object, message: Message) -> DomainEvent:
        row = self._outbox.row(message, self._outbox.table_for(event_type_of(event)))
        columns = columns_of(message, row["attributes"])
        with self._store.translating():
            new = await insert_new(self._store, await _connection(target), "event_append", **columns)
        if not new:
            raise VersionConflict(message.aggregate_type, message.aggregate_id, message.version)
        return DomainEvent(message, event)

    # -- reading ---------------------------------------------------------------------------------------

    async def stream(
        self, aggregate: str, id: str, *, after: int = 0, target: Target | None = None
    ) -> Sequence[DomainEvent]:
        """One aggregate's events in order; through `target`, as its transaction sees them."""
        result = await self._ask(target, "events_stream", aggregate_type=aggregate, aggregate_id=id, after=after)
        return self._read(result)

    async def load(self, state: type[S], aggregate: str, id: str, *, target: Target | None = None) -> tuple[S, int]:
        """What the events have made of the aggregate, and its version: 0 if nothing has happened yet."""
        now, version = state(), 0
        for one in await self.stream(aggregate, id, target=target):
            changed = now.evolve(one.event)
            now, version = now if changed is None else changed, one.version
        return now, version

    async def version(self, aggregate: str, id: str, target: Target | None = None) -> int:
        result = await self._ask(target, "events_version", aggregate_type=aggregate, aggregate_id=id)
        return int(result.rows[0].version)

    async def correlated(self, correlation_id: str) -> Sequence[DomainEvent]:
        """Everything that came of one beginning, causes first."""
        return self._read(await self._store.read("events_correlated", correlation_id=correlation_id, limit=_ALL))

    async def caused_by(self, id: object, target: Target | None = None) -> Sequence[DomainEvent]:
        """What a command or an event has brought about directly."""
        return self._read(await self._ask(target, "events_caused", causation_id=str(id)))

    async def all(self, *, after: int = 0, limit: int = 500) -> Sequence[DomainEvent]:
        """Those behind position `after`, in an order in which nothing ever appears before what was read already."""
        await self._number()
        return self._read(await self._store.read("events_all", after=after, limit=limit))

    async def _number(self) -> None:
        """Give a position to whatever is committed by now.

        A number drawn when the event is written would be visible too late, if its transaction is slow, and readers
        would have gone past it. So it is given after the commit, by whoever reads first: nobody has to wait for a
        transaction that is still open, and what it writes comes behind.
        """
        beaten: StoreError | None = None
        before = -1
        while rows := (await self._store.read("events_unnumbered", limit=_NUMBERED_AT_ONCE)).rows:
            last = int(rows[0].last)
            if beaten and last == before:
                raise beaten  # by nobody
            beaten, before = None, last
            try:
                await self._store.change("events_number", seqs=[row.seq for row in rows], last=last)
            except StoreError as error:
                beaten = error  # most likely somebody numbers too, and was quicker

    async def _ask(self, target: Target | None, statement: str, **values: Any) -> Result:
        if target is None:
            return await self._store.read(statement, **values)
        with self._store.translating():
            return await self._store.execute(await _connection(target), statement, **values)

    def _read(self, result: Result) -> Sequence[DomainEvent]:
        return [self._domain_event(row) for row in result.rows]

    def _domain_event(self, row: Any) -> DomainEvent:
        message = message_of(row, self._store)
        known = declared(message.type)
        if not known:
            raise UnknownEventType(f"{message.type} is stored, but no @event declares it here. Import its class.")
        event = self._upcasters.read(message, choose(message.schema_version, known))
        return DomainEvent(message, event, row.position)


async def insert_new(store: Store, connection: AsyncConnection, statement: str, **values: Any) -> int:
    """How many rows were new. One that was not is left out by the statement, or said by an error."""
    try:
        return (await store.execute(connection, statement, **values)).rowcount
    except IntegrityError as error:
        if store.code_of(error) not in store.duplicate_codes:
            raise
        return 0


async def _connection(target: Target) -> AsyncConnection:
    return await target.connection() if isinstance(target, AsyncSession) else target


def place_of(event: object) -> Place:
    """The aggregate to whose history it belongs."""
    kind = event_type_of(event)
    id = aggregate_id_of(event, kind)
    if id is None:
        raise ConfigurationError(
            f"{kind.name} has no key, so it belongs to no aggregate's history. Give its @event a key."
        )
    return kind.aggregate, id
