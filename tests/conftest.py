"""Fixtures every test may use.

postgresql_url, mariadb_url              the server; tests share it, so leave it as found
fresh_postgresql_url, fresh_mariadb_url  an empty database of the test's own
rabbitmq_url                             a virtual host of this test run's own on the server
kafka_url                                the server; topics are named anew by each test
pubsub_url                               a project of the test's own on the emulator
sqlite_url                               an empty SQLite file of the test's own
database_url                             the test runs three times, once on each store (`store_kind` names it)
broker_url                               the test runs once for each broker there is an adapter for
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from postroad.brokers import available_brokers
from tests.support.components import Tally, address
from tests.support.databases import fresh_mariadb, fresh_postgresql
from tests.support.kafka import awake
from tests.support.pubsub import fresh_project
from tests.support.rabbitmq import fresh_vhost
from tests.support.requirements import Labels, Recorder

PROOFS: Final = "tests/proof/"
CHAOS: Final = f"{PROOFS}test_chaos.py"
"""Wants the machine for itself: it judges by leases of a second."""
SEEDS: Final = f"{PROOFS}test_simulator.py::test_no_seed_breaks_a_promise"
"""Could use all of the machine, and is content with what the chaos leaves of it."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Labels())
    if not hasattr(config, "workerinput"):  # the one process that hears of every test
        config.pluginmanager.register(Tally())
        config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first, so that nobody waits for them at the end; chaos and seeds last."""
    items.sort(key=lambda item: (item.nodeid.startswith((CHAOS, SEEDS)), not item.nodeid.startswith(PROOFS)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test by itself over the processes, a file of proofs in one; the seeds beside the chaos, not behind it."""
    from xdist.scheduler import LoadScopeScheduling

    class ByKind(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            by_file = nodeid.startswith(PROOFS) and nodeid != SEEDS
            return nodeid.partition("::")[0] if by_file else nodeid

    return ByKind(config, log)


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_timeout_set_timer(settings: Any) -> Iterator[None]:
    """Again and again: raised inside a task or a callback of an event loop, a time-out is swallowed, and the test would
    hang for ever."""
    done = yield
    if settings.method == "signal":
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, 5.0)
    return done


@pytest.fixture(scope="session")
def postgresql_url() -> str:
    return address("postgresql")


@pytest.fixture(scope="session")
def mariadb_url() -> str:
    return address("mariadb")


@pytest.fixture(scope="session")
def rabbitmq_url() -> Iterator[str]:
    with fresh_vhost(address("rabbitmq")) as url:
        yield url


@pytest.fixture(scope="session")
def kafka_url() -> str:
    return awake(address("kafka"))


@pytest.fixture
def pubsub_url() -> str:
    return fresh_project(address("pubsub"))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'test.db'}"


@pytest.fixture
def fresh_postgresql_url(postgresql_url: str) -> Iterator[str]:
    with fresh_postgresql(postgresql_url) as url:
        yield url


@pytest.fixture
def fresh_mariadb_url(mariadb_url: str) -> Iterator[str]:
    with fresh_mariadb(mariadb_url) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(store_kind: str, request: pytest.FixtureRequest) -> str:
    fixture = "sqlite_url" if store_kind == "sqlite" else f"fresh_{store_kind}_url"
    return str(request.getfixturevalue(fixture))


@pytest.fixture(params=available_brokers())
def broker_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    match request.param:
        case "embedded":
            yield f"embedded:{tmp_path / 'broker.db'}"
        case "rabbitmq":
            # Of the test's own, unlike `rabbitmq_url`: what it finds there does not depend on which test came before.
            with fresh_vhost(address("rabbitmq")) as url:
                yield url
        case other:
            yield str(request.getfixturevalue(f"{other}_url"))
