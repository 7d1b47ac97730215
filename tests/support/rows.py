"""Rows as they lie in a store's tables: put there and read back without the code that would make them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import text

from postroad.stores import Store
from postroad.stores.tables import DEFAULT_OUTBOX

Row = dict[str, Any]
PAST, LONG_PAST, FUTURE = (datetime(year, 1, 1, tzinfo=UTC) for year in (2001, 2000, 2999))
_IDS: Final = ("event_id", "command_id", "token")
_TIMES: Final = ("_at", "_until", "_seen")
_DERIVED: Final = "unsent_"
"""Columns that MySQL keeps by itself, for want of partial indexes."""
_CLOSE: Final = timedelta(minutes=10)


def number(n: int) -> UUID:
    """With a time in it, so that no table takes it for another's id."""
    return UUID(int=(0x0190_0000_0000_7000_8000 << 48) + n)


@dataclass(frozen=True)
class From:
    """What is written by the database's clock: now, or so many seconds from now, give or take ten minutes."""

    seconds: float = 0.0

    def fits(self, value: object, now: datetime) -> bool:
        return isinstance(value, datetime) and abs(value - now - timedelta(seconds=self.seconds)) < _CLOSE


@dataclass(frozen=True)
class Table:
    """By the name it has in the statements; what a row has in it unless somebody says, and which columns name it."""

    name: str
    usual: Mapping[str, Any]
    key: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.key[-1]

    async def put(self, store: Store, *rows: Mapping[str, Any]) -> None:
        """All at once; each has something to say of the same columns."""
        values = [{name: store.adapt(value) for name, value in (*self.usual.items(), *row.items())} for row in rows]
        columns, marks = ", ".join(values[0]), ", ".join(f":{name}" for name in values[0])
        numbered = "OVERRIDING SYSTEM VALUE " * (store.dialect == "postgresql")
        sql = store.fill(f"INSERT INTO {{{self.name}}} ({columns}) {numbered}VALUES ({marks})", DEFAULT_OUTBOX)
        async with store.transaction() as connection:
            await connection.execute(text(sql), values)

    async def rows(self, store: Store) -> dict[tuple[Any, ...], Row]:
        async with store.reading() as connection:
            sql = store.fill(f"SELECT * FROM {{{self.name}}}", DEFAULT_OUTBOX)
            found = [_read(store, row._mapping) for row in (await connection.execute(text(sql))).fetchall()]
        return {tuple(row[name] for name in self.key): row for row in found}


def _read(store: Store, row: Mapping[str, Any]) -> Row:
    return {name: _value(store, name, value) for name, value in row.items() if not name.startswith(_DERIVED)}


