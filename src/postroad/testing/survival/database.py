"""The user's database between and after the runs: emptied, aged, and asked what was committed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, MetaData, inspect, text

from postroad.app import Postroad
from postroad.commands import CommandRecord
from postroad.commands.record import record_of
from postroad.errors import ConfigurationError
from postroad.inbox import Record
from postroad.inbox.records import Records
from postroad.message import ordering_key
from postroad.stores.base import TABLES, Store
from postroad.stores.sqlite.driver import SQLite
from postroad.stores.tables import OutboxTable

LONG_AGO: Final = "2000-01-01 00:00:00"
_MARK: Final = "postroad_testing"
"""A table that says: whatever else is in this database was left by earlier runs, and may go."""
_EVERYTHING: Final = 1_000_000
_BEYOND: Final = 2**62
"""More than any number of a row."""


@dataclass(frozen=True, slots=True)
class Written:
    """An event that was committed."""

    id: UUID
    type: str
    aggregate_type: str
    aggregate_id: str
    state: str

    @property
    def key(self) -> str:
        return ordering_key(self.aggregate_type, self.aggregate_id)

    @property
    def parked(self) -> bool:
        return self.state == "FAILED"

    def __str__(self) -> str:
        return f"{self.type} {self.aggregate_id}"


async def written(store: Store, outboxes: Sequence[OutboxTable]) -> list[Written]:
    found: list[Written] = []
    async with store.reading() as connection:
        for outbox in outboxes:
            rows = await connection.execute(
                text(
                    store.fill(
                        "SELECT {o}.{event_id} AS id, {o}.{event_type} AS type, {o}.{aggregate_type} AS aggregate_type,"
                        " {o}.{aggregate_id} AS aggregate_id, d.{state} AS state FROM {delivery} d {join_facts}"
                        " WHERE d.{state} <> 'SKIPPED'",
                        outbox,
                    )
                )
            )
            found += [
                Written(store.id_out(row.id), row.type, row.aggregate_type, str(row.aggregate_id), row.state)
                for row in rows
            ]
    return found


async def records(store: Store) -> dict[tuple[str, UUID], Record]:
    return {(record.group, record.event_id): record for record in await Records(store).list(limit=_EVERYTHING)}


async def commands(road: Postroad) -> dict[UUID, CommandRecord]:
    """Those that this service carries out."""
    if not road.commands.handled:
        return {}
    found = await road.store.read("command_list", type="", before=_BEYOND, limit=_EVERYTHING)
    kept = (record_of(row, road.store) for row in found.rows)
    return {one.command_id: one for one in kept if one.command_type in road.commands.handled}


async def end_leases(store: Store) -> None:
    """As if those who hold something had been silent for longer than their leases last."""
    async with store.transaction() as connection:
        for sql in (
            "UPDATE {shards} SET expires_at = :then WHERE token IS NOT NULL",
            "UPDATE {workers} SET seen_at = :then",
            "UPDATE {inbox} SET locked_until = :then WHERE status = 0 AND locked_until IS NOT NULL",
            "UPDATE {commands} SET locked_until = :then WHERE status = 'PROCESSING'",
        ):
            await connection.execute(text(store.fill(sql)), {"then": LONG_AGO})


async def end_pauses(store: Store, outboxes: Sequence[OutboxTable]) -> None:
    """As if the time of every next try had come, and that of whoever died in the midst of a command had passed."""
    commands = "UPDATE {commands} SET next_retry_at = :then WHERE next_retry_at IS NOT NULL"
    held = "UPDATE {commands} SET locked_until = :then WHERE status = 'PROCESSING'"
    inbox = "UPDATE {inbox} SET next_retry_at = :then WHERE next_retry_at IS NOT NULL"
    delivery = (
        "UPDATE {delivery} SET {next_attempt_at} = :then WHERE {next_attempt_at} IS NOT NULL AND {state} = 'RETRY'"
    )
    async with store.transaction() as connection:
        for sql in (inbox, commands, held):
            await connection.execute(text(store.fill(sql)), {"then": LONG_AGO})
        for outbox in outboxes:
            await connection.execute(text(store.fill(delivery, outbox)), {"then": LONG_AGO})


async def empty(store: Store, outboxes: Sequence[OutboxTable]) -> None:
    """Postroad's tables stay, without their rows; the user's go. Refuses a database that holds anybody's rows."""
    ours = {*TABLES.values(), *(name for table in outboxes for name in (table.name, table.delivery))}
    async with store.transaction() as connection:
        await connection.run_sync(_empty, store, ours)


def _empty(connection: Connection, store: Store, ours: set[str]) -> None:
    names = set(inspect(connection).get_table_names())
    if _MARK not in names:
        _refuse_rows(connection, store, names)
        connection.exec_driver_sql(f"CREATE TABLE {_MARK} (note VARCHAR(80))")
    theirs = MetaData()
    theirs.reflect(connection, only=lambda name, _: name not in ours and name != _MARK)
    theirs.drop_all(connection)
    for name in names & ours - {TABLES["migrations"]}:
        quoted = store.syntax.quote(name)
        if name == TABLES["shards"]:
            connection.exec_driver_sql(f"UPDATE {quoted} SET token = NULL, owner = NULL, expires_at = NULL, epoch = 0")
        else:
            connection.exec_driver_sql(f"DELETE FROM {quoted}")


def _refuse_rows(connection: Connection, store: Store, names: set[str]) -> None:
    for name in sorted(names - {TABLES["migrations"], TABLES["shards"]}):
        if connection.exec_driver_sql(f"SELECT 1 FROM {store.syntax.quote(name)} LIMIT 1").first():
            raise ConfigurationError(
                f"{store.address} is not empty: there are rows in {name}. `survives` empties its database before each "
                "run, so it only takes one that holds nothing. Let your build function take the database_url it is "
                "given, or create a database for this test."
            )


async def effects(store: Store, outboxes: Sequence[OutboxTable]) -> list[tuple[Any, ...]]:
    """Every row in the user's own tables, behind the name of its table."""
    ours = {*TABLES.values(), *(name for table in outboxes for name in (table.name, table.delivery)), _MARK}
    async with store.reading() as connection:
        return await connection.run_sync(_effects, store, ours)


def _effects(connection: Connection, store: Store, ours: set[str]) -> list[tuple[Any, ...]]:
    return [
        (name, *row)
        for name in sorted(set(inspect(connection).get_table_names()) - ours)
        for row in connection.exec_driver_sql(f"SELECT * FROM {store.syntax.quote(name)}")
    ]


def hurry(store: Store) -> None:
    """For a SQLite file that nobody will miss: no waiting for the disk."""
    assert isinstance(store, SQLite)
    store.pragmas.append("synchronous = OFF")


async def query(store: Store, sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The user's own statement: a table that it misses is not one of ours, so errors stay as they are."""
    async with store.engine.connect() as connection:
        await connection.execution_options(**store.read_options)
        return [tuple(row) for row in await connection.execute(text(sql), values)]
