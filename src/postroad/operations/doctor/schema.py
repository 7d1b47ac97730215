"""Tables, routines and keys as the migrations make them."""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from postroad.operations.doctor.finding import Level, Problem
from postroad.stores import Store, migrations
from postroad.stores.base import TABLES
from postroad.stores.migrations import Migration
from postroad.stores.tables import OutboxTable

if TYPE_CHECKING:
    from postroad.app import Postroad

_NAME: Final = r'[\w."`]+'
_TABLE: Final = re.compile(rf"CREATE TABLE ({_NAME}) \((.*)\)", re.DOTALL)
_KEY: Final = re.compile(r"^\s*(?:PRIMARY KEY|UNIQUE) \(([^)]*)\)|^\s*(\w+) .*(?:PRIMARY KEY|UNIQUE),?$", re.MULTILINE)
_WITHIN: Final = r"\((?:[^()]|\([^()]*\))*\)"
_INDEX: Final = re.compile(rf"CREATE (UNIQUE )?INDEX ({_NAME}) ON ({_NAME}) \(((?:[^()]|{_WITHIN})*)\)")
_ADDED: Final = re.compile(rf"ALTER TABLE ({_NAME})\s.*\bADD INDEX ({_NAME}) \(((?:[^()]|{_WITHIN})*)\)", re.DOTALL)
_LENGTH: Final = re.compile(r"\(\d+\)")
"""Of a long text MySQL takes so many characters into an index."""
_EXPRESSION: Final = re.compile(rf"\w+{_WITHIN}")
"""No column: the database's catalogue passes it over, too."""
_ROUTINE: Final = re.compile(rf"CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE|VIEW|TRIGGER) ({_NAME})")


@dataclass(frozen=True, slots=True)
class Key:
    table: str
    columns: tuple[str, ...]
    name: str
    """Of an index that is only for looking up; a unique key may have any."""
    statement: str
    """What would create it."""

    @property
    def unique(self) -> bool:
        return not self.name


async def tables(road: "Postroad") -> AsyncIterator[Problem]:
    store = road.store
    if pending := await migrations.pending(store, road.outboxes):
        cause = f"{len(pending)} migrations are missing, the first is {pending[0]}."
        yield Problem(Level.FAULT, cause, "Apply them.", "postroad db migrate")
        return
    async with store.reading() as connection:
        for table in _tables(road.outboxes):
            if not await store.has_table(connection, table):
                cause = f"The table {table} is missing, although its migration was applied."
                yield Problem(Level.FAULT, cause, "Restore it from a backup, or create it.", _SCRIPT)
        for name in routines(store, road.outboxes):
            schema, _, routine = name.rpartition(".")
            found = await store.execute(connection, "catalog_routine", schema_name=schema, routine_name=routine)
            if not found.rows:
                cause = f"The routine {name} is missing, although its migration was applied (a dump may omit it)."
                yield Problem(Level.FAULT, cause, "Create it.", _SCRIPT)


_SCRIPT: Final = "postroad db sql --all"


async def keys(road: "Postroad") -> AsyncIterator[Problem]:
    store = road.store
    async with store.reading() as connection:
        for wanted in expected_keys(store, road.outboxes):
            schema, _, table = wanted.table.rpartition(".")
            rows = (await store.execute(connection, "catalog_keys", schema_name=schema, table_name=table)).rows
            if not any(serves(row, wanted) for row in rows):
                yield _missing(wanted)


def serves(row: Any, wanted: Key) -> bool:
    """Whether an index does what the wanted one is for."""
    columns = tuple(str(row.covers or "").split(","))
    if not row.is_valid:
        return False
    if wanted.unique:
        return bool(row.is_unique) and not row.is_partial and columns == wanted.columns
    # By its name too: some statements ask for it by name, and two may differ in nothing but which rows they hold.
    return row.name == wanted.name and columns == wanted.columns


def _missing(key: Key) -> Problem:
    told = f"{key.table} ({', '.join(key.columns)})"
    if key.unique:
        cause = f"There is no unique key on {told}: the same event can be stored and handled twice."
        return Problem(Level.FAULT, cause, "Remove what is there twice, then create the key.", key.statement)
    cause = f"There is no index on {told}: what is looked up by it walks through the whole table."
    return Problem(Level.FAULT, cause, "Create it.", key.statement)


def expected_keys(store: Store, outboxes: Sequence[OutboxTable]) -> list[Key]:
    found: list[Key] = []
    for migration in migrations.all_migrations(store, outboxes):
        if migration.outbox and migration.outbox.adopted and migration.name.startswith("0002_"):
            # The table was there before us; all we need of its keys is that an event is in it once.
            found.append(_unique(migration.target, (migration.outbox.columns.get("event_id", "event_id"),)))
        else:
            found += _keys_of(migration)
    # An index that was made anew under its name counts as it is now.
    return list({(key.table, key.name or key.columns): key for key in found}.values())


def routines(store: Store, outboxes: Sequence[OutboxTable]) -> list[str]:
    texts = [text for one in migrations.all_migrations(store, outboxes) for text in one.statements]
    return list(dict.fromkeys(_bare(name) for text in texts for name in _ROUTINE.findall(text)))


def _tables(outboxes: Sequence[OutboxTable]) -> list[str]:
    return list(dict.fromkeys([*TABLES.values(), *(t for one in outboxes for t in (one.name, one.delivery))]))


def _keys_of(migration: Migration) -> Iterator[Key]:
    for statement in migration.statements:
        if created := _TABLE.search(statement):
            for together, alone in _KEY.findall(created[2]):
                yield _unique(_bare(created[1]), _columns(together or alone))
        if index := _INDEX.search(statement):
            text = statement[index.start() :].removesuffix(";")
            yield Key(_bare(index[3]), _columns(index[4]), "" if index[1] else _bare(index[2]), text)
        elif added := _ADDED.search(statement):
            text = f"CREATE INDEX {added[2]} ON {added[1]} ({added[3]})"
            yield Key(_bare(added[1]), _columns(added[3]), _bare(added[2]), text)


def _unique(table: str, columns: tuple[str, ...]) -> Key:
    name = "_".join((table.rpartition(".")[2], *columns))
    return Key(table, columns, "", f"CREATE UNIQUE INDEX {name[:60]} ON {table} ({', '.join(columns)})")


def _columns(listed: str) -> tuple[str, ...]:
    columns = _EXPRESSION.sub("", _LENGTH.sub("", listed)).split(",")
    return tuple(_bare(column.strip()) for column in columns if column.strip())


def _bare(name: str) -> str:
    return name.replace('"', "").replace("`", "")