def _value(store: Store, name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _IDS:
        return store.id_out(value)
    return store.time_out(value) if name.endswith(_TIMES) else value


@dataclass(frozen=True)
class Change:
    """What a statement does to the one row that it is about, and what must not be different for it to do anything."""

    statement: str
    table: Table
    row: Row
    asked: Row
    becomes: Row
    unless: tuple[Row, ...] = ()
    """Each by itself is reason enough to leave the row alone."""


@dataclass(frozen=True)
class Addition:
    """What a statement makes a new row of; whoever is there already is not touched by it."""

    statement: str
    table: Table
    asked: Row
    becomes: Row


@dataclass(frozen=True)
class Search:
    """What a statement finds of a table's rows, in its order, and what it leaves for one thing that is different."""

    statement: str
    table: Table
    asked: Row
    row: Row = field(default_factory=dict)
    """What all of them have in them."""
    found: tuple[Row, ...] = ({},)
    left: tuple[Row, ...] = ()
    beside: tuple[tuple[Table, Row], ...] = ()
    ordered: bool = True

    async def put(self, store: Store) -> list[UUID]:
        """All rows, what is found in reverse; the ids of what is to be found."""
        rows = [numbered(self.table, n, self.row | row) for n, row in enumerate((*self.found, *self.left), 1)]
        wanted = rows[: len(self.found)]
        for row in (*rows[len(wanted) :], *reversed(wanted)):
            await self.table.put(store, row)
        for table, row in self.beside:
            await table.put(store, row)
        return [row[self.table.id] for row in wanted]

    async def ask(self, store: Store, **asked: Any) -> list[Any]:
        return await told(store, self.statement, **{**self.asked, **asked})


def numbered(table: Table, n: int, row: Row) -> Row:
    own: Row = {table.id: number(n)} if table.id in _IDS else {}
    if table in (COMMANDS, EVENTS):
        own["seq"] = 100 + n
    if table in (OUTBOX, COMMANDS, EVENTS):
        own["aggregate_id"] = f"a{n}"
    return own | row


async def put(store: Store, table: Table, *rows: Row, **all_of_them: Any) -> None:
    """Numbered from 1, each of an aggregate of its own unless it says otherwise."""
    for n, row in enumerate(rows, 1):
        await table.put(store, numbered(table, n, all_of_them | row))


async def told(store: Store, statement: str, **asked: Any) -> list[Any]:
    return list((await store.read(statement, DEFAULT_OUTBOX, **asked)).rows)


async def expect_found(store: Store, search: Search) -> None:
    """With everything there at once; each row that is left would be found if it were not for the one thing."""
    assert await search.ask(store) == []
    wanted = await search.put(store)
    found = ids(store, rows := await search.ask(store))
    assert (found if search.ordered else sorted(found)) == (wanted if search.ordered else sorted(wanted))
    assert {getattr(row, "total", len(wanted)) for row in rows} == {len(wanted)}
    if "limit" in search.asked:
        (first,) = await search.ask(store, limit=1)
        assert ids(store, [first])[0] in (wanted[:1] if search.ordered else wanted)
        assert getattr(first, "total", len(wanted)) == len(wanted)


def ids(store: Store, rows: Sequence[Any]) -> list[UUID]:
    columns = ("event_id", "command_id", "id")
    return [store.id_out(next(getattr(row, name) for name in columns if hasattr(row, name))) for row in rows]


OUTBOX: Final = Table(
    "outbox",
    {
        "event_id": number(1), "topic": "office.parcel.events", "event_type": "parcel.posted",
        "aggregate_type": "parcel", "aggregate_id": "a", "version": 1, "payload": b"{}", "occurred_at": PAST,
        "ordering_key": "parcel/a", "shard": 5, "state": "NEW",
    },
    ("event_id",),
)  # fmt: skip
INBOX: Final = Table(
    "inbox",
    {
        "consumer_group": "receipts", "event_id": number(1), "tenant_id": "acme", "event_type": "parcel.posted",
        "topic": "office.parcel.events", "ordering_key": "parcel/a", "version": 1, "status": 1, "epoch": 3,
        "retry_count": 2, "received_at": PAST, "processed_at": PAST,
    },
    ("consumer_group", "event_id"),
)  # fmt: skip
COMMANDS: Final = Table(
    "commands",
    {
        "command_id": number(1), "command_type": "Command.Office.Parcel.Post", "aggregate_type": "parcel",
        "aggregate_id": "a", "payload": b"{}", "correlation_id": "c", "status": "COMPLETED", "epoch": 3,
        "retry_count": 2, "created_at": PAST, "finished_at": PAST,
    },
    ("command_id",),
)  # fmt: skip
EVENTS: Final = Table(
    "domain_events",
    {
        "event_id": number(1), "event_type": "parcel.posted", "aggregate_type": "parcel", "aggregate_id": "a",
        "aggregate_version": 1, "topic": "office.parcel.events", "schema_version": 1, "payload": b"{}",
        "content_type": "application/json", "occurred_at": PAST,
    },
    ("event_id",),
)  # fmt: skip
HANDLERS: Final = Table(
    "handlers",
    {"consumer_group": "receipts", "event_type": "parcel.posted", "first_seen": LONG_PAST, "last_seen": PAST},
    ("consumer_group", "event_type"),
)
AUDIT: Final = Table(
    "audit", {"at": PAST, "actor": "ann", "action": "repair.command", "subject": str(number(1))}, ("id",)
)
PROJECTIONS: Final = Table("projections", {"name": "shelf", "generation": 4}, ("name",))
JOURNAL: Final = Table("journal", {"position": 1, "projection": "shelf", "message": b"{}"}, ("position",))
BACKFILLS: Final = Table("backfills", {"name": "shelf", "started_at": PAST}, ("name",))
