"""A fresh, empty database per test, dropped when the test ends, whoever is still connected to it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
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
        ssl_disabled=True,  # else each connection first reads the certificates of all authorities
    )


@contextmanager
def plain_postgresql_user(url: str) -> Iterator[str]:
    """The database's owner, and nothing more."""
    name = f"plain_{uuid4().hex[:8]}"
    parts = urlsplit(url)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN")
        admin.execute(f"ALTER DATABASE {parts.path[1:]} OWNER TO {name}")
        admin.execute(f"GRANT ALL ON SCHEMA public TO {name}")
        try:
            yield parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port}").geturl()
        finally:
            admin.execute(f"ALTER DATABASE {parts.path[1:]} OWNER TO CURRENT_USER")
            admin.execute(f"DROP OWNED BY {name} CASCADE")
            admin.execute(f"DROP ROLE {name}")


@contextmanager
def plain_mariadb_user(url: str) -> Iterator[tuple[str, pymysql.cursors.Cursor]]:
    """With all rights in the database, and an administrator's cursor to give more."""
    name = f"plain_{uuid4().hex[:8]}"
    parts = urlsplit(url)
    with closing(mariadb_admin(url)) as admin, admin.cursor() as cursor:
        cursor.execute(f"CREATE USER {name}@'%' IDENTIFIED BY 'pw'")
        cursor.execute(f"GRANT ALL ON `{parts.path[1:]}`.* TO {name}@'%'")
        try:
            yield parts._replace(netloc=f"{name}:pw@{parts.hostname}:{parts.port}").geturl(), cursor
        finally:
            cursor.execute(f"DROP USER {name}@'%'")


def _new_name() -> str:
    return f"postroad_test_{uuid4().hex[:16]}"


def _on_database(server: str, name: str) -> str:
    return urlsplit(server)._replace(path=f"/{name}").geturl()
