"""The one statement that writes events through SQLAlchemy, for sessions and connections alike."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from postroad.errors import ConfigurationError, NoTransaction, VersionConflict
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

Row = dict[str, Any]

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def execute(connection: Connection, store: Store, table: OutboxTable, rows: Sequence[Row]) -> None:
    _refuse_other_database(connection, store)
    if _is_autocommit(connection):
        raise NoTransaction("This connection commits each statement by itself (AUTOCOMMIT). Use one that does not.")
    clause = store.clause("add_event", table)
    for batch in _batches(store, rows):
        try:
            connection.execute(clause, batch)
        except SQLAlchemyError as error:
            origin = getattr(error, "orig", None) or error
            if store.is_version_conflict(origin):
                raise conflict(_culprit(batch, str(origin))) from None
            translated = store.translate(error)
            raise translated from (None if translated is error else error)


def _batches(store: Store, rows: Sequence[Row]) -> Iterator[list[Row]]:
    """As few calls as possible, and always so that a row that is refused can be told."""
    given = sum(row["version"] is not None for row in rows)
    if store.rows_at_once and (store.names_refused_row or given < 2):
        yield list(rows)
    else:
        for row in rows:
            yield [row]


def _culprit(batch: Sequence[Row], text: str) -> Row:
    """The row whose version was refused; PostgreSQL tells its id, elsewhere only one row can be meant."""
    told = _ID.findall(text)
    for row in batch:
        if str(row["event_id"]) in told:
            return row
    return next((row for row in batch if row["version"] is not None), batch[0])


def _is_autocommit(connection: Connection) -> bool:
    level = connection.get_execution_options().get("isolation_level")
    return "AUTOCOMMIT" in (level, getattr(connection.dialect, "_on_connect_isolation_level", None))


def _refuse_other_database(connection: Connection, store: Store) -> None:
    engine = connection.engine
    if engine in store.beside_us:
        return
    found = connection.dialect.name.replace("mariadb", "mysql")
    if found != store.dialect:
        raise ConfigurationError(
            f"This session is on a {found} database, Postroad's tables are in {store.address}. "
            "The event and the business rows must be in the same one."
        )
    # Only if the URL does not say so, and once for each engine: behind a proxy a database may have another name.
    if not engine.url.database or not store.is_ours(engine.url.database):
        store.refuse_other(connection.exec_driver_sql(store.databases_sql).scalars().all())
    store.beside_us.add(engine)


def conflict(row: Row) -> VersionConflict:
    return VersionConflict(row["aggregate_type"], row["aggregate_id"], row["version"])
