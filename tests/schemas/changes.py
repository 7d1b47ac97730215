"""The corpus in changes.txt: what a .proto file was, what it became, and which rules that breaks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CASE = re.compile(
    r"\[(?P<before>\w+)(?: > (?P<after>\w+))?\] (?P<name>[^:]+): (?P<rules>.+)\n- (?P<old>.*)\n\+ (?P<new>.*)"
)


@dataclass(frozen=True)
class Change:
    package: str
    name: str
    old: str
    new: str
    rules: frozenset[str]
    buf_objects: bool
    why: str
    """Where buf judges otherwise."""


def _changes() -> Iterator[Change]:
    text = (Path(__file__).parent / "changes.txt").read_text(encoding="utf-8")
    for number, case in enumerate(_CASE.finditer(text)):
        told, _, why = case["rules"].partition(" buf, ")
        rules = frozenset(told.split(", ")) - {"nothing", "only", "not"}
        package = f"case{number}"
        yield Change(
            package,
            case["name"],
            _file(case["before"], package, case["old"]),
            _file(case["after"] or case["before"], package, case["new"]),
            rules,
            bool(rules) != bool(why),
            why,
        )


def _file(syntax: str, package: str, body: str) -> str:
    first = f'edition = "{syntax}";' if syntax.isdecimal() else f'syntax = "{syntax}";'
    return f"{first}\npackage {package};\n{body}\n"


CHANGES = list(_changes())
