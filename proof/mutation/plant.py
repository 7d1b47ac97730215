"""The mistake in a process: exchanged in what is loaded, or put in when it is loaded. No file is written."""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from proof.mutation.mutants import SOURCE, Mutant, compiled, mutated_statement


class CannotExchange(Exception):
    """The mistake is not inside a function that is loaded: it has to be there from the beginning."""


def plant_in_loaded(mutant: Mutant) -> None:
    if mutant.is_sql:
        plant_statement(mutant)
    else:
        exchange(SOURCE / mutant.file, compiled(mutant))


def plant_statement(mutant: Mutant) -> None:
    from postroad.stores import queries

    for dialect in mutant.dialects:
        # What `load` returns it keeps, so the change stays.
        known = queries.load(dialect)
        if mutant.function in known:
            known[mutant.function] = mutated_statement(mutant)  # type: ignore[index]


def exchange(path: Path, new: CodeType) -> None:
    """Every function of the file gets the new code, wherever decorators and classes have put it."""
    old = compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)
    befores, afters = list(_codes(old)), list(_codes(new))
    if [code.co_name for code in befores] != [code.co_name for code in afters]:
        raise CannotExchange
    changed = {before: after for before, after in zip(befores, afters, strict=True) if before != after}
    done = 0
    for function in [one for one in gc.get_objects() if isinstance(one, FunctionType)]:
        after = changed.get(function.__code__) if function.__code__.co_filename == str(path) else None
        if after is not None and after.co_freevars == function.__code__.co_freevars:
            function.__code__ = after
            done += 1
    if not done:
        raise CannotExchange


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


class Import(importlib.abc.MetaPathFinder):
    """Loads one module with its mistake. Must be there before the module is."""

    def __init__(self, mutant: Mutant) -> None:
        name = mutant.module.removesuffix(".__init__")
        self._mutant, self._name = mutant, name

    def install(self) -> None:
        if self._name in sys.modules:
            raise CannotExchange
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        file = str(SOURCE / self._mutant.file)
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, file, self._mutant))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return compiled(self._mutant)
