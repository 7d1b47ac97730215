"""From an event object to a row: checked, encoded, given its id, handed to the caller's connection."""

import random
import warnings
from collections.abc import Coroutine, Generator, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from postroad.clock import Clock, SystemClock
from postroad.codec import json as json_codec
from postroad.codec.limits import check_size
from postroad.context import current_message
from postroad.errors import ConfigurationError
from postroad.events import EventType, aggregate_id_of, event_type_of
from postroad.message import OPTIONAL_ATTRIBUTES, Message, id_from_key, new_id, ordering_key, shard_of
from postroad.outbox.checks import checked_headers, checked_key, checked_tenant, checked_version, deliver_at
from postroad.outbox.connections import write
from postroad.outbox.wake import Wake
from postroad.stores.base import Store
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable

_encode = msgspec.json.Encoder().encode
_IN_ATTRIBUTES = tuple(name for name in OPTIONAL_ATTRIBUTES if name not in ("correlation_id", "causation_id"))


class Added:
    """What `add` returns. Await it when the connection is asynchronous; elsewhere that does no harm."""

    __slots__ = ("_pending", "id", "message")

    def __init__(self, message: Message, pending: Coroutine[Any, Any, None] | None) -> None:
        self.message, self.id = message, message.id
        self._pending = pending

    def __await__(self) -> Generator[Any, Any, "Added"]:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            yield from pending.__await__()
        return self

    def __del__(self) -> None:
        if self._pending is not None:
            self._pending.close()
            warnings.warn(
                f"{self.message.type} {self.id} was NOT stored, because its `add` was never awaited. "
                "Write: await road.add(connection, event)",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )

    def __repr__(self) -> str:
        return f"<Added {self.message.type} {self.id}>"


class Outbox:
    """Usable alone: `Outbox(open_store(url), source="shop").add(session, event)`."""

    def __init__(
        self,
        store: Store,
        source: str,
        tables: Sequence[OutboxTable] = (DEFAULT_OUTBOX,),
        *,
        source_version: str | None = None,
        max_message_bytes: int = 10_000_000,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
    ) -> None:
        if not tables:
            raise ConfigurationError("A service needs at least one outbox table.")
        self.store, self.source, self.source_version = store, source, source_version
        self.tables = {table.name: table for table in tables}
        self.max_message_bytes = max_message_bytes
        self.clock = clock or SystemClock()
        self.randomness = randomness or random.SystemRandom()
        self.wakes = {table: Wake(store, table) for table in tables}

    def add(
        self,
        target: Any,
        event: object,
        *,
        version: int | None = None,
        idempotency_key: str | None = None,
        correlation_id: str | UUID | None = None,
        delay: float | timedelta | None = None,
        tenant: str | None = None,
        headers: Mapping[str, str] | None = None,
        user_id: str | UUID | None = None,
    ) -> Added:
        kind = event_type_of(event)
        if isinstance(event, type):
            raise ConfigurationError(
                f"`add` was given the class {event.__qualname__}. Give it an event: {event.__qualname__}(…)."
            )
        now = self.clock.now()
        cause = current_message.get()
        key = checked_key(kind, idempotency_key)
        id = id_from_key(self.source, kind.name, key) if key else new_id(now, self.randomness)
        message = Message(
            id=id,
            type=kind.name,
            topic=kind.topic,
            aggregate_type=kind.aggregate,
            aggregate_id=aggregate_id_of(event, kind) or str(id),
            version=checked_version(kind, version),
            occurred_at=now,
            payload=json_codec.encode(event, kind),
            schema_version=kind.schema_version,
            tenant=checked_tenant(kind, tenant) if tenant is not None else (cause.tenant if cause else ""),
            headers=checked_headers(kind, headers),
            correlation_id=_text(correlation_id) or (cause and cause.correlation_id) or str(cause.id if cause else id),
            causation_id=str(cause.id) if cause else None,
            user_id=_text(user_id) or (cause.user_id if cause else None),
            source_service=self.source,
            source_version=self.source_version,
            deliver_at=deliver_at(kind, now, delay),
        )
        check_size(message, self.max_message_bytes)
        table = self.table_for(kind)
        return Added(message, write(target, self.store, table, self.row(message, table), self.wakes[table]))

    def table_for(self, kind: EventType) -> OutboxTable:
        if kind.outbox is None:
            return next(iter(self.tables.values()))
        try:
            return self.tables[kind.outbox]
        except KeyError:
            raise ConfigurationError(
                f"{kind.name} belongs to outbox {kind.outbox!r}, but this service has only "
                f"{', '.join(self.tables)}. Pass it in `outboxes`."
            ) from None

    def row(self, message: Message, table: OutboxTable) -> dict[str, Any]:
        """The parameters of `add_event`, as this database's drivers take them."""
        # A delayed event stands outside its key's order: nothing may wait behind it, so it has its own key.
        key = ordering_key("delayed", str(message.id)) if message.deliver_at else message.ordering_key
        extras = {name: value for name in _IN_ATTRIBUTES if (value := getattr(message, name)) is not None}
        if message.headers:
            extras["headers"] = message.headers
        return {
            "event_id": str(message.id) if table.ids == "text" else self.store.id_in(message.id),
            "topic": message.topic,
            "event_type": message.type,
            "aggregate_type": message.aggregate_type,
            "aggregate_id": message.aggregate_id,
            "ordering_key": key,
            "shard": shard_of(key),
            "version": message.version,
            "schema_version": message.schema_version,
            "payload": message.payload,
            "content_type": message.content_type,
            "tenant_id": message.tenant,
            "correlation_id": message.correlation_id,
            "causation_id": message.causation_id,
            "attributes": _encode(extras).decode(),
            "occurred_at": self.store.time_in(message.occurred_at),
            "deliver_at": self.store.adapt(message.deliver_at),
        }

    def close(self) -> None:
        for wake in self.wakes.values():
            wake.close()


def _text(value: str | UUID | None) -> str | None:
    return None if value is None else str(value)
