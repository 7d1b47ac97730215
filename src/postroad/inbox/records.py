"""What people and loops ask of the records, and who handles which types."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from postroad.errors import ConfigurationError
from postroad.inbox.record import Record, Status, record_of
from postroad.retry import describe
from postroad.stores.base import Store

WEEK: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Counts:
    """The unsettled and failed records of one group."""

    processing: int = 0
    waiting: int = 0
    """Failed, and to be tried again."""
    refused: int = 0
    """Answered with a "no" by their handler, or discarded by a person."""
    failed: int = 0
    """For good."""
    highest_retry_count: int = 0


class Records:
    """`horizon` is how long after its publication a broker may still deliver a message again."""

    def __init__(self, store: Store, *, horizon: float = WEEK) -> None:
        self.store, self.horizon = store, horizon

    async def find(self, group: str, event_id: UUID) -> Record | None:
        result = await self.store.read("inbox_find", group=group, event_id=event_id)
        return record_of(result.rows[0], self.store) if result.rows else None

    async def list(
        self,
        group: str | None = None,
        status: Status | None = None,
        limit: int = 100,
        after: tuple[str, UUID] | None = None,
    ) -> Sequence[Record]:
        """In the order of (group, event id); `after` is the last one of the previous page."""
        after_group, after_id = after or ("", UUID(int=0))
        result = await self.store.read(
            "inbox_list",
            group=group or "",
            status=-1 if status is None else int(status),
            after_group=after_group,
            after_id=after_id,
            limit=limit,
        )
        return [record_of(row, self.store) for row in result.rows]

    async def due(self, group: str, limit: int = 100) -> Sequence[Record]:
        """What the RetryScheduler has to run: due, and delivered by nobody else."""
        result = await self.store.read("inbox_due", group=group, limit=limit)
        return [record_of(row, self.store) for row in result.rows]

    async def stopped(self, limit: int = 100) -> Sequence[Record]:
        """Those that will not be tried again by themselves, group by group."""
        result = await self.store.read("inbox_stopped", limit=limit)
        return [record_of(row, self.store) for row in result.rows]

    async def failures(self, *, refused: bool, limit: int = 100) -> Sequence[Record]:
        """The newest of those that failed, also if they will be tried again; or of those that were refused."""
        result = await self.store.read("inbox_failures", refused=int(refused), limit=limit)
        return [record_of(row, self.store) for row in result.rows]

    async def attempts(self, of: Sequence[tuple[str, UUID]]) -> Mapping[tuple[str, UUID], int]:
        """How often each of these (group, event id) was tried before it stopped; the others are left out."""
        groups, ids = [group for group, _ in of], [id for _, id in of]
        rows = (await self.store.read("inbox_attempts", groups=groups, ids=ids)).rows if of else ()
        return {(row.consumer_group, self.store.id_out(row.event_id)): row.retry_count for row in rows}

    async def counts(self) -> Mapping[str, Counts]:
        """Per group; groups without a failed or unfinished record are left out."""
        rows = (await self.store.read("inbox_counts")).rows
        found: dict[str, Counts] = {}
        for row in rows:
            old = found.get(row.consumer_group, Counts())
            highest = max(old.highest_retry_count, row.highest_retry_count)
            found[row.consumer_group] = replace(old, highest_retry_count=highest, **{row.state: row.records})
        return found

    async def retry(self, group: str, event_id: UUID) -> bool:
        """Makes a failed record due now, with all its attempts before it. False if there is none."""
        return await self._change("inbox_retry", group, event_id)

    async def discard(self, group: str, event_id: UUID) -> bool:
        """Settles a failed record with a "no": it is kept, never tried again, and holds nobody up."""
        return await self._change("inbox_discard", group, event_id)

    async def give_up(self, record: Record, error: Exception) -> bool:
        """Fails a record for good without an attempt, unless somebody has taken it since it was read."""
        given_up = await self.store.change(
            "inbox_give_up",
            group=record.group,
            event_id=record.event_id,
            epoch=record.epoch,
            error_msg=describe(error),
        )
        return bool(given_up.rowcount)

    async def prune(self, older_than: float, limit: int = 1_000) -> int:
        """Removes records that succeeded more than `older_than` seconds ago; how many. No others, ever."""
        if older_than < self.horizon:
            raise ConfigurationError(
                f"older_than is {older_than:g} s, but an event may return for {self.horizon:g} s. "
                "Keep the records at least that long: without its record, an event would be handled twice."
            )
        result = await self.store.change("inbox_prune", older_than=older_than, limit=limit)
        return result.rowcount

    async def declare(self, group: str, types: Iterable[str]) -> None:
        """Notes which event types the group handles, so that a handler deleted later is missed."""
        async with self.store.transaction() as connection:
            for event_type in sorted(types):
                await self.store.execute(connection, "handler_declare", group=group, event_type=event_type)

    async def known_types(self, group: str) -> frozenset[str]:
        """Every type the group has ever handled."""
        result = await self.store.read("handler_known", group=group)
        return frozenset(row.event_type for row in result.rows)

    async def _change(self, statement: str, group: str, event_id: UUID) -> bool:
        result = await self.store.change(statement, group=group, event_id=event_id)
        return result.rowcount == 1
