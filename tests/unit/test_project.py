"""The project's own rules: what may import what, what the text may not say, what is required."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.requirements import Requirement, judge, read_requirements
from tests.support.components import COMPONENTS, ROOT
from tests.support.requirements import known_ids

PACKAGE = ROOT / "src" / "postroad"
STAGES = ["outbox", "relay", "brokers", "subscriber", "inbox", "handlers", "projections"]

# These stand above the journey and may import every stage; no stage imports them. What is neither a stage nor
# listed here (message, errors, stores …) is common ground: everyone may import it, and it imports no stage.
ABOVE = [
    *("", "__main__", "app", "cli", "commands", "consistency", "dashboard", "eventstore"),
    *("operations", "settings", "testing"),
]

# Contracts, not stages: the broker's is known on both sides of the wire, and the in-process bus in handlers
# consumes through the inbox, as a subscriber does.
ALLOWED = [("*", "brokers.base"), ("handlers", "inbox")]


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imports(source: str) -> Iterator[str]:
    """The modules of ours that a source needs at run time, without the leading `postroad.`"""
    for node in _running_nodes(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.removeprefix("postroad.") for name in names if name.startswith("postroad."))


def _running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _running_nodes(child)


def goes_back(module: str, imported: str) -> bool:
    here, there = module.partition(".")[0], imported.partition(".")[0]
    if here in ABOVE or here == there:
        return False
    if any(who in ("*", here) and (imported == what or imported.startswith(f"{what}.")) for who, what in ALLOWED):
        return False
    if there in ABOVE:
        return True
    if there not in STAGES:
        return False
    return here not in STAGES or STAGES.index(there) < STAGES.index(here)


def test_imports_go_forward_along_the_journey() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, path in modules()
        for imported in imports(path.read_text(encoding="utf-8"))
        if goes_back(module, imported)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "imported", "back"),
    [
        ("relay.relay", "brokers.base.Broker", False),
        ("subscriber.lanes", "brokers.base.Delivery", False),
        ("subscriber.lanes", "inbox.Inbox", False),
        ("inbox", "stores.base.Store", False),
        ("app", "projections", False),
        ("subscriber.lanes", "brokers.rabbitmq.Broker", True),
        ("inbox", "subscriber.lanes", True),
        ("stores.base", "outbox", True),
        ("outbox", "app.Postroad", True),
    ],
)
def test_the_import_rule_tells_forward_from_back(module: str, imported: str, back: bool) -> None:
    assert goes_back(module, imported) is back


def test_imports_for_types_alone_are_free() -> None:
    source = "if TYPE_CHECKING:\n    from postroad.app import Postroad\nfrom postroad.errors import PostroadError"
    assert list(imports(source)) == ["errors.PostroadError"]


@pytest.mark.parametrize("stage", [stage for stage in STAGES if any((PACKAGE / stage).glob("*.py"))])
def test_each_stage_opens_with_its_place_on_the_journey(stage: str) -> None:
    docstring = ast.get_docstring(ast.parse((PACKAGE / stage / "__init__.py").read_text(encoding="utf-8")))
    assert (docstring or "").startswith(f"Stage {STAGES.index(stage) + 1} of 7")


# --- text -----------------------------------------------------------------------------------------

UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
SOMEONES_MACHINE = re.compile(r"(?<![\w.:/*])/(?:root|work|home|Users)/\w")


def text_files() -> Iterator[tuple[Path, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        try:
            yield Path(name), (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):  # an image; a file deleted but not yet committed
            continue


@pytest.mark.parametrize("pattern", [UNFINISHED, SOMEONES_MACHINE], ids=["unfinished", "someones-machine"])
def test_no_file_holds(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert UNFINISHED.search("# TO" + "DO: later")
    assert SOMEONES_MACHINE.search("path = '/ho" + "me/someone/shop'")


# --- requirements ---------------------------------------------------------------------------------

TABLE = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")


def test_every_requirement_is_listed_once() -> None:
    ids = known_ids()
    expected = [
        *(f"P{n}" for n in range(1, 20)),
        *(f"F{n}" for n in range(1, 16)),
        *(f"R{n}" for n in (*range(2, 13), 14, 15, 16)),
        *(f"T{n}" for n in range(1, 11)),
        *(f"G{n}" for n in range(1, 12)),
    ]
    assert ids == expected
    assert [requirement.id for requirement in read_requirements(TABLE)] == ids


def test_requirements_name_known_components() -> None:
    named = {component for requirement in read_requirements(TABLE) for component in requirement.components}
    assert named <= set(COMPONENTS.values())


def test_a_requirement_is_proved_on_each_of_its_components() -> None:
    requirement = Requirement("P9", "unique ids", ["PostgreSQL", "MariaDB"])
    on_postgresql = {"spec": ["P9"], "components": ["PostgreSQL"]}
    on_mariadb = {"spec": ["P9"], "components": ["MariaDB"]}
    assert judge(requirement, {"a": on_postgresql}).missing == ["MariaDB"]
    assert judge(requirement, {"a": on_postgresql, "b": on_mariadb}).proved
    assert not judge(Requirement("P1", "names", []), {"a": on_mariadb}).proved


def test_only_the_stores_know_one_database_from_another() -> None:
    """Elsewhere a store is asked what it can do, so that a further one needs no search through the code."""
    for name, path in modules():
        if name.split(".")[0] != "stores":
            assert not re.search(r"""dialect\s*(==|!=|in)\s*[("']""", path.read_text(encoding="utf-8")), name
