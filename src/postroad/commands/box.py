"""The command box: who may carry out a command, and what became of it."""

import os
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.commands.record import CommandRecord, CommandStatus, columns_of, record_of
from postroad.errors import CommandStillProcessing, LeaseLost, StoreBusy, StoreError
from postroad.eventstore.store import insert_new
from postroad.message import Message
from postroad.retry import Decision, Retry, describe
from postroad.stores.base import Result, Store

LEASE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Held:
    """The right to settle one command."""

    message: Message
    retry_count: int
    """Attempts that have failed so far."""
    epoch: int

    @property
    def id(self) -> UUID:
        return self.message.id


class CommandBox:
    def __init__(self, store: Store, *, lease: float = LEASE, randomness: random.Random | None = None) -> None:
        self.store, self.lease = store, lease
        # Two boxes of one process are two holders.
        holder = f"{(randomness or random).getrandbits(32):08x}"
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{holder}"[:255]

    async def begin(self, message: Message) -> Held | None:
        """The right to carry out what nobody has asked for before, in one statement; None if its id is known."""
        values = {**columns_of(message), "owner": self.owner, "seconds": self.lease}
        try:
            new = (await self._insert(values)).rowcount == 1
        except StoreError as error:
            if self.store.code_of(error.__cause__ or error) not in self.store.duplicate_codes:
                raise
            new = False
        return Held(message, 0, 1) if new else None

    async def _insert(self, values: Mapping[str, Any]) -> Result:
        return await self.store.change("command_begin", **values)

    async def open(self, connection: AsyncConnection, message: Message) -> Held | CommandRecord:
        """The right to carry it out now, or its record if that has been done already.

        Raises CommandStillProcessing while somebody else is at it, CommandConflict if the id is another command's.
        """
        store = self.store
        with store.translating():
            # Asked for first: on MySQL, several who have met a duplicate key would all hold the row, and then deadlock.
            if not (rows := await self._lock(connection, message)):
                if not await insert_new(store, connection, "command_submit", **columns_of(message)):
                    raise StoreBusy(f"Somebody else wrote {message.type} {message.id} in the same moment. Ask again.")
                rows = await self._lock(connection, message)
            record = record_of(rows[0], store)
            record.check_same(message)
            if record.status is CommandStatus.COMPLETED:
                return record
            held = await self.take(record, connection)
            if held is None:
                raise CommandStillProcessing(message.type, message.id)
            return held

    async def _lock(self, connection: AsyncConnection, message: Message) -> Sequence[Any]:
        return (await self.store.execute(connection, "command_lock", command_id=message.id)).rows

    async def take(self, record: CommandRecord, connection: AsyncConnection) -> Held | None:
        """None if it is no longer as the record says, or if somebody has it and his lease has not ended."""
        taken = await self.store.execute(
            connection,
            "command_take",
            command_id=record.command_id,
            epoch=record.epoch,
            status=record.status.value,
            owner=self.owner,
            seconds=self.lease,
        )
        return Held(record.message, record.retry_count, record.epoch + 1) if taken.rowcount == 1 else None

    async def complete(self, connection: AsyncConnection, held: Held) -> None:
        """In the transaction of its events. Raises LeaseLost, which rolls it back, after somebody took over."""
        with self.store.translating():
            done = await self.store.execute(connection, "command_complete", command_id=held.id, epoch=held.epoch)
        if done.rowcount != 1:
            raise LeaseLost(
                f"{held.message.type} {held.id} was taken over from this process; its work was rolled back. "
                "Ask again with the same id for what became of it."
            )

    async def fail(self, held: Held, error: BaseException, decision: Decision, failures: int) -> bool:
        """Records a failure in its own transaction. False: it is settled already, or somebody else's."""
        result = await self.store.change(
            "command_fail",
            command_id=held.id,
            epoch=held.epoch,
            retry_count=failures,
            error_message=describe(error) if isinstance(decision, Retry) else decision.reason,
            after=decision.after if isinstance(decision, Retry) else None,
        )
        return result.rowcount == 1

    async def release(self, held: Held, after: float) -> bool:
        """Lets go without a verdict; in `after` seconds a worker may take it."""
        result = await self.store.change("command_release", command_id=held.id, epoch=held.epoch, after=after)
        return result.rowcount == 1

    async def find(self, command_id: UUID) -> CommandRecord | None:
        rows = (await self.store.read("command_find", command_id=command_id)).rows
        return record_of(rows[0], self.store) if rows else None

    async def due(self, types: Sequence[str], limit: int) -> Sequence[CommandRecord]:
        """Of each aggregate the first that is not finished, if its time has come."""
        rows = (await self.store.read("command_due", types=list(types), limit=limit)).rows
        return [record_of(row, self.store) for row in rows]


async def renew(store: Store, held: Held, seconds: float) -> bool:
    """False when it is settled, or somebody else's by now."""
    result = await store.change("command_renew", command_id=held.id, epoch=held.epoch, seconds=seconds)
    return result.rowcount == 1
