"""Letting an event happen again: edited under a new id, once more in one group, or before its time."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from postroad.app import Postroad
from postroad.brokers.base import Broker
from postroad.context import current_message
from postroad.errors import OperationRefused, WriteRefused
from postroad.events import declared, is_protobuf
from postroad.inbox.record import Record, Status, pack
from postroad.inbox.records import Records
from postroad.message import Message
from postroad.operations import audit
from postroad.operations.outbox import OutboxDetail, is_ours, outbox_event, outbox_message
from postroad.operations.typed import typed_event
from postroad.projections.sources import BrokerSource
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

_PATIENCE: Final = 20.0
_SKEW: Final = timedelta(minutes=1)
"""By which the clock of whoever made an id may be ahead of the broker's."""


def is_editable(detail: OutboxDetail) -> bool:
    """Whether `resend_event` could read the payload back as it is shown; the ids of other programs' events may be
    no UUIDs."""
    kind = declared(detail.event.type).get(detail.schema_version)
    if kind is None or isinstance(detail.payload, bytes) or not isinstance(detail.event.id, UUID):
        return False
    if not is_protobuf(kind.cls):
        return "json" in detail.content_type
    try:
        typed_event(msgspec.json.encode(detail.payload).decode(), kind)
    except WriteRefused:
        return False  # an envelope, for instance, which is shown with what is in it
    return True


async def resend_event(road: Postroad, id: UUID, payload: str, *, actor: str, reason: str) -> UUID:
    """A new event of the same type with this payload, caused by the old one; its id.

    It is checked as the application's own events are, and comes last in its aggregate's order.
    """
    if not reason.strip():
        raise OperationRefused("Sending an edited copy needs a reason. Say what was wrong with the event.")
    message = await outbox_message(road.store, road.outboxes, id)
    kind = declared(message.type).get(message.schema_version)
    if kind is None or not (is_protobuf(kind.cls) or "json" in message.content_type):
        raise OperationRefused(
            f"Event {id} ({message.type} v{message.schema_version}) cannot be edited here: "
            "only a type that this application declares can. Publish it where it is declared."
        )
    event = typed_event(payload, kind)
    cause = current_message.set(message)
    try:
        async with road.session() as session, session.begin():
            added = road.add(session, event, headers=message.headers or None)
            connection = await session.connection()
            await audit.record(
                road.store, connection, actor=actor, action="outbox.resend", subject=str(id),
                detail=f"as {added.id}: {reason}",
            )  # fmt: skip
    finally:
        current_message.reset(cause)
    return added.id


async def replay_event(
    store: Store,
    outboxes: Sequence[OutboxTable],
    group: str,
    id: UUID,
    *,
    actor: str,
    reason: str = "",
    broker: Broker | None = None,
) -> None:
    """One group handles once more what it has handled already; others notice nothing.

    Only that: an event that has not reached the group yet would overtake earlier ones of its aggregate.
    Of an event from another service's outbox, `broker` is asked for what it has kept.
    """
    record = await Records(store).find(group, id)
    if record is None:
        raise OperationRefused(f"Group {group} has not handled event {id} yet. Wait until it has.")
    if record.status is not Status.SUCCEEDED:
        raise OperationRefused(f"Event {id} has not succeeded in group {group}. Retry it instead.")
    if await is_ours(store, outboxes, id):
        message = await outbox_message(store, outboxes, id)
    else:
        message = await _from_broker(store, broker, record)
    async with store.transaction() as connection:
        reopened = await store.execute(connection, "inbox_reopen", group=group, event_id=id, message=pack(message))
        if reopened.rowcount:
            await store.execute(connection, "inbox_retry", group=group, event_id=id)
            await audit.record(
                store, connection, actor=actor, action="inbox.replay", subject=f"{group}/{id}", detail=reason
            )
            return
    raise OperationRefused(f"Event {id} has moved meanwhile. Nothing was done; look again.")


async def _from_broker(store: Store, broker: Broker | None, record: Record) -> Message:
    """A record that has succeeded keeps no message, and the outbox it came from is not here."""
    told = (
        f"Event {record.event_id} is in another service's outbox, and once it is handled its message is not kept here."
    )
    if broker is None:
        raise OperationRefused(f"{told} Name the application or the broker, which may have kept it.")
    if not broker.features.seek:
        raise OperationRefused(
            f"{told} {broker.address} hands out nothing a second time: let the service that sent it send it again."
        )
    try:
        async with asyncio.timeout(_PATIENCE):
            if message := await _kept(store, broker, record):
                return message
    except TimeoutError:
        raise OperationRefused(
            f"{told} It was not found at {broker.address} within {_PATIENCE:g} s. "
            "Let the service that sent it send it again."
        ) from None
    raise OperationRefused(
        f"{told} {broker.address} has not kept it either: let the service that sent it send it again."
    )


async def _kept(store: Store, broker: Broker, record: Record) -> Message | None:
    name = f"replay-{record.event_id.hex[-12:]}"
    source = BrokerSource(broker, [record.topic], name, clock=store.clock, since=_sent_after(record.event_id))
    async with aclosing(source.read()) as messages:
        async for message in messages:
            if message is not None and message.id == record.event_id:
                return message
    return None


def _sent_after(id: UUID) -> datetime | None:
    """Most ids tell when they were made, so that not all that the broker keeps has to be read."""
    return datetime.fromtimestamp((id.int >> 80) / 1_000, UTC) - _SKEW if id.version == 7 else None


async def run_now(road: Postroad, id: UUID, *, actor: str, reason: str = "") -> None:
    """Deliver a delayed event at once. The broker's copy comes later, to groups that know it by then."""
    store = road.store
    event = (await outbox_event(store, road.outboxes, id)).event
    now = store.clock.now()
    # Where the broker can keep it, a relay may be giving it away this moment, with its old time.
    stays_here = event.state == "NEW" and not road.broker.features.delay
    if not (stays_here or event.state == "SENT") or event.deliver_at is None or event.deliver_at <= now:
        raise OperationRefused(
            f"Event {id} is {event.state}. Only a delayed event that waits for its time can be run before it, "
            "and not while it is on its way to a broker that keeps it."
        )
    if not stays_here and event.deliver_at - now >= timedelta(seconds=road.inbox_retention):
        # When the broker's copy comes, the groups would have forgotten this one.
        raise OperationRefused(
            f"Event {id} is due after more than inbox_retention: it would be handled twice. Keep inbox rows longer."
        )
    async with store.transaction() as connection:
        for outbox in road.outboxes:
            values: dict[str, Any] = {"outbox": outbox, "event_id": str(id) if outbox.ids == "text" else id}
            due = await store.execute(connection, "outbox_due_now", **values, now=now)
            if due.rowcount and (
                stays_here or (await store.execute(connection, "outbox_send_again", **values)).rowcount
            ):
                await audit.record(
                    store, connection, actor=actor, action="outbox.run_now", subject=str(id), detail=reason
                )
                return
        raise OperationRefused(f"Event {id} has moved meanwhile. Nothing was done; look again.")
