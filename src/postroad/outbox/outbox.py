"""From an event object to a row: checked, encoded, given its id, handed to the caller's connection."""

import random
import warnings
from collections.abc import Coroutine, Generator, Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid5

import msgspec

from postroad.clock import Clock, SystemClock
from postroad.codec import json as json_codec
from postroad.codec.formats import format_of
from postroad.codec.late_version import ROOM as LATE_VERSION
from postroad.codec.limits import check_size
from postroad.context import current_message, origin
from postroad.errors import ConfigurationError
from postroad.events import EventType, aggregate_id_of, event_type_of
from postroad.message import OPTIONAL_ATTRIBUTES, Message, id_from_key, new_id, ordering_key, shard_of
from postroad.outbox.checks import checked_headers, checked_id, checked_tenant, checked_version, deliver_at
from postroad.outbox.connections import write
from postroad.outbox.copies import kind_of, newest_first
from postroad.outbox.wake import Wake
from postroad.stores.base import Store
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable
from postroad.telemetry import tracing

_encode = msgspec.json.Encoder().encode
_IN_ATTRIBUTES = tuple(name for name in OPTIONAL_ATTRIBUTES if name not in ("correlation_id", "causation_id"))
_values_in_attributes = attrgetter(*_IN_ATTRIBUTES)


class Added:
    """What `add` returns. Await it when the connection is asynchronous; elsewhere that does no harm."""

    __slots__ = ("_pending", "id", "message")

    def __init__(self, message: Message, pending: Sequence[Coroutine[Any, Any, None]]) -> None:
        self.message, self.id = message, message.id
        self._pending = pending

    def __await__(self) -> Generator[Any, Any, "Added"]:
        pending, self._pending = self._pending, ()
        try:
            for one in pending:
                yield from one.__await__()
        finally:
            for one in pending:
                one.close()
        return self

    def __del__(self) -> None:
        if self._pending:
            for one in self._pending:
                one.close()
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
        idempotency_key: str | UUID | None = None,
        correlation_id: str | UUID | None = None,
        delay: float | timedelta | None = None,
        tenant: str | None = None,
        headers: Mapping[str, str] | None = None,
        user_id: str | UUID | None = None,
        also: Sequence[object] = (),
    ) -> Added:
        event, *older = newest_first([event, *also], version) if also else [event]
        kind = kind_of(event)
        now = self.clock.now()
        cause, inherited = current_message.get(), origin()
        trace = tracing.writing(kind.name, kind.topic, cause)
        trace_id, span_id = tracing.ids_of(trace) if trace else (None, None)
        key = checked_id(kind, "idempotency_key", idempotency_key)
        id = id_from_key(self.source, kind.name, key) if key else new_id(now, self.randomness)
        message = Message(
            id=id,
            type=kind.name,
            topic=kind.topic,
            aggregate_type=kind.aggregate,
            aggregate_id=aggregate_id_of(event, kind) or str(id),
            version=checked_version(kind, version),
            occurred_at=now,
            payload=b"",
            tenant=checked_tenant(kind, tenant) if tenant is not None else (inherited.tenant if inherited else ""),
            headers={**trace, **checked_headers(kind, headers)},
            correlation_id=checked_id(kind, "correlation_id", correlation_id)
            or (inherited and inherited.correlation_id)
            or str(cause.id if cause else id),
            causation_id=str(cause.id) if cause else None,
            user_id=checked_id(kind, "user_id", user_id) or (inherited.user_id if inherited else None),
            source_service=self.source,
            source_version=self.source_version,
            trace_id=trace_id,
            span_id=span_id,
            deliver_at=deliver_at(kind, now, delay),
        )
        table = self.table_for(kind)
        # All of them before the first is written: if one is refused, none may be there.
        messages = [self._filled(message, one, older[number:], table) for number, one in enumerate([event, *older])]
        rows = [self.row(one, table, is_copy=number > 0) for number, one in enumerate(messages)]
        pending = [write(target, self.store, table, row, self.wakes[table]) for row in rows]
        return Added(messages[0], [one for one in pending if one is not None])

    def _filled(self, message: Message, event: object, older: Sequence[object], table: OutboxTable) -> Message:
        """The message with its payload; `older` follow it as copies of the same fact."""
        kind = event_type_of(event)
        form = format_of(kind)
        if table.payload != "bytes" and form.CONTENT_TYPE != json_codec.CONTENT_TYPE:
            raise ConfigurationError(
                f"{kind.name} is binary, but outbox {table.name} keeps its payloads as {table.payload}. "
                "Give it another outbox."
            )
        filled = msgspec.structs.replace(
            message,
            payload=form.encode(event, kind),
            content_type=form.CONTENT_TYPE,
            schema_version=kind.schema_version,
            also_as=",".join(f"v{event_type_of(one).schema_version}" for one in older) or None,
        )
        if kind.envelope is not None:
            from postroad.codec.envelope import wrap  # an optional dependency

            filled = wrap(filled, kind)
        check_size(filled, self.max_message_bytes - (LATE_VERSION if kind.envelope else 0))
        return filled

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

    def row(self, message: Message, table: OutboxTable, *, is_copy: bool = False) -> dict[str, Any]:
        """The parameters of `add_event`, as this database's drivers take them."""
        # A delayed event stands outside its key's order: nothing may wait behind it, so it has its own key.
        # The metrics know it by this word (`outbox_due_count`).
        key = ordering_key("delayed", str(message.id)) if message.deliver_at else message.ordering_key
        named = zip(_IN_ATTRIBUTES, _values_in_attributes(message), strict=True)
        extras: dict[str, Any] = {name: value for name, value in named if value is not None}
        if message.headers:
            extras["headers"] = message.headers
        if message.also_as:
            extras["also_as"] = message.also_as
        row_id = message.id
        if is_copy:
            # Unique here, and the same when the operation is repeated; on the wire it is the fact's own id again.
            row_id, extras["copy_of"] = uuid5(message.id, f"v{message.schema_version}"), str(message.id)
        return {
            "event_id": str(row_id) if table.ids == "text" else self.store.id_in(row_id),
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
