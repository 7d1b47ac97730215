"""The mutator itself: each operator makes the mistake it says, and only a test that looks can tell."""

import ast
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from proof.mutation import operators, sql
from proof.mutation.explained import Explanation, explained
from proof.mutation.guards import without
from proof.mutation.mutants import GUARD, PACKAGES, ROOT, Mutant, all_mutants, compiled, difference, of_text, statements
from proof.mutation.plant import CannotExchange, exchange
from proof.mutation.report import Results, table
from proof.mutation.run import _RUNNING, Job, Verdict, _in_child
from proof.mutation.select import Cover


def in_python(text: str) -> list[tuple[str, str]]:
    return [(mutant.operator, mutant.after) for mutant in of_text("relay/some.py", text)]


def in_sql(text: str) -> list[tuple[str, str]]:
    return [(edit.operator, " ".join(edit.apply(text).split())) for edit in sql.edits(text)]


@pytest.mark.parametrize(
    ("before", "mistakes"),
    [
        ("x = a == b", [("compare", "x = a != b")]),
        ("x = a < b", [("compare", "x = a <= b")]),
        ("x = a >= b", [("compare", "x = a > b")]),
        ("x = a is not b", [("compare", "x = a is b")]),
        ("x = a in b", [("compare", "x = a not in b")]),
        ("x = a and b", [("and/or", "x = a or b")]),
        ("x = not a", [("not", "x = a")]),
        ("x = a if b else c", [("condition", "x = a if not b else c")]),
        ("x = [a for a in b if c]", [("condition", "x = [a for a in b if not c]")]),
        ("x = f(7)", [("number", "x = f(8)")]),
        ("x = True", [("true/false", "x = False")]),
        ("x = a + b", [("arithmetic", "x = a - b")]),
        ("x = a // b", [("arithmetic", "x = a * b")]),
        ("x += a", [("remove", "(without) x += a"), ("arithmetic", "x -= a")]),
        ("f(a)", [("remove", "(without) f(a)")]),
        ("raise Trouble('more than 7')", [("remove", "(without) raise Trouble('more than 7')")]),
    ],
)
def test_an_operator_makes_the_mistake_it_says(before: str, mistakes: list[tuple[str, str]]) -> None:
    assert in_python(before) == mistakes


def test_conditions_are_turned_round_and_loops_confused() -> None:
    assert in_python("while a:\n    if b:\n        break\n    continue") == [
        ("condition", "while not a:"),
        ("condition", "if not b:"),
        ("loop", "continue"),
        ("loop", "break"),
    ]


