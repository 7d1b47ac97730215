"""Guards that are more than one line, a condition or a call: an order of steps, a moment, a transaction. Each has its
own mistake, written out, and all of them must be noticed."""

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NAMED: Final = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LIST: Final = Path(__file__).with_name("guards.toml")


@dataclass(frozen=True, slots=True)
class Guard:
    says: str
    file: str
    """Below src/postroad."""
    right: str
    """As it stands in the file, once."""
    wrong: str


def guards(file: str, source: Path = LIST) -> list[Guard]:
    entries = tomllib.loads(source.read_text(encoding="utf-8"))["guard"]
    return [Guard(**one) for one in entries if one["file"] == file]


def without(text: str, right: str, wrong: str) -> str:
    if text.count(right) != 1:
        raise ValueError(f"the guard does not stand there once: {right}")
    return text.replace(right, wrong)


def where(text: str, right: str) -> tuple[str, int, int]:
    """Its function, its first line and its last."""
    first = text[: text.index(right)].count("\n") + 1
    return _enclosing(ast.parse(text), first), first, first + right.strip("\n").count("\n")


def _enclosing(tree: ast.AST, line: int) -> str:
    for node in ast.iter_child_nodes(tree):
        if getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0):
            inner = _enclosing(node, line)
            return f"{node.name}.{inner}".rstrip(".") if isinstance(node, _NAMED) else inner
    return ""
