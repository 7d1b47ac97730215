"""A database per store that lasts for the whole run and is emptied for each test.

Creating and migrating one takes a second, emptying it a few milliseconds.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import inspect

from postroad.events import event
from postroad.stores import Store
from postroad.stores.base import TABLES
from postroad.stores.migrations import migrate
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable
from postroad.testing.office import Posted
from tests.support.components import address
from tests.support.databases import fresh_mariadb, fresh_postgresql

APPEND_ONLY = OutboxTable("postroad_facts", append_only=True)
SECOND = OutboxTable("postroad_second")
ALL_TABLES = (DEFAULT_OUTBOX, APPEND_ONLY, SECOND)


@event("parcel.weighed", topic="office.parcel.events", aggregate="parcel", key="parcel", outbox="postroad_second")
class Weighed(Posted, frozen=True):
    """Goes to the second outbox."""


@event("office.opened", topic="office.parcel.events", aggregate="office")
class Opened(Posted, frozen=True):
    """Has no key: stands alone under its own id."""


async def until(condition: Callable[[], object]) -> None:
    """For what gives no signal; a minute is never reached."""
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0.002)


class Recycled:
    """The URL of each store's lasting database, made when first asked for."""

    def __init__(self, folder: Path, databases: ExitStack) -> None:
        self._folder, self._databases = folder, databases
        self._urls: dict[str, str] = {}

    def url(self, kind: str) -> str:
        if kind not in self._urls:
            self._urls[kind] = self._create(kind)
        return self._urls[kind]

    def _create(self, kind: str) -> str:
        return self._databases.enter_context(fresh_database(kind, self._folder))


@contextmanager
def fresh_database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'recycled.db'}"
        return
    with (fresh_postgresql if kind == "postgresql" else fresh_mariadb)(address(kind)) as url:
        yield url


@contextmanager
def recycled_databases(folder: Path) -> Iterator[Recycled]:
    with ExitStack() as databases:
        yield Recycled(folder, databases)


async def emptied(store: Store) -> Store:
    """The store with Postroad's tables, all of them empty, and no others."""
    await migrate(store, ALL_TABLES)
    ours = {*TABLES.values(), *(name for table in ALL_TABLES for name in (table.name, table.delivery))}
    async with store.transaction() as connection:
        # A view of a table that is gone would keep SQLite from renaming any other.
        for name in await connection.run_sync(lambda sync: inspect(sync).get_view_names()):
            if name not in {f"{table.name}_add" for table in ALL_TABLES}:
                await connection.exec_driver_sql(f"DROP VIEW {name}")
        for name in await connection.run_sync(lambda sync: inspect(sync).get_table_names()):
            if name not in ours:
                await connection.exec_driver_sql(f"DROP TABLE {name}")
            elif name == "postroad_shard":
                await connection.exec_driver_sql(
                    f"UPDATE {name} SET token = NULL, owner = NULL, expires_at = NULL, epoch = 0"
                )
            elif name != "postroad_migration":
                await connection.exec_driver_sql(f"DELETE FROM {name}")
    return store
