"""What waits, stored by older code, and cannot be read by this one: worth knowing before it is deployed."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from postroad.codec import json as json_codec
from postroad.codec.upcast import choose
from postroad.commands.record import record_of
from postroad.errors import PostroadError, UnknownEventType
from postroad.events import declared
from postroad.inbox import Status
from postroad.inbox.record import unpack
from postroad.inbox.records import Records
from postroad.message import Message
from postroad.stores.rows import message_of
from postroad.stores.tables import OutboxTable

if TYPE_CHECKING:
    from postroad.app import Postroad

_PAGE: Final = 500
_NEWEST: Final = 2**62
_UNREADABLE: Final = (PostroadError, ValueError, TypeError, msgspec.MsgspecError)


async def unreadable(road: "Postroad") -> AsyncIterator[tuple[str, str]]:
    """Where, and the id: unsent and parked events, kept failures, open commands."""
    for outbox in road.outboxes:
        if not outbox.adopted:  # other programs write what this one need not know
            async for id in _outbox(road, outbox):
                yield outbox.name, id
    async for group, id in _inbox(road):
        yield group, id
    async for id in _commands(road):
        yield "commands", id


async def _outbox(road: "Postroad", outbox: OutboxTable) -> AsyncIterator[str]:
    after: Any = road.store.adapt(UUID(int=0)) if outbox.ids == "native" else ""
    while rows := (await road.store.read("check_unsent_page", outbox, after=after, limit=_PAGE)).rows:
        for row in rows:
            try:
                _read(road, message_of(row, row.payload, road.store, outbox))
            except _UNREADABLE:
                yield str(row.event_id) if outbox.ids == "text" else str(road.store.id_out(row.event_id))
        after = rows[-1].event_id


async def _inbox(road: "Postroad") -> AsyncIterator[tuple[str, str]]:
    for group in road.groups:
        for status in (Status.PROCESSING, Status.FAILED):
            after: tuple[str, UUID] | None = None
            while records := await Records(road.store).list(group, status, _PAGE, after):
                for record in records:
                    try:
                        if record.message is not None:
                            _handle(road, group, unpack(record.message))
                    except _UNREADABLE:
                        yield group, str(record.event_id)
                after = (group, records[-1].event_id)


async def _commands(road: "Postroad") -> AsyncIterator[str]:
    for status in ("PENDING", "PROCESSING", "FAILED"):
        before = _NEWEST
        while rows := (
            await road.store.read("command_list_of", status=status, type="", before=before, limit=_PAGE)
        ).rows:
            for row in rows:
                record = record_of(row, road.store)
                try:
                    json_codec.decode(record.payload, road.commands.handler_of(record.command_type).kind)
                except _UNREADABLE:
                    yield str(record.command_id)
            before = rows[-1].seq


async def unreadable_dead(road: "Postroad") -> AsyncIterator[tuple[str, str]]:
    """The same of dead letters. Only this asks the broker."""
    for subscription in await road.broker.subscriptions():
        topic, group = subscription.topic, subscription.name.removeprefix(f"{subscription.topic}.")
        after = ""
        while letters := await road.broker.dead_letters(topic, limit=_PAGE, after=after):
            for letter in letters:
                if letter.subscription != subscription.name or group not in road.groups:
                    continue
                try:
                    _handle(road, group, Message.from_wire(topic, letter.attributes, letter.data))
                except _UNREADABLE:
                    yield f"{topic}.dlq", letter.attributes.get("event_id", letter.id)
            after = letters[-1].id


def _read(road: "Postroad", message: Message) -> None:
    if not (known := declared(message.type)):
        raise UnknownEventType(f"{message.type} is not declared here.")
    road.upcasters.read(message, choose(message.schema_version, known))


def _handle(road: "Postroad", group: str, message: Message) -> None:
    handler = road.registry.find(group, message)
    if handler is None:
        raise UnknownEventType(f"{message.type} has no handler in {group}.")
    road.upcasters.read(message, handler.event_type)
