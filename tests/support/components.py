"""The real components a test may ask for, where they are, and what happens when one is not there.

A component's address comes from the environment (`POSTROAD_TEST_<NAME>_URL`) or from `scripts/services env`.
A test whose component is missing is skipped with the reason; with `POSTROAD_REQUIRE_SERVICES=1` it fails.
"""

import os
import shlex
import sqlite3
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest

from tests.support import databases, rabbitmq

ROOT = Path(__file__).parents[2]
MISSING = "is not available:"

# A test uses a component when one of its fixtures has the component's key in its name
# (`fresh_postgresql_url`) or when it is parametrised with that key (`store_kind="mariadb"`).
COMPONENTS = {
    "sqlite": "SQLite",
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB",
    "rabbitmq": "RabbitMQ",
    "pubsub": "Pub/Sub",
    "kafka": "Kafka",
    "chromium": "Chromium",
}


@cache
def _services() -> dict[str, str]:
    """The lines of `scripts/services env`: addresses by variable, reasons by component."""
    output = subprocess.run(
        [ROOT / "scripts" / "services", "env"], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    found = {}
    for line in output.splitlines():
        if line.startswith("# "):
            name, _, reason = line[2:].partition(": ")
            found[name] = reason
        elif line.startswith("export "):
            variable, _, value = line.removeprefix("export ").partition("=")
            found[variable] = "".join(shlex.split(value))
    return found


def address(name: str) -> str:
    """The component's URL; without one, the test is skipped, or fails where every component is required."""
    variable = f"POSTROAD_TEST_{name.upper()}_URL"
    url = os.environ.get(variable) or _services().get(variable)
    if not url:
        missing(name, _services().get(name, "no such file in scripts/services.d"))
    return url


def missing(name: str, why: str) -> NoReturn:
    reason = f"{name} {MISSING} {why}"
    if os.environ.get("POSTROAD_REQUIRE_SERVICES") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def used_by(item: pytest.Item) -> list[str]:
    """The components, by display name, on which this test runs."""
    fixtures = getattr(item, "fixturenames", [])
    callspec = getattr(item, "callspec", None)
    values = list(callspec.params.values()) if callspec else []
    return [title for key, title in COMPONENTS.items() if key in values or any(key in fixture for fixture in fixtures)]


def _postgresql_version() -> str:
    with psycopg.connect(address("postgresql")) as connection:
        return connection.info.parameter_status("server_version") or "?"


def _mariadb_version() -> str:
    # Asked by SQL: in the handshake MariaDB calls itself 5.5.5, for the sake of old clients.
    with databases.mariadb_admin(address("mariadb")) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT version()")
        return str(cursor.fetchone()[0])


def _rabbitmq_version() -> str:
    return str(rabbitmq.api(address("rabbitmq"), "/api/overview")["rabbitmq_version"])


VERSIONS: dict[str, Callable[[], str]] = {
    "SQLite": lambda: sqlite3.sqlite_version,
    "PostgreSQL": _postgresql_version,
    "MariaDB": _mariadb_version,
    "RabbitMQ": _rabbitmq_version,
}


def _described(component: str) -> str:
    try:
        version = VERSIONS[component]()
    except Exception:  # a version is decoration: a server that has gone by now must not fail the run
        return component
    return f"{component} {version.split()[0].split('-')[0]}"


class Tally:
    """Counts, over a session, which components tests passed on and how many tests went without theirs."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.missing = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.used.update(str(value) for name, value in report.user_properties if name == "component")
        if report.skipped and MISSING in str(report.longrepr):
            self.missing += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        names = [_described(title) for title in COMPONENTS.values() if title in self.used]
        terminalreporter.write_line(
            f"components: {', '.join(names) or 'none'}; skipped for want of one: {self.missing}"
        )
