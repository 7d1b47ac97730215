"""A second table from the events themselves, beside the one that serves; then it takes its place."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from sqlalchemy import Table
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.errors import OperationRefused, PoisonError, PostroadError, SchemaMissing, StoreBusy
from postroad.message import Message
from postroad.projections import shadow, state
from postroad.projections.differences import Differences, compare
from postroad.projections.fold import Gaps, change

if TYPE_CHECKING:
    from postroad.app import Postroad
    from postroad.projections.projection import Projection
    from postroad.projections.sources import Source

_BATCH: Final = 1_000
_LONGEST_STEP: Final = 5.0
"""Seconds after which a step ends though it is not full: the lease is renewed with each."""
_TRIES: Final = 6
_PAUSE: Final = 0.5
_MOST_GAPS: Final = 100_000

Tell = Callable[[int, int], None]
"""Is told how many events have been read, and of how many; 0 if nobody knows."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    projection: str
    generation: int
    events: int
    """Read from the source, and noted meanwhile."""
    differences: Differences
    """What the rebuild changes for the readers."""
    swapped: bool


class Rebuild:
    """Only the projection's own functions run. They compute rows, and nothing else: no effect is repeated.

    While it runs, those who keep the live table note each event they apply, and the rebuild applies it after the
    source. At the end it keeps them out for a moment, applies the rest, and swaps. If it dies, the table that serves
    is as it was, and the next rebuild begins anew.
    """

    def __init__(
        self, road: "Postroad", projection: "Projection", source: "Source", *, tell: Tell | None = None, actor: str = ""
    ) -> None:
        self._road, self._store, self._projection, self._source = road, road.store, projection, source
        self._tell, self._actor = tell or (lambda done, total: None), actor
        self._token: UUID = uuid4()
        self._gaps: Gaps = {}
        self._done = self._total = self._generation = 0

    async def run(self, *, accept_loss: bool = False) -> Rebuilt:
        """Raises OperationRefused, and leaves all as it was, if the projection is being rebuilt, an event cannot be
        applied, or (unless `accept_loss`) the projection has rows or versions that the source does not tell of."""
        return await self._build(lambda table: self._end(table, accept_loss))

    async def verify(self) -> Differences:
        """The projection against what a rebuild would make of it. Nothing is replaced."""
        return (await self._build(self._look)).differences

    async def _build(self, finish: Callable[[Table], Awaitable[Rebuilt]]) -> Rebuilt:
        await state.begin(self._store, self._projection.name, self._token)
        try:
            table = await self._create()
            self._total = await self._source.size()
            await self._fill(table)
            await self._fill_gaps(table)
            await self._catch_up(table)
            return await self._patiently(finish, table)
        except BaseException as error:
            if not await self._give_up() and isinstance(error, SchemaMissing):
                # It is the shadow that is missing: a successor has taken it away.
                raise state.lost(self._projection.name) from error
            raise

    async def _create(self) -> Table:
        async with self._alone() as (_, work):
            return await shadow.create(work, self._projection.table, self._generation)

    # -- filling -------------------------------------------------------------------------------------

    async def _fill(self, table: Table) -> None:
        async with aclosing(self._steps()) as steps:
            async for messages in steps:
                async with self._store.transaction() as connection:
                    await self._apply(table, connection, messages)
                    await self._advance(connection, len(messages))

    async def _fill_gaps(self, table: Table) -> None:
        """Once more, as long as it helps: an aggregate's events may be in several topics or outboxes, of which each is
        in order, but one is read after the other."""
        before = len(self._gaps) + 1
        while 0 < len(self._gaps) < before:
            before = len(self._gaps)
            await self._fill(table)

    async def _steps(self) -> AsyncGenerator[list[Message], None]:
        step: list[Message] = []
        clock = self._road.clock
        begun = clock.monotonic()
        async with aclosing(self._source.read()) as events:
            async for message in events:
                if message is not None:
                    step.append(message)
                if len(step) >= _BATCH or clock.monotonic() - begun > _LONGEST_STEP:
                    yield step
                    step, begun = [], clock.monotonic()
        yield step

    async def _catch_up(self, table: Table) -> None:
        while await self._journal_step(table):
            pass

    async def _journal_step(self, table: Table) -> bool:
        """Whether there may be more."""
        async with self._store.transaction() as connection:
            noted = await state.noted(self._store, connection, self._projection.name, _BATCH)
            await self._apply(table, connection, noted)
            await self._advance(connection, len(noted))
        return len(noted) == _BATCH

    async def _apply(self, table: Table, connection: AsyncConnection, messages: Sequence[Message]) -> None:
        pairs = [(event, message) for message in messages if (event := self._event(message)) is not None]
        try:
            await change(self._projection, table, self._store, connection, pairs, self._gaps)
        except SQLAlchemyError:
            raise
        except Exception as error:
            raise OperationRefused(
                f"Projection {self._projection.name} cannot be rebuilt: {type(error).__name__}: {error} "
                "Mend the cause and begin again; the table is as it was."
            ) from error
        if len(self._gaps) > _MOST_GAPS:
            raise self._full_of_gaps()

    def _event(self, message: Message) -> object | None:
        """None for what is not the projection's."""
        handler = self._road.registry.find(self._projection.group, message)
        if handler is None or handler.shares is not self._projection:
            return None
        try:
            return self._road.upcasters.read(message, handler.event_type)
        except PoisonError as error:
            raise OperationRefused(
                f"Projection {self._projection.name} cannot be rebuilt: {message.type} {message.id} cannot be read "
                f"({error}). Register what can read it; the table is as it was."
            ) from error

    async def _advance(self, connection: AsyncConnection, count: int) -> None:
        self._done += count
        name, total = self._projection.name, max(self._total, self._done)
        await state.advance(self._store, connection, name, self._token, self._done, total)
        self._tell(self._done, total)

    # -- ending --------------------------------------------------------------------------------------

    async def _patiently(self, finish: Callable[[Table], Awaitable[Rebuilt]], table: Table) -> Rebuilt:
        for left in reversed(range(_TRIES)):
            try:
                return await finish(table)
            except StoreBusy:
                # Somebody reads in a long transaction. Others must not wait behind us: let them pass, ask again.
                if not left:
                    raise
            await self._road.clock.sleep(_PAUSE)
            await self._catch_up(table)
        raise AssertionError("the last try returns or raises")

    async def _look(self, table: Table) -> Rebuilt:
        async with self._alone() as (guard, work):
            differences = await self._rest(table, work)
            await self._close(guard, "")
        await self._clean("shadow")
        return self._rebuilt(differences, swapped=False)

    async def _end(self, table: Table, accept_loss: bool) -> Rebuilt:
        async with self._alone() as (guard, work):
            differences = await self._rest(table, work)
            if differences.lost and not accept_loss:
                raise self._would_lose(differences)
            await shadow.keep_tombstones(self._projection, work, table)
            await shadow.swap(self._store, work, self._projection.table)
            await self._close(guard, f"{self._done} events")
        await self._clean("old")
        return self._rebuilt(differences, swapped=True)

    async def _rest(self, table: Table, work: AsyncConnection) -> Differences:
        """What was noted last; nobody notes any more until the transaction ends."""
        while noted := await state.noted(self._store, work, self._projection.name, _BATCH):
            await self._apply(table, work, noted)
            self._done += len(noted)
        if self._gaps:
            raise self._full_of_gaps()
        return await compare(self._projection, work, table)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[tuple[AsyncConnection, AsyncConnection]]:
        async with state.alone(self._store, self._projection.name, self._token) as (guard, work, generation):
            self._generation = generation
            yield guard, work

    async def _close(self, guard: AsyncConnection, told: str) -> None:
        name = self._projection.name
        await self._store.execute(guard, "projection_end", name=name, token=self._token)
        if told:
            await self._store.execute(
                guard,
                "audit_add",
                now=self._store.clock.now(),
                actor=self._actor[:255],
                action="projection.rebuild",
                subject=name,
                detail=f"generation {self._generation}, {told}",
            )

    async def _clean(self, what: str) -> None:
        """Of no use any more; if we die before, or cannot, the next rebuild does it."""
        try:
            async with self._store.transaction() as connection:
                await shadow.drop(connection, self._projection.table, what)
        except PostroadError:
            pass

    async def _give_up(self) -> bool:
        """False: it was not ours any more, or could not be done; then the lease ends by itself."""
        try:
            async with self._alone() as (guard, work):
                await shadow.drop(work, self._projection.table, "shadow")
                await self._store.execute(work, "journal_clear", name=self._projection.name)
                await self._close(guard, "")
        except PostroadError:
            return False
        return True

    def _rebuilt(self, differences: Differences, *, swapped: bool) -> Rebuilt:
        return Rebuilt(self._projection.name, self._generation, self._done, differences, swapped)

    def _full_of_gaps(self) -> OperationRefused:
        first = next(iter(self._gaps.values()))
        return OperationRefused(
            f"Projection {self._projection.name} cannot be rebuilt from this source: {len(self._gaps)} of its rows "
            f"lack an event ({first}) The table is as it was."
        )

    def _would_lose(self, differences: Differences) -> OperationRefused:
        keys = [*differences.keys.get("extra", ()), *differences.keys.get("ahead", ())]
        return OperationRefused(
            f"The source does not tell of all that projection {self._projection.name} has: {differences.extra} rows "
            f"are not in it and {differences.ahead} are older in it (first: {keys[0]}). Nothing was replaced. "
            "Use a source that goes back further, or accept the loss."
        )
