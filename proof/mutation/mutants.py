"""All the mistakes that can be planted, each with a name that a change elsewhere in its file does not touch."""

import ast
import difflib
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final

from proof.mutation import operators, sql
from proof.mutation.guards import guards, where, without

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "postroad"
PACKAGES: Final = ("relay", "inbox", "subscriber", "outbox", "stores")
DIALECTS: Final = ("sqlite", "postgresql", "mysql")
GUARD: Final = "guard"


@dataclass(frozen=True, slots=True)
class Mutant:
    id: str
    file: str
    """Below src/postroad."""
    function: str
    """Or the name of the statement; empty for what runs when the module is loaded."""
    operator: str
    before: str
    after: str
    number: int
    """Which of the file's, or of the statement's."""
    statement: int
    """The line at which its statement begins."""
    first: int
    last: int

    @property
    def package(self) -> str:
        return self.file.split("/")[0]

    @property
    def is_sql(self) -> bool:
        return self.file.endswith(".sql")

    @property
    def module(self) -> str:
        return "postroad." + self.file.removesuffix(".py").replace("/", ".")

    @property
    def dialects(self) -> tuple[str, ...]:
        """Of a statement: those in which it is used."""
        folder = self.file.split("/")[1]
        return DIALECTS if folder == "shared" else (folder,)


def files(only: Iterable[str] = ()) -> list[str]:
    """Those below the given paths; migrations have been applied long ago, and are not looked at."""
    found = [
        path.relative_to(SOURCE).as_posix()
        for package in PACKAGES
        for pattern in ("*.py", "*.sql")
        for path in sorted((SOURCE / package).rglob(pattern))
        if "migrations" not in path.parts
    ]
    chosen = [one.removeprefix("src/postroad/").rstrip("/") for one in only]
    return [file for file in found if not chosen or any(_below(file, one) for one in chosen)]


def _below(file: str, chosen: str) -> bool:
    return file == chosen or file.startswith(f"{chosen}/")


def all_mutants(only: Iterable[str] = ()) -> list[Mutant]:
    return [mutant for file in files(only) for mutant in of_text(file, _text(file))]


def of_text(file: str, text: str) -> Iterator[Mutant]:
    seen: Counter[tuple[str, ...]] = Counter()
    for function, operator, before, after, *place in _found(file, text):
        key = (file, function, operator, before, after)
        seen[key] += 1
        name = hashlib.sha256("\0".join((*key, str(seen[key]))).encode()).hexdigest()[:8]
        yield Mutant(name, file, function, operator, before, after, *place)


def _found(file: str, text: str) -> Iterator[tuple[str, str, str, str, int, int, int, int]]:
    if file.endswith(".sql"):
        for name, (statement, line) in statements(text).items():
            for number, edit in enumerate(sql.edits(statement)):
                before, after = _changed_line(statement, edit)
                yield name, edit.operator, before, after, number, line, line, line
        return
    for number, site in enumerate(list(operators.sites(ast.parse(text)))):
        before = operators.line_of(site.statement)
        undo = site.plant()
        after = f"(without) {before}" if site.removed else _line_now(site)
        undo()
        yield site.function, site.operator, before, after, number, site.statement.lineno, site.first, site.last
    for guard in guards(file):
        function, first, last = where(text, guard.right)
        yield function, GUARD, guard.right, guard.wrong, 0, first, first, last


def _line_now(site: operators.Site) -> str:
    """`break` for `continue` puts in another statement; all others change the one that is there."""
    if site.operator == "loop":
        return "continue" if isinstance(site.statement, ast.Break) else "break"
    return operators.line_of(site.statement)


def _changed_line(statement: str, edit: sql.Edit) -> tuple[str, str]:
    """The line of the statement at which the edit begins, to its end, before and after."""
    begin = statement.rfind("\n", 0, edit.start) + 1
    end = statement.find("\n", edit.end)
    end = len(statement) if end < 0 else end
    after = statement[begin : edit.start] + edit.new + statement[edit.end : end]
    return " ".join(statement[begin:end].split()), " ".join(after.split())


@cache
def _text(file: str) -> str:
    return (SOURCE / file).read_text(encoding="utf-8")


def statements(text: str) -> dict[str, tuple[str, int]]:
    """By name, as the store knows them, each with its line."""
    found, line = {}, 1
    for part in text.split("-- name: "):
        name, _, body = part.partition("\n")
        if body:
            found[name.strip()] = (body.strip().removesuffix(";"), line)
        line += part.count("\n")
    return found


# -- with the mistake ---------------------------------------------------------------------------------------


def mutated_tree(mutant: Mutant, text: str | None = None) -> ast.Module:
    text = text if text is not None else _text(mutant.file)
    if mutant.operator == GUARD:
        return ast.parse(without(text, mutant.before, mutant.after))
    tree = ast.parse(text)
    list(operators.sites(tree))[mutant.number].plant()
    return ast.fix_missing_locations(tree)


def compiled(mutant: Mutant) -> CodeType:
    return compile(mutated_tree(mutant), str(SOURCE / mutant.file), "exec", dont_inherit=True)


def mutated_statement(mutant: Mutant) -> str:
    statement, _ = statements(_text(mutant.file))[mutant.function]
    return list(sql.edits(statement))[mutant.number].apply(statement)


def difference(mutant: Mutant) -> str:
    if mutant.is_sql:
        old, new = statements(_text(mutant.file))[mutant.function][0], mutated_statement(mutant)
    else:
        old, new = ast.unparse(ast.parse(_text(mutant.file))), ast.unparse(mutated_tree(mutant))
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), mutant.file, mutant.file, lineterm="", n=4)
    return "\n".join(lines)
