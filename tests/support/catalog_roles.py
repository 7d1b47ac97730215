"""roles.sql of the catalog in a database of the test's own, with roles of its own: those are the whole server's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg

from tests.support.components import ROOT

ROLES = "catalog_writer", "catalog_reader"
SCRIPT = ROOT / "examples" / "catalog" / "roles.sql"


@dataclass(frozen=True)
class Services:
    admin: str
    writes: str
    reads: str
    writer: str
    """The name of its role and schema."""
    reader: str

    def run_script(self) -> None:
        script = SCRIPT.read_text(encoding="utf-8")
        with psycopg.connect(self.admin) as connection:
            connection.execute(script.replace(ROLES[0], self.writer).replace(ROLES[1], self.reader))


@contextmanager
def fresh_roles(url: str) -> Iterator[Services]:
    parts, suffix = urlsplit(url), uuid4().hex[:8]
    host = parts.netloc.rpartition("@")[2]
    writer, reader = f"writer_{suffix}", f"reader_{suffix}"
    writes, reads = (parts._replace(netloc=f"{role}@{host}").geturl() for role in (writer, reader))
    services = Services(url, writes, reads, writer, reader)
    services.run_script()
    try:
        yield services
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            for role in (writer, reader):
                admin.execute(f"DROP OWNED BY {role} CASCADE")
                admin.execute(f"DROP ROLE {role}")


@contextmanager
def missing_database(url: str) -> Iterator[str]:
    """An address on the server where nothing is yet; what is created there, and the roles, are removed afterwards."""
    name = f"catalog_{uuid4().hex[:8]}"
    there = "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)"
    with psycopg.connect(url, autocommit=True) as admin:
        before = {role for (role,) in admin.execute(there, [list(ROLES)])}
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            for role in set(ROLES) - before:
                admin.execute(f"DROP ROLE IF EXISTS {role}")
