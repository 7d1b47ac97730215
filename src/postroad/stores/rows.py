"""From a row of an outbox table to the message it holds."""

from typing import Any
from uuid import UUID

import msgspec

from postroad.codec.late_version import with_version
from postroad.message import OPTIONAL_ATTRIBUTES, Message, id_from_key, parse_id
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

_OPTIONAL = frozenset(OPTIONAL_ATTRIBUTES)
_decode_attributes = msgspec.json.Decoder(dict[str, Any]).decode


def message_of(row: Any, payload: Any, store: Store, outbox: OutboxTable) -> Message:
    """Raises ValueError, TypeError or MsgspecError for a row that is no message."""
    extras = _decode_attributes(row.attributes) if row.attributes else {}
    payload = payload.encode() if isinstance(payload, str) else bytes(payload)
    payload, content_type = with_version(payload, row.content_type or "application/json", row.version)
    return Message(
        # One fact in several schema versions is several rows, but one event.
        id=parse_id(extras["copy_of"]) if "copy_of" in extras else event_id(row.event_id, store, outbox),
        type=row.event_type,
        topic=row.topic or outbox.topic,
        aggregate_type=row.aggregate_type,
        aggregate_id=str(row.aggregate_id),
        version=row.version,
        occurred_at=store.time_out(row.occurred_at),  # type: ignore[arg-type]
        payload=payload,
        schema_version=row.schema_version or 1,
        content_type=content_type,
        tenant=row.tenant_id or "",
        headers=msgspec.convert(extras["headers"], dict[str, str]) if "headers" in extras else {},
        correlation_id=row.correlation_id,
        causation_id=row.causation_id,
        also_as=extras.get("also_as"),
        deliver_at=store.time_out(row.deliver_at),
        # Names that newer code may have written are passed over.
        **{name: value for name, value in extras.items() if name in _OPTIONAL},
    )


def event_id(value: Any, store: Store, outbox: OutboxTable) -> UUID:
    """As consumers see it."""
    if not isinstance(value, str):
        return store.id_out(value)
    try:
        return parse_id(value)
    except ValueError:
        # Another program's idea of an id. The same row must be the same event, however often it is sent.
        return id_from_key(outbox.name, "row", value)
