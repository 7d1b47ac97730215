"""One command after the other: validate, decide, keep the events, settle. All of it in one transaction, or none."""

import asyncio
import logging
import random
import sys
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from postroad.clock import Clock
from postroad.codec import json as json_codec
from postroad.codec.limits import check_size
from postroad.commands.box import CommandBox, Held, renew
from postroad.commands.declare import CommandHandler, Commands
from postroad.commands.record import CommandRecord, CommandStatus
from postroad.context import current_message, origin
from postroad.errors import (
    ConfigurationError,
    InvalidCommand,
    InvalidPayload,
    LeaseLost,
    PostroadError,
    StoreBusy,
    StoreError,
    UnreadableMessage,
    ValidationFailed,
    VersionConflict,
)
from postroad.events import aggregate_id_of
from postroad.eventstore import DomainEvent, EventStore
from postroad.inbox.keeper import LeaseKeeper
from postroad.inbox.transaction import handling
from postroad.logs import about
from postroad.message import Message, new_id, parse_id
from postroad.outbox.checks import checked_id, checked_tenant
from postroad.retry import Backoff, Dead, Retry, decide, describe

_FRESH_STARTS: Final = 20
"""How often a command begins anew because somebody else was quicker. Of those that meet, one always gets through."""
_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
_OUTAGE_WAIT: Final = 1.0
_log = logging.getLogger("postroad")


