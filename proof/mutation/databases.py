"""A child that is ended in the middle of a test leaves its databases behind; they are known by their name."""

import os
from uuid import uuid4

import psycopg


def name_databases() -> None:
    """From now on, those that tests make bear our mark, here and in the children."""
    from tests.support import databases

    mark = f"{_mark()}_"
    databases._new_name = lambda: mark + uuid4().hex[:16]


def _mark() -> str:
    return f"postroad_test_{os.getpid()}"


def drop_left_behind() -> None:
    from tests.support import components, databases

    with psycopg.connect(components.address("postgresql"), autocommit=True) as admin:
        for (name,) in admin.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [_mark()]):
            admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())
    with databases.mariadb_admin(components.address("mariadb")) as server, server.cursor() as cursor:
        cursor.execute("SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE %s", [f"{_mark()}%"])
        for (name,) in cursor.fetchall():
            cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")
