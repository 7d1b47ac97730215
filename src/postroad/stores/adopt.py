"""Taking over an outbox table that was there before us: which column is which, and what has to be added."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import inspect, text, types
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
STATES: Final = {"NEW", "RETRY", "SENT", "FAILED", "SKIPPED"}
_NEEDED: Final = ("event_id", "event_type", "aggregate_type", "aggregate_id", "payload")
_ALWAYS_OURS: Final = ("ordering_key", "shard")
"""Compared and sorted by our own rules, whatever a column of that name means to others."""
_TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "postgresql": {
        "time": "timestamptz", "text": "text", "int": "int", "long": "bigint", "short": "smallint",
        "key": 'text COLLATE "C"', "extras": "text",
    },
    "mysql": {
        "time": "DATETIME(6)", "text": "VARCHAR(1024)", "int": "INT", "long": "BIGINT", "short": "SMALLINT",
        "key": "VARCHAR(520) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "extras": "MEDIUMTEXT",
    },
    "sqlite": {
        "time": "TEXT", "text": "TEXT", "int": "INTEGER", "long": "INTEGER", "short": "INTEGER",
        "key": "TEXT", "extras": "TEXT",
    },
}  # fmt: skip
_KINDS: Final = {
    "topic": ("text", ""),
    "version": ("long", ""),
    "schema_version": ("int", " NOT NULL DEFAULT 1"),
    "content_type": ("text", ""),
    "tenant_id": ("text", ""),
    "correlation_id": ("text", ""),
    "causation_id": ("text", ""),
    "attributes": ("extras", ""),
    "occurred_at": ("time", ""),
    "created_at": ("time", ""),
    "deliver_at": ("time", ""),
    "ordering_key": ("key", ""),
    "shard": ("short", ""),
    "state": ("short_text", " NOT NULL DEFAULT 'NEW'"),
    "attempts": ("int", " NOT NULL DEFAULT 0"),
    "next_attempt_at": ("time", ""),
    "last_error": ("text", ""),
    "published_at": ("time", ""),
}
_NOT_FILLED: Final = {"state": "'NEW'", "attempts": "0"}
"""What the add routine leaves to the column's default."""


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    outbox: OutboxTable
    statements: Sequence[str]
    """Empty when the table has been adopted already."""
    notes: Sequence[str]

    @property
    def python(self) -> str:
        """The line to paste into `Postroad(outboxes=[…])`."""
        parts = [repr(self.outbox.name), f"columns={dict(self.outbox.columns)!r}"]
        for name, usual in (("payload", "bytes"), ("ids", "native"), ("arrival", "")):
            if (value := getattr(self.outbox, name)) != usual:
                parts.append(f"{name}={value!r}")
        return f"OutboxTable({', '.join(parts)}, topic='your.topic.events')"


@dataclass(frozen=True, slots=True)
class _Found:
    """The table as it is."""

    name: str
    columns: Mapping[str, Any]
    key: Sequence[str]
    states: frozenset[str]
    """The values of what looks like its state column."""
    applied: frozenset[tuple[str, str]]

    @property
    def adopted(self) -> bool:
        return any(target == self.name and name.startswith("0002_outbox") for name, target in self.applied)


async def plan_adoption(store: Store, name: str) -> AdoptionPlan:
    async with store.reading() as connection:
        found = await _describe(store, connection, name)
    mapping = _match(store, found)
    outbox = _outbox(store, found, mapping)
    plan = _Plan(store, outbox, mapping, found)
    return AdoptionPlan(outbox, plan.statements(), plan.notes)


async def apply_adoption(store: Store, plan: AdoptionPlan) -> None:
    async with store.migrating() as connection:
        for statement in plan.statements:
            await connection.exec_driver_sql(statement)