class Executor:
    def __init__(
        self,
        box: CommandBox,
        events: EventStore,
        commands: Commands,
        *,
        clock: Clock,
        randomness: random.Random,
        road: object = None,
    ) -> None:
        self.box, self.events, self.commands = box, events, commands
        self._clock, self._randomness, self._road = clock, randomness, road
        self._keeper = LeaseKeeper(box.store, renew)

    async def aclose(self) -> None:
        await self._keeper.aclose()

    def envelope(
        self,
        command: object,
        *,
        command_id: UUID | str | None,
        correlation_id: str | UUID | None,
        cause: Message | None = None,
        tenant: str | None,
        user_id: str | UUID | None,
    ) -> Message:
        """The command as it is stored. Raises InvalidCommand, naming the field, for one that cannot be."""
        kind, now = self.commands.kind_of(command), self._clock.now()
        cause = cause or current_message.get()
        inherited = cause or origin()
        id = _id(kind.name, command_id) or new_id(now, self._randomness)
        try:
            message = Message(
                id=id,
                type=kind.name,
                topic="",
                aggregate_type=kind.aggregate,
                aggregate_id=aggregate_id_of(command, kind) or str(id),
                version=None,
                occurred_at=now,
                payload=json_codec.encode(command, kind),
                tenant=checked_tenant(kind, tenant) if tenant is not None else (inherited.tenant if inherited else ""),
                correlation_id=checked_id(kind, "correlation_id", correlation_id)
                or (inherited and inherited.correlation_id)
                or f"flow-{id}",
                causation_id=str(cause.id) if cause else None,
                user_id=checked_id(kind, "user_id", user_id) or (inherited.user_id if inherited else None),
            )
            check_size(message, sys.maxsize)
        except InvalidPayload as fault:
            raise InvalidCommand(str(fault)) from None
        return message

    # -- by whoever waits for the answer ---------------------------------------------------------------

    async def execute(self, message: Message) -> Sequence[DomainEvent]:
        """In transactions of its own. A failure is recorded and raised: whether to try again is for the caller."""
        if origin() is not None:
            raise ConfigurationError(
                f"{message.type} is executed inside a handler, in a transaction of its own: it would stay done if the "
                "handler failed. Write: await road.execute(command, session=session)"
            )
        self.commands.handler_of(message.type)  # or it would be claimed for nothing
        opened = await self._open(message)
        if isinstance(opened, CommandRecord):
            return await self.events.caused_by(opened.command_id)
        return await self.run(opened, None)

    async def join(self, session: AsyncSession, message: Message) -> Sequence[DomainEvent]:
        """In the session's transaction, and with its fate. If it raises, nothing of it is left there."""
        async with session.begin_nested():
            opened = await self.box.open(await session.connection(), message)
            if isinstance(opened, CommandRecord):
                return await self.events.caused_by(opened.command_id, session)
            return await self._work(session, opened)

    async def _open(self, message: Message) -> Held | CommandRecord:
        for failed in range(1, _FRESH_STARTS):
            try:
                return await self._open_once(message)
            except StoreBusy:
                await self._breathe(failed)
        return await self._open_once(message)

    async def _open_once(self, message: Message) -> Held | CommandRecord:
        if begun := await self._begin(message):
            return begun
        async with self.box.store.transaction() as connection:
            return await self.box.open(connection, message)

    async def _begin(self, message: Message) -> Held | None:
        """Whoever is cancelled in the middle must not leave it begun, with nobody to carry it out."""
        beginning = asyncio.ensure_future(self.box.begin(message))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            await asyncio.wait((beginning,))
            if not beginning.cancelled() and not beginning.exception() and (held := beginning.result()):
                await self._let_go(held, None, "cancelled")
            raise

    # -- the work --------------------------------------------------------------------------------------

    async def run(self, held: Held, backoff: Backoff | None) -> Sequence[DomainEvent]:
        """Carries it out and settles it, one way or the other. Without back-off, no further try is planned."""
        try:
            return await self._attempt(held)
        except asyncio.CancelledError:
            await self._let_go(held, backoff, "cancelled")
            raise
        except (StoreError, LeaseLost) as error:
            # Perhaps only the answer to the commit was lost. What is settled by now is not touched by this.
            await self._let_go(held, backoff, describe(error))
            if not await self._is_completed(held):
                raise
        except Exception as error:
            failures = held.retry_count + 1
            decision = decide(error, failures, backoff) if backoff else Dead(describe(error))
            if await self.box.fail(held, error, decision, failures) or not await self._is_completed(held):
                self._tell(held, error, failures, decision)
                raise
        return await self.events.caused_by(held.id)

    async def _attempt(self, held: Held) -> Sequence[DomainEvent]:
        for failed in range(1, _FRESH_STARTS):
            try:
                return await self._once(held)
            except (VersionConflict, StoreBusy):
                # Somebody else was quicker; on fresh state it may do, or say, something else.
                await self._breathe(failed)
        return await self._once(held)

    async def _once(self, held: Held) -> Sequence[DomainEvent]:
        with self._keeper.hold(held, self.box.lease):
            async with handling(self.box.store) as (session, _):
                return await self._work(session, held)

    async def _work(self, session: AsyncSession, held: Held) -> Sequence[DomainEvent]:
        message = held.message
        known = self.commands.handler_of(message.type)
        token = current_message.set(message)
        try:
            command = self._read(message, known)
            _validate(command)
            place = (message.aggregate_type, message.aggregate_id)
            offered, expected = await self._offer(session, message, known)
            events = _listed(await known.handler.call(command, offered, session))
            written = await self.events.append(session, events, expected={} if expected is None else {place: expected})
        finally:
            current_message.reset(token)
        if held.epoch > 1 or known.handler.wants & {"session", "road"}:
            # It may have appended by itself, or brought something about when it ran before.
            written = await self.events.caused_by(held.id, session)
        # Last: the row stays locked from here to the commit, and renewals would wait for it.
        await self.box.complete(await session.connection(), held)
        return written

    async def _offer(
        self, session: AsyncSession, message: Message, known: CommandHandler
    ) -> tuple[dict[str, object], int | None]:
        offered: dict[str, object] = {"message": message, "road": self._road}
        if not known.handler.wants & {"state", "version"}:
            return offered, None
        place = (message.aggregate_type, message.aggregate_id)
        if known.state is not None:
            offered["state"], version = await self.events.load(known.state, *place, target=session)
        else:
            version = await self.events.version(*place, target=session)
        return offered | {"version": version}, version

    def _read(self, message: Message, known: CommandHandler) -> object:
        try:
            return json_codec.decode(message.payload, known.kind)
        except UnreadableMessage as fault:
            raise InvalidCommand(str(fault)) from None

    # -- settling --------------------------------------------------------------------------------------

    async def _let_go(self, held: Held, backoff: Backoff | None, reason: str) -> None:
        """Nobody's fault, so no attempt is counted. A worker goes on with it; a caller has been told."""
        try:
            if backoff:
                await self.box.release(held, _OUTAGE_WAIT)
            else:
                await self.box.fail(held, PostroadError(), Dead(reason), held.retry_count)
        except StoreError:
            pass  # then the lease ends by itself, and a worker takes it over

    async def _is_completed(self, held: Held) -> bool:
        try:
            record = await self.box.find(held.id)
        except StoreError:
            return False
        return record is not None and record.status is CommandStatus.COMPLETED

    async def _breathe(self, failed: int) -> None:
        longest = min(_PAUSE * 2.0 ** min(failed, 16), _LONGEST_PAUSE)
        await self._clock.sleep(longest * self._randomness.uniform(0.1, 1.0))

    def _tell(self, held: Held, error: Exception, failures: int, decision: object) -> None:
        then = f"next try in {decision.after:g} s" if isinstance(decision, Retry) else "no further try"
        _log.warning(
            "%s %s failed (attempt %d), %s: %s", held.message.type, held.id, failures, then, describe(error),
            extra=about(held.message, attempt=failures, outcome="failed"),
        )  # fmt: skip


def _listed(result: Any) -> Sequence[object]:
    if result is None:
        return ()
    return result if isinstance(result, list | tuple) else (result,)


def _validate(command: object) -> None:
    """By the command's own method, if it has one."""
    # Not Pydantic's, which is another thing by the same name.
    bases = (base for base in type(command).__mro__ if base.__module__ != "pydantic.main")
    if not any("validate" in vars(base) for base in bases):
        return
    try:
        command.validate()  # type: ignore[attr-defined]
    except PostroadError:
        raise
    except Exception as error:
        raise ValidationFailed(f"{type(command).__name__}: {error}") from error


def _id(name: str, command_id: UUID | str | None) -> UUID | None:
    if command_id is None or isinstance(command_id, UUID):
        return command_id
    try:
        return parse_id(command_id)
    except (ValueError, TypeError) as fault:
        raise InvalidCommand(f"{name}: field command_id: {fault}. Give each command a UUID or ULID.") from None