def test_a_result_is_withheld_unless_it_is_a_constant() -> None:
    assert in_python("def f():\n    return a\ndef g():\n    return None") == [("return", "return None")]


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring with 7."""',
        'log.warning("%d", 7)',
        "def __repr__(self):\n    return f(7)",
        "if TYPE_CHECKING:\n    x = 7",
        "x: Literal[7]",
        "def f(x: Literal[7]) -> Literal[7]: ...",
        "class Value:\n    size: int = 7",
        "assert x is not None",
        "x = zip(a, b, strict=True)",
        "x = isinstance(y, A | B)",
        'x = "a" + b',
    ],
)
def test_what_is_for_people_and_for_types_is_left_alone(text: str) -> None:
    assert in_python(text) == []


@pytest.mark.parametrize(
    ("before", "mistakes"),
    [
        ("SELECT a FROM t WHERE x AND y AND z",
         [("drop", "SELECT a FROM t WHERE x AND z"), ("drop", "SELECT a FROM t WHERE y AND z"),
          ("drop", "SELECT a FROM t WHERE x AND y")]),
        ("SELECT a FROM t WHERE (x OR y) LIMIT :n",
         [("drop", "SELECT a FROM t WHERE (x ) LIMIT :n"), ("drop", "SELECT a FROM t WHERE (y) LIMIT :n"),
          ("and/or", "SELECT a FROM t WHERE (x AND y) LIMIT :n")]),
        ("SELECT a FROM t WHERE x <= :y", [("compare", "SELECT a FROM t WHERE x < :y")]),
        ("SELECT a FROM t WHERE x <= f(now() - :y)", [("compare", "SELECT a FROM t WHERE x >= f(now() - :y)")]),
        ("SELECT a FROM t WHERE x < :now", [("compare", "SELECT a FROM t WHERE x > :now")]),
        ("SELECT :y * 1000000", [("number", "SELECT :y * 1000")]),
        ("UPDATE t SET a = 1, b = :b WHERE c = :c",
         [("set", "UPDATE t SET b = :b WHERE c = :c"), ("set", "UPDATE t SET a = 1 WHERE c = :c"),
          ("number", "UPDATE t SET a = 2, b = :b WHERE c = :c"),
          ("compare", "UPDATE t SET a = 1, b = :b WHERE c <> :c")]),
        ("SELECT a FROM t LIMIT :n FOR UPDATE SKIP LOCKED",
         [("lock", "SELECT a FROM t LIMIT :n"), ("lock", "SELECT a FROM t LIMIT :n FOR UPDATE")]),
        ("SELECT a FROM t FOR UPDATE", [("lock", "SELECT a FROM t")]),
        ("INSERT INTO t VALUES (:a) ON CONFLICT (a) DO NOTHING", [("conflict", "INSERT INTO t VALUES (:a)")]),
        ("INSERT IGNORE INTO t VALUES (:a)", [("conflict", "INSERT INTO t VALUES (:a)")]),
        ("SELECT a FROM t ORDER BY b, c DESC",
         [("order", "SELECT a FROM t ORDER BY b DESC, c DESC"), ("order", "SELECT a FROM t ORDER BY b, c")]),
        ("SELECT a FROM t WHERE NOT EXISTS (SELECT b)", [("not", "SELECT a FROM t WHERE EXISTS (SELECT b)")]),
        ("SELECT 'AND 1' -- OR 2", []),
        ("SELECT 1 FROM t", []),
    ],
)  # fmt: skip
def test_a_statement_gets_the_mistake_that_is_said(before: str, mistakes: list[tuple[str, str]]) -> None:
    assert in_sql(before) == mistakes


def test_statements_are_those_that_the_stores_load() -> None:
    from postroad.stores import queries

    text = "-- name: one\n-- why\nSELECT 1;\n\n-- name: two\nSELECT 2;\n"
    assert {name: body for name, (body, _) in statements(text).items()} == queries.parse(text)


def test_every_mistake_has_a_name_of_its_own_and_can_be_compiled() -> None:
    mutants = all_mutants(["relay/breaker.py", "relay/wakeup.py", "stores/shared/relay.sql"])
    assert len({mutant.id for mutant in mutants}) == len(mutants) > 50
    assert all(difference(mutant) for mutant in mutants)
    for mutant in mutants:
        if not mutant.is_sql:
            compiled(mutant)


def test_a_guard_is_found_by_its_text_and_has_its_own_mistake() -> None:
    guards = [mutant for mutant in all_mutants() if mutant.operator == GUARD]
    assert {mutant.package for mutant in guards} == set(PACKAGES)
    assert all(mutant.function for mutant in guards)
    for mutant in guards:
        compiled(mutant)
        assert difference(mutant)


def test_a_guard_that_stands_twice_or_nowhere_is_refused() -> None:
    assert without("a = 1\nb = 2\n", "b = 2", "b = 3") == "a = 1\nb = 3\n"
    for text in ("a = 1\n", "b = 2\nb = 2\n"):
        with pytest.raises(ValueError, match="does not stand there once: b = 2"):
            without(text, "b = 2", "b = 3")


def test_a_name_does_not_change_with_the_lines_above() -> None:
    text = "def f(a):\n    return a + 1\n"
    names = [mutant.id for mutant in of_text("relay/some.py", text)]
    assert [mutant.id for mutant in of_text("relay/some.py", f"import os\n\n\n{text}")] == names


# -- planted -------------------------------------------------------------------------------------------------

BOX = """
class Box:
    def __init__(self, room):
        self.room, self.taken = room, 0

    def take(self):
        if self.taken >= self.room:
            raise OverflowError
        self.taken += 1
        return self.taken
