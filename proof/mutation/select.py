"""Which tests could notice a mistake: those that ran its line, or its statement, when all was well."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest

from proof.mutation.mutants import PACKAGES, ROOT, SOURCE, Mutant

RECORD: Final = ROOT / "build" / "mutation" / "tests.json"
TESTS: Final = (
    "tests/contract/test_*.py",
    "tests/contract/commands/test_*.py",
    "tests/contract/consistency/test_*.py",
    "tests/contract/doctor/test_*.py",
    "tests/contract/finds/test_*.py",
    "tests/upgrade/test_*.py",
    "tests/journeys/test_consuming*.py",
    "tests/journeys/test_canary.py",
    "tests/journeys/test_copies_of_the_dead.py",
    "tests/journeys/test_drain.py",
    "tests/journeys/test_flows.py",
    "tests/journeys/test_metrics.py",
    "tests/journeys/test_outcomes.py",
    "tests/journeys/test_pauses.py",
    "tests/journeys/test_projections.py",
    "tests/journeys/test_protobuf.py",
    "tests/journeys/test_running.py",
    "tests/journeys/test_sessions_in_handlers.py",
    "tests/journeys/test_strange_database_errors.py",
    "tests/journeys/test_traces.py",
    "tests/journeys/test_verdicts.py",
    "tests/unit/test_events.py",
    "tests/unit/test_lanes.py",
    "tests/unit/test_naming.py",
    "tests/unit/test_open_store.py",
    "tests/unit/test_protobuf*.py",
    "tests/unit/test_run_length.py",
    "tests/unit/test_sqlite_errors.py",
    "tests/unit/test_*wake*.py",
    "tests/unit/test_outbox*.py",
    "tests/unit/test_relay*.py",
    "tests/unit/test_inbox*.py",
    "tests/unit/test_stores*.py",
    "tests/unit/test_subscriber*.py",
)
"""Not those that only start other processes: a mistake is planted in this one."""
OPTIONS: Final = ("-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0", "--assert=plain")
"""Plain, because Postroad is a plugin of pytest, which would load its modules by itself and rewrite their functions: a
mistake would be neither loaded nor exchanged."""
_SERVERS: Final = {"postgresql": "postgresql", "mysql": "mariadb"}
_NAMED: Final = {"subscriber": "consuming", "relay": "adopt"}
"""What tests call a package, or a part of it, besides its name and those of its files."""
_WHERE: Final = ("here", "on servers")
_TOGETHER: Final = 8
_AT_ONCE: Final = 600.0


def test_files() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for pattern in TESTS for path in sorted(ROOT.glob(pattern))]


class Cover:
    """What each test ran, and how long it took."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.tests: dict[str, Any] = {}
        for of_file in record["files"].values():
            self.tests |= of_file["tests"]
        self.loading = {file: set(lines) for file, lines in record["loading"].items()}

    def is_loaded_with(self, mutant: Mutant) -> bool:
        """Whether the line runs when modules are loaded, so that a change afterwards would come too late."""
        if mutant.is_sql:
            return False
        return not mutant.function or bool(self.loading.get(mutant.file, set()) & set(_lines(mutant)))

    def tests_for(self, mutant: Mutant, budget: float, newest: bool = False) -> list[str]:
        """As many as the budget allows: half of it for those that are about it, for they run most of the file, or few
        other statements, half for the package's own and the fastest, on SQLite first where the code serves all stores.

        With `newest`, a third goes to those in the files that were written last, before all others.
        """
        running = self._running(mutant)
        quick = sorted(running, key=lambda test: self._rank(mutant, test))
        about = sorted(quick, key=lambda test: self._is_about(mutant, test), reverse=True)
        orders = [about, quick]
        if newest:
            orders.insert(0, sorted(quick, key=_written, reverse=True))
        parts = [_within(budget / len(orders), order, self.seconds) for order in orders]
        return list(dict.fromkeys(test for part in parts for test in part))

    def seconds(self, test: str) -> float:
        return float(self.tests[test]["seconds"])

    def _rank(self, mutant: Mutant, test: str) -> tuple[bool, bool, float]:
        foreign = any(name in test for store, name in _SERVERS.items() if f"/{store}/" not in mutant.file)
        names = {mutant.package, _NAMED.get(mutant.package, mutant.package), Path(mutant.file).stem}
        own = any(f"/test_{name}" in test or f"/{name}/" in test for name in names)
        return foreign, not own, self.seconds(test)

    def _is_about(self, mutant: Mutant, test: str) -> int:
        ran = self.tests[test]
        return -len(ran["statements"]) if mutant.is_sql else len(ran["lines"].get(mutant.file, ()))

    def _running(self, mutant: Mutant) -> list[str]:
        if mutant.is_sql:
            wanted = {f"{dialect} {mutant.function}" for dialect in mutant.dialects}
            return [test for test, ran in self.tests.items() if wanted & set(ran["statements"])]
        if not mutant.function:
            return [test for test, ran in self.tests.items() if mutant.file in ran["lines"]]
        for lines in (_lines(mutant), range(mutant.statement, mutant.last + 1)):
            # Not every line of a long expression is noted as one that ran.
            found = [test for test, ran in self.tests.items() if set(lines) & set(ran["lines"].get(mutant.file, ()))]
            if found:
                return found
        return []


