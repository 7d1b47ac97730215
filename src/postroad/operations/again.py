"""Letting an event happen again: edited under a new id, once more in one group, or before its time."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from postroad.app import Postroad
from postroad.context import current_message
from postroad.errors import OperationRefused
from postroad.events import declared
from postroad.inbox.record import pack
from postroad.inbox.records import Records
from postroad.operations import audit
from postroad.operations.outbox import outbox_event, outbox_message
from postroad.operations.typed import typed_event
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable


async def resend_event(road: Postroad, id: UUID, payload: str, *, actor: str, reason: str = "") -> UUID:
    """A new event of the same type with this payload, caused by the old one; its id.

    It is checked as the application's own events are, and comes last in its aggregate's order.
    """
    message = await outbox_message(road.store, road.outboxes, id)
    kind = declared(message.type).get(message.schema_version)
    if kind is None or "json" not in message.content_type:
        raise OperationRefused(
            f"Event {id} ({message.type} v{message.schema_version}) cannot be edited here: "
            "only JSON of a type that this application declares can. Publish it where it is declared."
        )
    event = typed_event(payload, kind)
    cause = current_message.set(message)
    try:
        async with road.session() as session, session.begin():
            added = road.add(session, event, headers=message.headers or None)
            connection = await session.connection()
            await audit.record(
                road.store, connection, actor=actor, action="outbox.resend", subject=str(id),
                detail=f"as {added.id}" + (f": {reason}" if reason else ""),
            )  # fmt: skip
    finally:
        current_message.reset(cause)
    return added.id


async def replay_event(
    store: Store, outboxes: Sequence[OutboxTable], group: str, id: UUID, *, actor: str, reason: str = ""
) -> None:
    """One group handles once more what it has handled already; others notice nothing.

    Only that: an event that has not reached the group yet would overtake earlier ones of its aggregate.
    """
    message = await outbox_message(store, outboxes, id)
    async with store.transaction() as connection:
        reopened = await store.execute(connection, "inbox_reopen", group=group, event_id=id, message=pack(message))
        if reopened.rowcount:
            await store.execute(connection, "inbox_retry", group=group, event_id=id)
            await audit.record(
                store, connection, actor=actor, action="inbox.replay", subject=f"{group}/{id}", detail=reason
            )
            return
    if await Records(store).find(group, id) is None:
        raise OperationRefused(f"Group {group} has not handled event {id} yet. Wait until it has.")
    raise OperationRefused(f"Event {id} has not succeeded in group {group}. Retry it instead.")


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