class _Plan:
    def __init__(self, store: Store, outbox: OutboxTable, mapping: Mapping[str, str], found: _Found) -> None:
        self._store, self._outbox, self._mapping, self._found = store, outbox, mapping, found
        self.notes: list[str] = []

    def statements(self) -> list[str]:
        every = migrations.all_migrations(self._store, (self._outbox,))
        missing = [m for m in every if (m.name, m.target) not in self._found.applied]
        own = [m for m in missing if not m.target]
        create = [m for m in missing if m.name.startswith("0002_outbox")]
        rest = [m for m in missing if m not in own and m not in create]
        found = [migrations.migration_table(self._store), *_applied(self._store, own)] if own else []
        if create:
            found += [*self._repairs(), *self._additions(), *self._backfill()]
        # Ours minus the creation of the table, recorded as done, so that `db migrate` goes on from here.
        return found + [migrations.record(self._store, m) for m in create] + _applied(self._store, rest)

    def _repairs(self) -> list[str]:
        """What would make our inserts fail: columns we do not fill, and types that hold no text."""
        repairs = []
        for name, column in self._found.columns.items():
            if column["nullable"] or column["default"] is not None:
                continue
            if name not in self._mapping.values():
                repairs += self._default_for(name, column)
        for ours, default in _NOT_FILLED.items():
            theirs = self._found.columns.get(self._mapping.get(ours, ""))
            if theirs is not None and not theirs["nullable"] and theirs["default"] is None:
                repairs += self._set_default(theirs["name"], default)
        return repairs + self._as_text(self._mapping["aggregate_id"])

    def _default_for(self, name: str, column: Any) -> list[str]:
        table, quoted = self._fill("{outbox}"), self._store.syntax.quote(name)
        if name in self._found.key and isinstance(column["type"], types.Integer):
            if self._store.dialect == "sqlite" or column.get("autoincrement") is True:
                return []
            if self._store.dialect == "mysql":
                return [f"ALTER TABLE {table} MODIFY {quoted} BIGINT NOT NULL AUTO_INCREMENT"]
            return [f"ALTER TABLE {table} ALTER COLUMN {quoted} ADD GENERATED BY DEFAULT AS IDENTITY"]
        if isinstance(column["type"], types.DateTime):
            if self._store.dialect == "mysql":
                kind = "DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
                return [f"ALTER TABLE {table} MODIFY {quoted} {kind}"]
            return self._set_default(name, "CURRENT_TIMESTAMP")
        return self._set_default(name, None)

    def _set_default(self, name: str, default: str | None) -> list[str]:
        if default is None or self._store.dialect == "sqlite":
            self.notes.append(
                f"Column {name} is NOT NULL without a default and Postroad does not fill it: "
                "give it a default, or every `add` will fail."
            )
            return []
        quoted = self._store.syntax.quote(name)
        return [self._fill(f"ALTER TABLE {{outbox}} ALTER COLUMN {quoted} SET DEFAULT {default}")]

    def _as_text(self, name: str) -> list[str]:
        if self._store.dialect != "postgresql" or _is_text(self._found.columns[name]["type"]):
            return []
        quoted = self._store.syntax.quote(name)
        self.notes.append(f"Column {name} becomes text, because an aggregate id may be any text.")
        return [self._fill(f"ALTER TABLE {{outbox}} ALTER COLUMN {quoted} TYPE text USING CAST({quoted} AS text)")]

    def _additions(self) -> list[str]:
        kinds = {**_TYPES[self._store.dialect], "short_text": "VARCHAR(8)"}
        # Evaluated for each row in turn: the order of what is there already, and of what others will add.
        arrived = {"postgresql": " DEFAULT clock_timestamp()", "mysql": " DEFAULT (UTC_TIMESTAMP(6))"}
        added = []
        for ours in COLUMNS:
            if ours not in self._mapping:
                kind = kinds[_KINDS[ours][0]] + _KINDS[ours][1]
                kind += arrived.get(self._store.dialect, "") if ours == "occurred_at" else ""
                added.append(self._fill(f"ALTER TABLE {{outbox}} ADD COLUMN {{{ours}}} {kind}"))
        return added

    def _backfill(self) -> list[str]:
        """What was published counts as sent, and the counters stand where the rows do."""
        found = []
        if "state" not in self._mapping and "published_at" in self._mapping:
            found.append(self._fill("UPDATE {outbox} SET {state} = 'SENT' WHERE {published_at} IS NOT NULL"))
        if "version" not in self._mapping:
            self.notes.append("Rows have no version: waiting ones get theirs when a relay first sees them.")
            return found
        # Another adopted table may have counted the same aggregates.
        update = "version = CASE WHEN {versions}.version < {given} THEN {given} ELSE {versions}.version END"
        upsert = {
            "mysql": "ON DUPLICATE KEY UPDATE " + update.replace("{given}", "VALUES(version)"),
        }.get(
            self._store.dialect,
            "ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET " + update.replace("{given}", "excluded.version"),
        )
        highest = (
            "INSERT INTO {versions} (aggregate_type, aggregate_id, version) "
            "SELECT {aggregate_type}, {aggregate_id}, max({version}) FROM {outbox} "
            "WHERE {version} IS NOT NULL GROUP BY {aggregate_type}, {aggregate_id} "
        )
        return [*found, self._fill(highest + upsert)]

    def _fill(self, sql: str) -> str:
        return self._store.fill(sql, self._outbox)