@cache
def _written(test: str) -> float:
    """Those written within some minutes, as by a checkout, are equally new, and the fastest of them come first."""
    return (ROOT / test.partition("::")[0]).stat().st_mtime // _AT_ONCE


def _where(test: str) -> str:
    return _WHERE[any(name in test for name in _SERVERS.values())]


def _lines(mutant: Mutant) -> range:
    return range(mutant.first, mutant.last + 1)


def _within(budget: float, tests: Sequence[str], seconds: Any) -> list[str]:
    chosen: list[str] = []
    spent = 0.0
    for test in tests:
        spent += seconds(test)
        if chosen and spent > budget:
            break
        chosen.append(test)
    return chosen


# -- recording ----------------------------------------------------------------------------------------------


def cover(say: Callable[[str], None] = print, pause: Callable[[], None] = lambda: None, servers: bool = True) -> Cover:
    """From the record; what has changed since is run again, on the servers too or not. `pause` comes before each."""
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if record.get("source") != (now := _digest([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.sql"), *_shared()])):
        record = {"source": now, "files": {}, "loading": {}}
    known = {f"{file} {where}": _digest([ROOT / file]) for where in _WHERE for file in test_files()}
    record["files"] = {name: found for name, found in record["files"].items() if known.get(name) == found["digest"]}
    for where in _WHERE[: 1 + servers]:
        stale = [file for file in test_files() if f"{file} {where}" not in record["files"]]
        for begin in range(0, len(stale), _TOGETHER):
            files = stale[begin : begin + _TOGETHER]
            say(f"what tests cover, {where}: {begin + len(files)} of {len(stale)} files")
            _in_child(partial(_record, record, files, where, pause))
            record = json.loads(RECORD.read_text(encoding="utf-8"))
    return Cover(record)


def _shared() -> list[Path]:
    return [*(ROOT / "tests" / "support").glob("*.py"), *(ROOT / "tests").rglob("conftest.py")]


def _digest(paths: Iterable[Path]) -> str:
    parts = [path.as_posix().encode() + path.read_bytes() for path in sorted(paths)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _in_child(work: Any) -> None:
    """This process shall not have the code loaded."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("The tests could not be run: see above.")


def _record(record: dict[str, Any], files: Sequence[str], where: str, pause: Callable[[], None]) -> None:
    from coverage import Coverage

    measured = Coverage(
        data_file=None, source=[str(SOURCE / one) for one in PACKAGES],
        concurrency=["thread", "greenlet"], config_file=False, messages=False,
    )  # fmt: skip
    watch = _Watch(measured, where, pause)
    silence()
    measured.start()
    pytest.main([*OPTIONS, *files], plugins=[watch])
    measured.stop()
    tests: dict[str, Any] = {
        test: {"seconds": round(seconds, 3), "statements": sorted(watch.statements.get(test, ())), "lines": {}}
        for test, seconds in watch.passed.items()
    }
    for file, test, line in _ran(measured):
        if not test:
            lines = record["loading"].setdefault(file, [])
            lines += [line] * (line not in lines)
        elif test in tests:
            tests[test]["lines"].setdefault(file, []).append(line)
    for file in files:
        of_file = {test: found for test, found in tests.items() if test.partition("::")[0] == file}
        record["files"][f"{file} {where}"] = {"digest": _digest([ROOT / file]), "tests": of_file}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record), encoding="utf-8")


def _ran(measured: Any) -> Iterator[tuple[str, str, int]]:
    data = measured.get_data()
    for name in data.measured_files():
        for line, tests in data.contexts_by_lineno(name).items():
            for test in tests:
                yield Path(name).relative_to(SOURCE).as_posix(), test, line


def silence() -> None:
    """What tests print is not news here."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


class _Watch:
    """Notes, for each test, its time and the statements it asks for; tells the coverage which test it is."""

    def __init__(self, measured: Any, where: str, pause: Callable[[], None]) -> None:
        self._measured, self._where, self._pause = measured, where, pause
        self._test = ""
        self._failed: set[str] = set()
        self.passed: dict[str, float] = {}
        self.statements: dict[str, set[str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if _where(item.nodeid) == self._where]

    def pytest_collection_finish(self) -> None:
        from postroad.stores.base import Store

        ask = Store.sql

        def asked(store: Any, statement: str, outbox: Any = None) -> str:
            self.statements.setdefault(self._test, set()).add(f"{store.dialect} {statement}")
            return ask(store, statement, outbox)

        Store.sql = asked  # type: ignore[method-assign,assignment]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._pause()
        begun, self._test = time.monotonic(), item.nodeid
        self._measured.switch_context(item.nodeid)
        result = yield
        self._measured.switch_context("")
        if item.nodeid not in self._failed:
            self.passed[item.nodeid] = time.monotonic() - begun
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)
