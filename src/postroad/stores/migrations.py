"""Numbered SQL files per store, applied once each; files about an outbox, once for each outbox table."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.errors import ConfigurationError, SchemaMissing
from postroad.stores.base import MIGRATE, Store
from postroad.stores.tables import OutboxTable

_SEPARATOR = "-- next\n"


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    outbox: OutboxTable | None
    statements: tuple[str, ...]

    @property
    def target(self) -> str:
        return self.outbox.name if self.outbox else ""

    def __str__(self) -> str:
        return f"{self.name} ({self.target})" if self.target else self.name


def all_migrations(store: Store, outboxes: Sequence[OutboxTable]) -> list[Migration]:
    folder = resources.files(__package__).joinpath(store.dialect, "migrations")
    found = []
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        name, source = file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")
        about_outbox = name.split("_")[1] == "outbox"
        for outbox in outboxes if about_outbox else (None,):
            if outbox is None or _fits(name, outbox):
                parts = store.fill(source, outbox).split(_SEPARATOR)
                found.append(Migration(name, outbox, tuple(part.strip() for part in parts)))
    return found


def _fits(name: str, outbox: OutboxTable) -> bool:
    if name.endswith("_in_row"):
        return not outbox.append_only
    return outbox.append_only or not name.endswith("_append_only")


async def pending(store: Store, outboxes: Sequence[OutboxTable]) -> list[Migration]:
    async with store.reading() as connection:
        done = await applied(store, connection)
    return [m for m in all_migrations(store, outboxes) if (m.name, m.target) not in done]


async def migrate(store: Store, outboxes: Sequence[OutboxTable]) -> list[Migration]:
    """Apply what is missing; what was applied. Two processes may call this at once."""
    new = []
    async with store.migrating() as connection:
        if not await store.has_table(connection, "postroad_migration"):
            await connection.execute(text(migration_table(store)))
        done = await applied(store, connection)
        for migration in all_migrations(store, outboxes):
            if (migration.name, migration.target) not in done:
                await _apply(store, connection, migration, resuming=(_begun(migration), migration.target) in done)
                new.append(migration)
    return new


async def require_current(store: Store, outboxes: Sequence[OutboxTable]) -> None:
    """Raises SchemaMissing with the command that helps."""
    if missing := await pending(store, outboxes):
        raise SchemaMissing(
            f"The schema in {store.address} lacks {len(missing)} migration{'s' * (len(missing) > 1)} "
            f"(first: {missing[0]}). {MIGRATE}"
        )


def script(store: Store, migrations: Sequence[Migration]) -> str:
    """The migrations as one text for a console, for teams whose database takes only reviewed scripts."""
    lines = [f"{migration_table(store)};"] if migrations else []
    for migration in migrations:
        lines.append(f"\n-- {migration}")
        lines += [store.for_console(statement) for statement in migration.statements]
        lines.append(record(store, migration))
    return "\n".join(lines)


def migration_table(store: Store) -> str:
    time = {"postgresql": "timestamptz", "mysql": "DATETIME(6)", "sqlite": "TEXT"}[store.dialect]
    return store.fill(
        "CREATE TABLE IF NOT EXISTS {migrations} (name VARCHAR(128) NOT NULL, target VARCHAR(128) NOT NULL, "
        f"applied_at {time} NOT NULL, PRIMARY KEY (name, target))"
    )


def record(store: Store, migration: Migration) -> str:
    return store.fill(
        "INSERT INTO {migrations} (name, target, applied_at) "
        f"VALUES ('{migration.name}', '{migration.target}', CURRENT_TIMESTAMP);"
    )


def for_driver(store: Store, migration: Migration) -> list[str]:
    """Its statements as a driver takes them: a MySQL routine keeps its last semicolon."""
    return [s if store.dialect == "mysql" else s.rstrip(";") for s in migration.statements]


async def applied(store: Store, connection: AsyncConnection) -> set[tuple[str, str]]:
    if not await store.has_table(connection, "postroad_migration"):
        return set()
    return {(row.name, row.target) for row in (await store.execute(connection, "migrations_applied")).rows}


async def _apply(store: Store, connection: AsyncConnection, migration: Migration, resuming: bool) -> None:
    if migration.name.startswith("0002_outbox") and not resuming:
        await _refuse_foreign_table(store, connection, migration)
    if store.ddl_commits and not resuming:
        # The first change commits this with it: if we die before the end, the next run knows that this one began.
        await _record(store, connection, _begun(migration), migration.target)
    for statement in for_driver(store, migration):
        try:
            await connection.exec_driver_sql(statement)
        except DBAPIError as error:
            if not (resuming and store.code_of(error) in store.there_already_codes):
                raise
    await _record(store, connection, migration.name, migration.target)
    if store.ddl_commits:
        await store.execute(connection, "migration_forget", name=_begun(migration), target=migration.target)


async def _refuse_foreign_table(store: Store, connection: AsyncConnection, migration: Migration) -> None:
    if await store.has_table(connection, migration.target):
        raise ConfigurationError(
            f"The table {migration.target} is there already and is not one of Postroad's. "
            f"Run: postroad db adopt {migration.target}"
        )


async def _record(store: Store, connection: AsyncConnection, name: str, target: str) -> None:
    await store.execute(connection, "migration_record", name=name, target=target, now=store.clock.now())


def _begun(migration: Migration) -> str:
    """Stands in the table of migrations while one is under way."""
    return f"begun {migration.name}"
