"""Who may handle an event: claims for the happy path, leases for the rest, the template around them."""

import asyncio
import os
import random
import socket
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.clock import Clock
from postroad.errors import ConsumeConflict, ConsumeFailed, LeaseLost, StoreError
from postroad.inbox.keeper import LeaseKeeper, renew
from postroad.inbox.record import (
    Acquired,
    AcquireState,
    ConsumeOptions,
    ConsumeResult,
    Lease,
    Record,
    Status,
    columns_of,
    judge,
    pack,
    record_of,
    row_of,
)
from postroad.inbox.records import WEEK, Records
from postroad.inbox.transaction import handling
from postroad.inbox.work import MessageHandler, Work, work_of
from postroad.message import Message
from postroad.naming import check_group
from postroad.retry import Ack, Decision, Retry, decide, describe
from postroad.stores.base import Store

_POLL: Final = 0.1
_OURS: Final = (AcquireState.ACQUIRED, AcquireState.RETRYABLE_FAILED)


class Inbox(Records):
    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        worker_name: str = "",
        horizon: float = WEEK,
    ) -> None:
        super().__init__(store, horizon=horizon)
        self.clock = clock or store.clock
        # Two inboxes of one process are two holders.
        holder = f"{(randomness or random).getrandbits(32):08x}"
        self.worker_name = (worker_name or f"{socket.gethostname()}:{os.getpid()}:{holder}")[:255]
        self._keeper = LeaseKeeper(store)

    async def aclose(self) -> None:
        """Ends the renewal of leases. The store stays open: it is the caller's."""
        await self._keeper.aclose()

    # -- the happy path: record and effect in one transaction ------------------------------------------

    async def claim(self, connection: AsyncConnection, group: str, messages: Sequence[Message]) -> bool:
        """Marks the messages as succeeded in the handler's own transaction. On False, roll it back.

        False: one of them is known already, or must wait for an earlier event of its key.
        """
        # Sorted, because two workers that insert the same ids in different order would deadlock.
        rows = sorted((row_of(message) for message in messages), key=lambda row: row.event_id)
        encoded = msgspec.json.encode(rows).decode()
        with self.store.translating():
            return await self._insert(connection, "inbox_claim", group=group, messages=encoded) == len(rows)

    async def _insert(self, connection: AsyncConnection, statement: str, **values: Any) -> int:
        """How many rows were new. One that was not is left out, or said by an error."""
        try:
            return (await self.store.execute(connection, statement, **values)).rowcount
        except IntegrityError as error:
            if self.store.code_of(error) not in self.store.duplicate_codes:
                raise
            return 0

    async def succeeded(self, group: str, messages: Sequence[Message]) -> set[tuple[UUID, str]]:
        """Id and type of those that are handled already."""
        rows = (await self.store.read("inbox_succeeded", group=group, ids=[message.id for message in messages])).rows
        known = {(self.store.id_out(row.event_id), row.event_type) for row in rows}
        return known & {(message.id, message.type) for message in messages}

    # -- leases ----------------------------------------------------------------------------------------

    async def try_acquire(
        self, group: str, message: Message, lock_ttl: float, *, keep_message: bool = False
    ) -> Acquired:
        """The right to handle a message, or why not."""
        columns, kept = columns_of(message), pack(message) if keep_message else None
        async with self.store.transaction() as connection:
            await self.store.execute(connection, "inbox_open", group=group, message=kept, kept=keep_message, **columns)
            found = await self.store.execute(connection, "inbox_lock", group=group, event_id=message.id)
            row = found.rows[0]
            record = record_of(row, self.store)
            now, blocked_until = self.store.time_out(row.read_at), self.store.time_out(row.blocked_until)
            assert now is not None
            state, wait = judge(record, message, now=now, blocked_until=blocked_until)
            if state not in _OURS:
                if keep_message and blocked_until and record.status is Status.PROCESSING and not record.locked_by:
                    # Nobody will deliver it again: it waits here, behind its predecessor.
                    await self._keep_waiting(connection, record, wait)
                else:
                    # A record of an attempt that did not begin would send the next one the long way round.
                    await connection.rollback()
                return Acquired(state, wait=wait, retry_count=record.retry_count, record=record)
            await self._take(connection, record, lock_ttl)
        return Acquired(state, Lease(group, message.id, record.epoch + 1), record.retry_count, record=record)

    async def _keep_waiting(self, connection: AsyncConnection, record: Record, wait: float) -> None:
        await self.store.execute(
            connection,
            "inbox_fail",
            group=record.group,
            event_id=record.event_id,
            epoch=record.epoch,
            retry_count=record.retry_count,
            error_msg="waits for an earlier event of its key",
            after=wait,
            settled=False,
            message=None,
        )

    async def _take(self, connection: AsyncConnection, record: Record, ttl: float) -> None:
        await self.store.execute(
            connection,
            "inbox_take",
            group=record.group,
            event_id=record.event_id,
            owner=self.worker_name,
            seconds=ttl,
        )

    async def renew(self, lease: Lease, lock_ttl: float) -> bool:
        return await renew(self.store, lease, lock_ttl)

    async def release(self, lease: Lease) -> None:
        """Lets go without a verdict; whoever comes next may take it at once."""
        await renew(self.store, lease, 0.0)

    async def mark_success(self, connection: AsyncConnection, lease: Lease) -> None:
        """In the handler's transaction. Raises LeaseLost, which rolls it back, after somebody took over."""
        with self.store.translating():
            result = await self.store.execute(
                connection, "inbox_succeed", group=lease.group, event_id=lease.event_id, epoch=lease.epoch
            )
        if result.rowcount != 1:
            raise LeaseLost(
                f"Event {lease.event_id} was taken over from this worker in group {lease.group}; "
                "its work was rolled back. Give handlers that take long a longer lock_ttl."
            )

    async def mark_failed(
        self,
        group: str,
        message: Message,
        error: BaseException,
        decision: Decision,
        *,
        lease: Lease | None = None,
        failures: int = 1,
        keep_message: bool = False,
    ) -> bool:
        """Records a failure in its own transaction; the text of the decision's reason, or the error's.

        False: nothing was recorded, because the lease was lost or, without one, there is a record already.
        """
        retry = isinstance(decision, Retry)
        values: dict[str, Any] = {
            "group": group,
            "event_id": message.id,
            "retry_count": failures,
            "error_msg": describe(error) if isinstance(decision, Retry) else decision.reason,
            "after": decision.after if isinstance(decision, Retry) else None,
            "settled": isinstance(decision, Ack),
            "message": None if retry and not keep_message else pack(message),
        }
        async with self.store.transaction() as connection:
            if lease is None:
                return await self._insert(connection, "inbox_fail_first", **values | columns_of(message)) == 1
            result = await self.store.execute(connection, "inbox_fail", epoch=lease.epoch, **values)
            return result.rowcount == 1

    async def attempt(self, lease: Lease, work: Work, lock_ttl: float) -> None:
        """Runs `work` and marks the success in one transaction, while the lease is kept alive.

        After an outage or a cancellation the lease is let go: nobody's fault, so nothing is recorded.
        """
        try:
            with self._keeper.hold(lease, lock_ttl):
                async with handling(self.store) as (session, _):
                    await work(session)
                    # Last: the row stays locked from here to the commit, and renewals would wait for it.
                    await self.mark_success(await session.connection(), lease)
        except (StoreError, asyncio.CancelledError):
            await self._let_go(lease)
            raise

    async def _let_go(self, lease: Lease) -> None:
        try:
            await self.release(lease)
        except StoreError:
            pass  # then the lease ends by itself

    # -- the template ----------------------------------------------------------------------------------

    async def consume(
        self,
        group: str,
        message: Message,
        handler: MessageHandler,
        options: ConsumeOptions | None = None,
    ) -> ConsumeResult:
        """Handles a message once, whoever else tries at the same time. The handler's error goes on up.

        The handler may be async, or plain: then its session is an ordinary Session.

        Raises ConsumeFailed for an event that has failed for good, ConsumeConflict for one of another type,
        and StoreError if nothing could be recorded: then deliver it again.
        """
        check_group(group, on_broker=False)
        work = work_of(handler, message)
        options = options or ConsumeOptions()
        acquired = await self.try_acquire(group, message, options.lock_ttl, keep_message=options.keep_message)
        if acquired.lease is None:
            return await self._answer(group, message, acquired, options)
        try:
            await self.attempt(acquired.lease, work, options.lock_ttl)
        except (LeaseLost, StoreError):
            raise
        except Exception as error:
            failures = acquired.retry_count + 1
            await self.mark_failed(
                group,
                message,
                error,
                decide(error, failures, options.backoff),
                lease=acquired.lease,
                failures=failures,
                keep_message=options.keep_message,
            )
            raise
        return ConsumeResult()

    async def _answer(self, group: str, message: Message, acquired: Acquired, options: ConsumeOptions) -> ConsumeResult:
        match acquired.state:
            case AcquireState.REPLAY_SUCCEEDED:
                return ConsumeResult(replayed=True)
            case AcquireState.CONFLICT:
                raise conflict(message, acquired.record)
            case AcquireState.STOPPED:
                raise _failed(group, message, acquired.record)
        if options.wait_if_in_progress:
            return await self._wait(group, message, options.wait_max)
        return ConsumeResult(in_progress=True)

    async def _wait(self, group: str, message: Message, wait_max: float) -> ConsumeResult:
        deadline = self.clock.monotonic() + wait_max
        while True:
            record = await self.find(group, message.id)
            if record and record.status is Status.SUCCEEDED:
                return ConsumeResult(replayed=True)
            if record and record.status is Status.FAILED:
                raise _failed(group, message, record)
            remaining = deadline - self.clock.monotonic()
            if remaining <= 0:
                return ConsumeResult(in_progress=True)
            await self.clock.sleep(min(_POLL, remaining))


def conflict(message: Message, record: Record | None) -> ConsumeConflict:
    known = record.event_type if record else "another type"
    return ConsumeConflict(
        f"Event {message.id} is of type {message.type}, but its record says {known}. "
        "Two producers use the same id; give each event its own."
    )


def _failed(group: str, message: Message, record: Record | None) -> ConsumeFailed:
    reason = record.error_msg if record else None
    return ConsumeFailed(
        f"Event {message.id} failed in group {group}: {reason or 'no reason was kept'}. "
        "Mend the cause, then retry the record."
    )