"""


@pytest.fixture
def box(tmp_path: Path) -> ModuleType:
    file = tmp_path / "box.py"
    file.write_text(BOX, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("box_of_the_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def the_weak_test(box: ModuleType) -> None:
    """Never looks at a full box."""
    assert box.Box(3).take() == 1


def the_good_test(box: ModuleType) -> None:
    full = box.Box(1)
    assert full.take() == 1
    with pytest.raises(OverflowError):
        full.take()


def survivors(box: ModuleType, test: Callable[[ModuleType], None]) -> set[tuple[str, str]]:
    path = Path(str(box.__file__))
    original = compile(BOX, path, "exec")
    found = set()
    for number, mutant in enumerate(of_text("relay/box.py", BOX)):
        tree = ast.parse(BOX)
        list(operators.sites(tree))[number].plant()
        try:
            exchange(path, compile(ast.fix_missing_locations(tree), path, "exec"))
            test(box)
            found.add((mutant.operator, mutant.after))
        except (AssertionError, OverflowError, pytest.fail.Exception):
            pass
        finally:
            take_back(box, original)
    return found


def take_back(box: ModuleType, original: object) -> None:
    fresh: dict[str, type] = {}
    exec(original, fresh)  # type: ignore[arg-type]  # noqa: S102
    for name in ("__init__", "take"):
        vars(box.Box)[name].__code__ = vars(fresh["Box"])[name].__code__


def test_a_weak_spot_survives_and_a_guard_taken_out_is_noticed(box: ModuleType) -> None:
    guard = ("remove", "(without) raise OverflowError")
    assert {guard, ("compare", "if self.taken > self.room:")} <= survivors(box, the_weak_test)
    assert survivors(box, the_good_test) == set()


def test_a_mistake_in_what_is_loaded_already_comes_too_late(box: ModuleType) -> None:
    path = Path(str(box.__file__))
    with pytest.raises(CannotExchange):
        exchange(path, compile(f"{BOX}\nLIMIT = 7\n", path, "exec"))


def test_a_mistake_that_has_to_be_there_from_the_beginning_is_there() -> None:
    """Although pytest loads the modules of its plugins by itself, of which Postroad is one."""
    file = "tests/contract/test_relay_failures.py"
    noticing = f"{file}::test_each_refusal_waits_as_its_preset_says_and_then_parks[sqlite-table-expected1]"
    ask = f"""