def _applied(store: Store, done: Sequence[migrations.Migration]) -> list[str]:
    return [
        statement
        for migration in done
        for statement in (*migrations.for_driver(store, migration), migrations.record(store, migration))
    ]


async def _describe(store: Store, connection: AsyncConnection, name: str) -> _Found:
    schema, _, table = name.rpartition(".")

    def look(sync: Any) -> tuple[dict[str, Any], Sequence[str]]:
        inspector = inspect(sync)
        if not inspector.has_table(table, schema=schema or None):
            raise ConfigurationError(
                f"There is no table {name} to adopt. Without one, `postroad db migrate` creates it."
            )
        columns = {column["name"]: column for column in inspector.get_columns(table, schema=schema or None)}
        return columns, inspector.get_pk_constraint(table, schema=schema or None)["constrained_columns"]

    columns, key = await connection.run_sync(look)
    states: set[str] = set()
    if state := next((theirs for theirs in columns if theirs.lower() in ALIASES["state"]), None):
        quote = store.syntax.quote
        rows = await connection.execute(text(f"SELECT DISTINCT {quote(state)} FROM {quote(name)} LIMIT 20"))
        states = {str(row[0]) for row in rows}
    applied = await migrations.applied(store, connection)
    return _Found(name, columns, key, frozenset(states), frozenset(applied))


def _match(store: Store, found: _Found) -> dict[str, str]:
    """Our columns → theirs, where one of theirs can serve."""
    by_lower = {column.lower(): column for column in found.columns}
    mapping: dict[str, str] = {}
    for ours in COLUMNS:
        for alias in (f"postroad_{ours}", *ALIASES.get(ours, (ours,))):
            theirs = by_lower.get(alias)
            if theirs and theirs not in mapping.values() and _can_serve(store, ours, found.columns[theirs], found):
                mapping[ours] = theirs
                break
    if missing := [ours for ours in _NEEDED if ours not in mapping]:
        raise ConfigurationError(
            f"{found.name} does not look like an outbox: no column for {', '.join(missing)} "
            f"(it has {', '.join(found.columns)}). Rename or add them first."
        )
    return mapping


def _can_serve(store: Store, ours: str, column: Any, found: _Found) -> bool:
    kind = column["type"]
    if column["name"] == f"postroad_{ours}":
        return True
    if ours in _ALWAYS_OURS:
        return found.adopted
    if ours == "event_id":
        return not isinstance(kind, types.Integer)
    if ours == "state" and not found.states <= STATES:
        return False
    if ours not in _KINDS or store.dialect == "sqlite":
        return True
    return isinstance(
        kind,
        {"time": types.DateTime, "int": types.Integer, "long": types.Integer}.get(_KINDS[ours][0], types.String),
    ) and not isinstance(kind, types.Enum)


def _outbox(store: Store, found: _Found, mapping: Mapping[str, str]) -> OutboxTable:
    # A column of theirs that cannot serve keeps its name; ours stands beside it.
    taken = {column.lower() for column in found.columns}
    own: dict[str, str] = {ours: f"postroad_{ours}" for ours in COLUMNS if ours not in mapping and ours in taken}
    outbox = OutboxTable(
        found.name,
        columns={ours: theirs for ours, theirs in {**mapping, **own}.items() if ours != theirs},
        payload=_payload_form(found.columns[mapping["payload"]]["type"]),
        ids="text" if _is_text(found.columns[mapping["event_id"]]["type"]) and store.dialect != "sqlite" else "native",
    )
    return replace(outbox, arrival=_arrival(store, found))


def _arrival(store: Store, found: _Found) -> str:
    """Times may be equal and ids random; a number that counts the rows is neither."""
    if len(found.key) == 1 and isinstance(found.columns[found.key[0]]["type"], types.Integer):
        return found.key[0]
    return "rowid" if store.dialect == "sqlite" else ""


def _payload_form(kind: Any) -> str:
    if isinstance(kind, types.JSON):
        return "json"
    return "text" if _is_text(kind) else "bytes"


def _is_text(kind: Any) -> bool:
    return isinstance(kind, types.String)
