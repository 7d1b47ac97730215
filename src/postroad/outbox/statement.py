"""The one statement that writes events through SQLAlchemy, for sessions and connections alike."""

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from postroad.errors import ConfigurationError, NoTransaction, VersionConflict
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

Row = dict[str, Any]


def execute(connection: Connection, store: Store, table: OutboxTable, rows: list[Row]) -> None:
    _refuse_other_database(connection, store)
    if _is_autocommit(connection):
        raise NoTransaction("This connection commits each statement by itself (AUTOCOMMIT). Use one that does not.")
    clause = store.clause("add_event", table)
    for row in rows if store.dialect == "mysql" else [rows]:
        try:
            connection.execute(clause, row)
        except SQLAlchemyError as error:
            if store.is_version_conflict(getattr(error, "orig", None) or error):
                raise conflict(row if isinstance(row, dict) else rows[0]) from None
            translated = store.translate(error)
            raise translated from (None if translated is error else error)


def _is_autocommit(connection: Connection) -> bool:
    level = connection.get_execution_options().get("isolation_level")
    return "AUTOCOMMIT" in (level, getattr(connection.dialect, "_on_connect_isolation_level", None))


def _refuse_other_database(connection: Connection, store: Store) -> None:
    found = connection.dialect.name.replace("mariadb", "mysql")
    if found != store.dialect:
        raise ConfigurationError(
            f"This session is on a {found} database, Postroad's tables are in {store.address}. "
            "The event and the business rows must be in the same one."
        )


def conflict(row: Row) -> VersionConflict:
    return VersionConflict(row["aggregate_type"], row["aggregate_id"], row["version"])