from proof.mutation.mutants import all_mutants
from proof.mutation.run import Job, ask_fresh
marks = next(one for one in all_mutants(["relay/carrier.py"]) if "for due in run], [])" in one.after)
print(ask_fresh(Job(marks, [({noticing!r}, 10.0)])))
"""
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == [str(Verdict("killed", noticing))], done.stdout + done.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons do not like forks beside threads
def test_a_child_tells_its_verdict_and_one_that_hangs_has_noticed() -> None:
    def hang(tell: Callable[[Verdict], object]) -> None:
        _RUNNING[:4] = b"this"
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        signal.pause()

    def crash(tell: Callable[[Verdict], object]) -> None:
        os._exit(3)

    job = Job(None, [("a test", 1.0)])
    assert _in_child(lambda tell: tell(Verdict("survived")), job) == Verdict("survived")
    assert _in_child(hang, job) == Verdict("killed", "time: this")
    assert _in_child(crash, job) == Verdict("killed", "crash")


# -- chosen and counted --------------------------------------------------------------------------------------


def mutant(**changed: object) -> Mutant:
    values: dict[str, object] = {
        "id": "m", "file": "relay/some.py", "function": "f", "operator": "not", "before": "x = not a",
        "after": "x = a", "number": 0, "statement": 10, "first": 10, "last": 11,
    }  # fmt: skip
    return Mutant(**(values | changed))  # type: ignore[arg-type]


def test_tests_that_ran_the_line_are_chosen_those_that_are_about_it_and_the_packages_own_first() -> None:
    def ran(seconds: float, lines: list[int], *statements: str) -> dict[str, object]:
        return {"seconds": seconds, "lines": {"relay/some.py": lines}, "statements": list(statements)}

    tests = {
        "slow[sqlite]": ran(2.0, [10]),
        "fast[postgresql]": ran(0.1, [11], "postgresql lease_free"),
        "fast[sqlite]": ran(0.5, [11], "sqlite lease_free"),
        "contract/test_relay_order.py::slowest[sqlite]": ran(3.0, [10]),
        "about it[sqlite]": ran(5.0, [10, 12, 13]),
        "elsewhere": ran(0.1, [12]),
        "fast, of something else": ran(0.3, [], "postgresql sick"),
        "contract/doctor/test_it.py": ran(2.0, [], "postgresql sick", "postgresql well"),
    }
    own = "contract/test_relay_order.py::slowest[sqlite]"
    cover = Cover({"files": {"tests/some.py": {"tests": tests}}, "loading": {"relay/some.py": [3]}})
    all_of_them = ["about it[sqlite]", own, "fast[sqlite]", "slow[sqlite]", "fast[postgresql]"]
    assert cover.tests_for(mutant(), 60) == all_of_them
    assert cover.tests_for(mutant(), 7) == all_of_them[:3]
    statement = mutant(file="stores/postgresql/relay.sql", function="lease_free")
    assert cover.tests_for(statement, 60) == ["fast[postgresql]"]
    of_a_file = mutant(file="stores/shared/doctor.sql", function="sick")
    assert cover.tests_for(of_a_file, 60) == ["fast, of something else", "contract/doctor/test_it.py"]
    assert not cover.is_loaded_with(mutant())
    assert cover.is_loaded_with(mutant(first=3))
    assert cover.is_loaded_with(mutant(function=""))


def test_explained_survivors_do_not_count_and_results_are_gone_on_from(tmp_path: Path) -> None:
    mutants = [mutant(id=name, after=name) for name in "abcd"]
    file = tmp_path / "results.json"
    results = Results(file, [Explanation("relay/*.py", "*", "not", "c", "Only slower.")])
    for one, status in zip(mutants, ("killed", "survived", "survived", ""), strict=True):
        if status:
            results.put(one, status, "time: a test" if status == "killed" else "")
    score = results.score(mutants)
    assert (score.mutants, score.killed, score.explained, score.survived, score.percent) == (3, 1, 1, 1, 50.0)
    results.save(mutants)
    again = Results(file, [])
    assert [again.state(one) for one in mutants] == ["killed", "survived", "survived", ""]
    assert [again.hung(one) for one in mutants] == [True, False, False, False]


@pytest.mark.parametrize(
    ("tried", "passes"),
    [
        ({}, False),
        ({"a": "killed"}, True),
        (dict.fromkeys("abcdefghi", "killed") | {"j": "survived"}, True),
        (dict.fromkeys("abcdefgh", "killed") | {"j": "survived"}, False),
        (dict.fromkeys("abcdefghij", "killed") | {"guard": "killed"}, True),
        (dict.fromkeys("abcdefghij", "killed") | {"guard": "survived"}, False),
        (dict.fromkeys("abcdefghij", "killed") | {"explained guard": "survived"}, False),
    ],
    ids=["nothing", "one", "90 %", "89 %", "guard", "guard survived", "guard explained away"],
)
def test_it_passes_only_if_something_was_tried_and_enough_was_noticed_and_every_guard(
    tmp_path: Path, tried: dict[str, str], passes: bool
) -> None:
    mutants = [mutant(id=name, after=name) for name in "abcdefghij"]
    mutants += [mutant(id=name, after=name, operator=GUARD) for name in ("guard", "explained guard")]
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"mutants": {name: {"status": status} for name, status in tried.items()}}))
    results = Results(file, [Explanation("relay/some.py", "f", GUARD, "explained guard", "No matter.")])
    assert table(results, mutants, Console(quiet=True)) == passes


@pytest.mark.parametrize(
    ("tried", "of_every_guard"), [({"a", "guard"}, False), ({"a", "guard", "other"}, True)], ids=["one of two", "both"]
)
def test_a_guard_that_was_not_tried_is_told_and_fails_who_asks_for_all(
    tmp_path: Path, tried: set[str], of_every_guard: bool
) -> None:
    mutants = [mutant(id="a"), *(mutant(id=name, after=name, operator=GUARD) for name in ("guard", "other"))]
    results = Results(tmp_path / "results.json", [])
    for one in mutants:
        if one.id in tried:
            results.put(one, "killed", "a test")
    told = StringIO()
    assert table(results, mutants, Console(file=told))
    assert table(results, mutants, Console(file=told), every_guard=True) == of_every_guard
    assert f"{len(tried) - 1} of 2 tried" in told.getvalue()
    assert ("a guard that was not tried: other" in told.getvalue()) != of_every_guard


def test_each_explanation_is_about_a_mistake_that_can_be_made() -> None:
    known = all_mutants()
    assert [one for one in explained() if not any(one.about(mutant) for mutant in known)] == []
    assert all(one.why.endswith(".") for one in explained())


@pytest.mark.parametrize(
    ("changed", "about"),
    [({}, True), ({"file": "stores/mysql/inbox.sql"}, True), ({"file": "stores/mysql/relay.sql"}, False),
     ({"function": "inbox_prune"}, False), ({"operator": "drop"}, False), ({"after": "x = b"}, False)],
)  # fmt: skip
def test_an_explanation_may_speak_of_all_stores_but_of_one_mistake(changed: dict[str, str], about: bool) -> None:
    explanation = Explanation("stores/*/inbox.sql", "inbox_due*", "not", "x = a", "Only slower.")
    found = mutant(**{"file": "stores/sqlite/inbox.sql", "function": "inbox_due", **changed})
    assert explanation.about(found) == about
