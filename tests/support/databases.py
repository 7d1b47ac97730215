"""A fresh, empty database per test, dropped when the test ends, whoever is still connected to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import psycopg
import pymysql


@contextmanager
def fresh_postgresql(server: str) -> Iterator[str]:
    name = _new_name()
    with psycopg.connect(server, autocommit=True) as admin:
        # WAL_LOG spares the checkpoint of the older strategy, which would cost more than the copy.
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY wal_log")
    try:
        yield _on_database(server, name)
    finally:
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextmanager
def fresh_mariadb(server: str) -> Iterator[str]:
    name = _new_name()
    with mariadb_admin(server) as admin, admin.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    try:
        yield _on_database(server, name)
    finally:
        with mariadb_admin(server) as admin, admin.cursor() as cursor:
            # A transaction left open would hold the drop back by its metadata lock.
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", [name])
            for (connection_id,) in cursor.fetchall():
                _kill(cursor, connection_id)
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")


def _kill(cursor: pymysql.cursors.Cursor, connection_id: int) -> None:
    try:
        cursor.execute(f"KILL {connection_id}")
    except pymysql.err.MySQLError as error:
        if error.args[0] != pymysql.constants.ER.NO_SUCH_THREAD:  # it went by itself
            raise


def mariadb_admin(url: str) -> pymysql.Connection:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        autocommit=True,
    )


def _new_name() -> str:
    return f"postroad_test_{uuid4().hex[:16]}"


def _on_database(server: str, name: str) -> str:
    return urlsplit(server)._replace(path=f"/{name}").geturl()
