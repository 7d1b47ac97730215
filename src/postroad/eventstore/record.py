"""A domain event as a value, and the way between it and its row."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from postroad.message import OPTIONAL_ATTRIBUTES, Message
from postroad.stores.base import Store


@dataclass(frozen=True, slots=True)
class DomainEvent:
    message: Message
    """The envelope, the same that the outbox sends: id, aggregate, version, correlation, payload."""
    event: Any
    position: int | None = field(default=None, compare=False)
    """Its place among all events; None until somebody has read them all."""

    @property
    def id(self) -> UUID:
        return self.message.id

    @property
    def version(self) -> int:
        return self.message.version or 0


def columns_of(message: Message, attributes: str) -> dict[str, Any]:
    return {
        "event_id": message.id,
        "event_type": message.type,
        "aggregate_type": message.aggregate_type,
        "aggregate_id": message.aggregate_id,
        "aggregate_version": message.version,
        "topic": message.topic,
        "schema_version": message.schema_version,
        "payload": message.payload,
        "content_type": message.content_type,
        "tenant_id": message.tenant,
        "correlation_id": message.correlation_id,
        "causation_id": message.causation_id,
        "attributes": attributes,
        "occurred_at": message.occurred_at,
    }


def message_of(row: Any, store: Store) -> Message:
    extras = msgspec.json.decode(row.attributes or "{}", type=dict[str, Any])
    occurred_at = store.time_out(row.occurred_at)
    assert occurred_at is not None  # the column is NOT NULL
    return Message(
        id=store.id_out(row.event_id),
        type=row.event_type,
        topic=row.topic,
        aggregate_type=row.aggregate_type,
        aggregate_id=row.aggregate_id,
        version=row.aggregate_version,
        occurred_at=occurred_at,
        payload=bytes(row.payload),
        schema_version=row.schema_version,
        content_type=row.content_type,
        tenant=row.tenant_id,
        headers=extras.get("headers", {}),
        correlation_id=row.correlation_id,
        causation_id=row.causation_id,
        **{name: extras[name] for name in OPTIONAL_ATTRIBUTES if name in extras},
    )
