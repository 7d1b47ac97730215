"""Taking over an outbox table that was there before us: which column is which, and what has to be added."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import inspect, types
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.errors import ConfigurationError
from postroad.stores import migrations
from postroad.stores.base import Store
from postroad.stores.tables import COLUMNS, OutboxTable

# Names seen in the wild, best first. Debezium writes them without underscores.
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "event_id": ("event_id", "id"),
    "event_type": ("event_type", "type"),
    "aggregate_type": ("aggregate_type", "aggregatetype"),
    "aggregate_id": ("aggregate_id", "aggregateid"),
    "version": ("version", "aggregate_version"),
    "occurred_at": ("occurred_at", "create_time", "timestamp"),
    "state": ("state", "status"),
    "attempts": ("attempts", "publish_attempts", "delivery_attempts", "retry_count"),
    "next_attempt_at": ("next_attempt_at", "next_retry_at", "available_at", "next_retry_time"),
    "last_error": ("last_error", "error_message"),
}
_NEEDED: Final = ("event_id", "event_type", "aggregate_type", "aggregate_id", "payload")
_TEXT_KEY = {"postgresql": 'text COLLATE "C"', "mysql": "VARCHAR(520) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "sqlite": "TEXT"}
_TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "postgresql": {"time": "timestamptz", "text": "text", "int": "int", "long": "bigint", "short": "smallint"},
    "mysql": {"time": "DATETIME(6)", "text": "VARCHAR(255)", "int": "INT", "long": "BIGINT", "short": "SMALLINT"},
    "sqlite": {"time": "TEXT", "text": "TEXT", "int": "INTEGER", "long": "INTEGER", "short": "INTEGER"},
}
_KINDS: Final = {
    "topic": ("text", ""),
    "version": ("long", ""),
    "schema_version": ("int", " NOT NULL DEFAULT 1"),
    "content_type": ("text", ""),
    "tenant_id": ("text", ""),
    "correlation_id": ("text", ""),
    "causation_id": ("text", ""),
    "attributes": ("text", ""),
    "occurred_at": ("time", ""),
    "created_at": ("time", ""),
    "deliver_at": ("time", ""),
    "shard": ("short", ""),
    "state": ("text", " NOT NULL DEFAULT 'NEW'"),
    "attempts": ("int", " NOT NULL DEFAULT 0"),
    "next_attempt_at": ("time", ""),
    "last_error": ("text", ""),
    "published_at": ("time", ""),
}


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    outbox: OutboxTable
    statements: Sequence[str]
    notes: Sequence[str]

    @property
    def python(self) -> str:
        """The line to paste into `Postroad(outboxes=[…])`."""
        parts = [repr(self.outbox.name), f"columns={dict(self.outbox.columns)!r}"]
        if self.outbox.payload != "bytes":
            parts.append(f"payload={self.outbox.payload!r}")
        if self.outbox.ids != "native":
            parts.append(f"ids={self.outbox.ids!r}")
        return f"OutboxTable({', '.join(parts)}, topic='your.topic.events')"


async def plan_adoption(store: Store, name: str) -> AdoptionPlan:
    async with store.reading() as connection:
        columns, key = await _describe(connection, name)
        applied = await store.has_table(connection, "postroad_version")
    mapping = _match(name, columns)
    outbox = OutboxTable(
        name,
        columns={ours: theirs for ours, theirs in mapping.items() if ours != theirs},
        payload=_payload_form(columns[mapping["payload"]]["type"]),
        ids="text" if store.dialect == "mysql" and _is_text(columns[mapping["event_id"]]["type"]) else "native",
    )
    plan = _Plan(store, outbox, mapping, columns, key)
    statements = [] if applied else _core(store)
    return AdoptionPlan(outbox, [*statements, *plan.statements()], plan.notes)


async def apply_adoption(store: Store, plan: AdoptionPlan) -> None:
    async with store.migrating() as connection:
        for statement in plan.statements:
            await connection.exec_driver_sql(statement)


class _Plan:
    def __init__(
        self, store: Store, outbox: OutboxTable, mapping: Mapping[str, str], columns: Mapping[str, Any], key: Sequence[str]
    ) -> None:
        self._store, self._outbox, self._mapping, self._columns, self._key = store, outbox, mapping, columns, key
        self.notes: list[str] = []

    def statements(self) -> list[str]:
        return [
            *self._repairs(),
            *self._additions(),
            *self._backfill(),
            *_outbox_migrations(self._store, self._outbox),
        ]

    def _repairs(self) -> list[str]:
        """What would make our inserts fail: columns we do not fill, and types that hold no text."""
        found = []
        for name, column in self._columns.items():
            if name not in self._mapping.values() and not column["nullable"] and column["default"] is None:
                found += self._default_for(name, column)
        found += self._as_text(self._mapping["aggregate_id"])
        return found

    def _default_for(self, name: str, column: Any) -> list[str]:
        table, quoted = self._fill("{outbox}"), self._store.syntax.quote(name)
        if self._store.dialect == "mysql" and name in self._key:
            return [] if column.get("autoincrement") is True else [f"ALTER TABLE {table} MODIFY {quoted} BIGINT NOT NULL AUTO_INCREMENT"]
        if isinstance(column["type"], types.DateTime) and self._store.dialect != "sqlite":
            return [f"ALTER TABLE {table} ALTER COLUMN {quoted} SET DEFAULT CURRENT_TIMESTAMP"] if (
                self._store.dialect == "postgresql"
            ) else [f"ALTER TABLE {table} MODIFY {quoted} DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"]
        self.notes.append(f"Column {name} is NOT NULL without a default and Postroad does not fill it: give it a default.")
        return []

    def _as_text(self, name: str) -> list[str]:
        if self._store.dialect != "postgresql" or _is_text(self._columns[name]["type"]):
            return []
        quoted = self._store.syntax.quote(name)
        self.notes.append(f"Column {name} becomes text, because an aggregate id may be any text.")
        return [self._fill(f"ALTER TABLE {{outbox}} ALTER COLUMN {quoted} TYPE text USING CAST({quoted} AS text)")]

    def _additions(self) -> list[str]:
        kinds, added = _TYPES[self._store.dialect], []
        for ours in COLUMNS:
            if ours in self._mapping:
                continue
            kind = _TEXT_KEY[self._store.dialect] if ours == "ordering_key" else kinds[_KINDS[ours][0]] + _KINDS[ours][1]
            added.append(self._fill(f"ALTER TABLE {{outbox}} ADD COLUMN {{{ours}}} {kind}"))
        return added

    def _backfill(self) -> list[str]:
        """Old rows get what the relay needs: what was published counts as sent, every row has its version."""
        found = []
        if "state" not in self._mapping and "published_at" in self._mapping:
            found.append(self._fill("UPDATE {outbox} SET {state} = 'SENT' WHERE {published_at} IS NOT NULL"))
        if "occurred_at" not in self._mapping:
            found.append(self._fill("UPDATE {outbox} SET {occurred_at} = CURRENT_TIMESTAMP"))
        if "version" not in self._mapping:
            self.notes.append("Rows have no version: waiting ones get theirs when a relay first sees them.")
        else:
            found.append(
                self._fill(
                    "INSERT INTO {versions} (aggregate_type, aggregate_id, version) "
                    "SELECT {aggregate_type}, {aggregate_id}, max({version}) FROM {outbox} GROUP BY {aggregate_type}, {aggregate_id}"
                )
            )
        return found

    def _fill(self, sql: str) -> str:
        return self._store.fill(sql, self._outbox)


def _core(store: Store) -> list[str]:
    core = [m for m in migrations.all_migrations(store, ()) if m.outbox is None]
    return [migrations.migration_table(store), *_applied(store, core)]


def _outbox_migrations(store: Store, outbox: OutboxTable) -> list[str]:
    """Ours minus the creation of the table, recorded as done, so that `db migrate` goes on from here."""
    mine = [m for m in migrations.all_migrations(store, (outbox,)) if m.outbox]
    create = [m for m in mine if m.name.startswith("0002_outbox")]
    return [*(migrations.record(store, m) for m in create), *_applied(store, [m for m in mine if m not in create])]


def _applied(store: Store, done: Sequence[migrations.Migration]) -> list[str]:
    return [text for m in done for text in (*(s.rstrip(";") if store.dialect != "mysql" else s for s in m.statements), migrations.record(store, m))]


async def _describe(connection: AsyncConnection, name: str) -> tuple[dict[str, Any], Sequence[str]]:
    schema, _, table = name.rpartition(".")

    def look(sync: Any) -> tuple[dict[str, Any], Sequence[str]]:
        inspector = inspect(sync)
        if not inspector.has_table(table, schema=schema or None):
            raise ConfigurationError(f"There is no table {name} to adopt. Without one, `postroad db migrate` creates it.")
        columns = {column["name"]: column for column in inspector.get_columns(table, schema=schema or None)}
        return columns, inspector.get_pk_constraint(table, schema=schema or None)["constrained_columns"]

    return await connection.run_sync(look)


def _match(name: str, columns: Mapping[str, Any]) -> dict[str, str]:
    by_lower = {column.lower(): column for column in columns}
    found = {}
    for ours in COLUMNS:
        for alias in ALIASES.get(ours, (ours,)):
            if alias in by_lower and by_lower[alias] not in found.values():
                found[ours] = by_lower[alias]
                break
    if missing := [ours for ours in _NEEDED if ours not in found]:
        raise ConfigurationError(
            f"{name} does not look like an outbox: no column for {', '.join(missing)} "
            f"(it has {', '.join(columns)}). Rename or add them first."
        )
    return found


def _payload_form(kind: Any) -> str:
    if isinstance(kind, types.JSON):
        return "json"
    return "text" if _is_text(kind) else "bytes"


def _is_text(kind: Any) -> bool:
    return isinstance(kind, types.String)
