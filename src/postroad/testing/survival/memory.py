"""What the user's handlers keep in Python's memory, so that it can die with the process.

Nothing is built anew: what the handlers can reach is put back to what it was. What a scenario or an outcome can reach
stands for the world outside (a fake gateway's charges), and outlives every process.
"""

import asyncio
import dis
import queue
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, Final, TypeGuard

from postroad.testing.survival.whose import is_pythons, is_theirs

_CONTAINERS: Final = (dict, list, set, deque, bytearray, defaultdict, Counter, OrderedDict)
Container = dict[Any, Any] | list[Any] | set[Any] | deque[Any] | bytearray
_HOLDERS: Final = (queue.Queue, asyncio.Queue, SimpleNamespace)
"""Instances of Python's own classes that are looked into. Others are tools, or connections to elsewhere."""
_ABSENT: Final = object()

PutBack = Callable[[], None]


class Memory:
    def __init__(self, of: Iterable[object], apart_from: Iterable[object] = ()) -> None:
        world = {place for place, _ in _places(apart_from)}
        self._keepers = [keep for place, keep in _places(of) if place not in world]

    def now(self) -> PutBack:
        """Puts everything back to what it is now."""
        kept = [keep() for keep in self._keepers]

        def put_back() -> None:
            for one in kept:
                one()

        return put_back


def _places(roots: Iterable[object]) -> Iterator[tuple[Hashable, Callable[[], PutBack]]]:
    """Every place where something can be kept, and how to hold what is there."""
    seen: set[Hashable] = set()
    waiting = list(roots)
    held = []  # an id says nothing about what is gone
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        held.append(one)
        if _is_container(one):
            yield id(one), partial(_content, one)
            waiting += [*one.keys(), *one.values()] if isinstance(one, dict) else list(one)
        for place, keep, value in _names(one):
            if place not in seen:
                seen.add(place)
                yield place, keep
            waiting.append(value)
        waiting += _further(one)


def _further(one: object) -> Iterable[object]:
    match one:
        case MethodType():
            return (one.__func__, one.__self__)
        case partial():
            return (one.func, *one.args, *one.keywords.values())
        case tuple() | frozenset():
            return one
        case FunctionType() if wrapped := getattr(one, "__wrapped__", None):
            return (wrapped,)
        case type() if is_theirs(one.__module__):
            return one.__bases__
    return (type(one),) if _is_instance(one) else ()


def _names(one: object) -> Iterator[tuple[Hashable, Callable[[], PutBack], object]]:
    """The names that a function, an object or a class of the user's holds something by."""
    if isinstance(one, FunctionType) and is_theirs(one.__module__):
        for cell in one.__closure__ or ():
            yield id(cell), partial(_cell, cell), _content_of(cell)
        for scope, name in _loaded(one.__code__, one.__globals__):
            yield (id(scope), name), partial(_binding, scope, name), scope.get(name)
    elif isinstance(one, type) and is_theirs(one.__module__):
        for name, value in vars(one).items():
            if not name.startswith("__") or isinstance(value, FunctionType):
                yield (id(one), name), partial(_attribute, one, name), getattr(value, "__func__", value)
    elif _is_instance(one) and isinstance(names := getattr(one, "__dict__", None), dict):
        yield id(names), partial(_content, names), None
        for name, value in list(names.items()):
            yield (id(one), name), _nothing, value


def _loaded(code: CodeType, names: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """The global names that a function uses, and what it takes from modules of the user's."""
    module = None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "STORE_GLOBAL"):
            value = names.get(step.argval)
            module = value if isinstance(value, ModuleType) and is_theirs(value.__name__) else None
            yield names, step.argval
        elif module is not None and step.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"):
            value = vars(module).get(step.argval)
            yield vars(module), step.argval
            module = value if isinstance(value, ModuleType) and is_theirs(value.__name__) else None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _loaded(constant, names)


# -- holding what is there -----------------------------------------------------------------------------


def _content(container: Any) -> PutBack:
    kept = dict(container) if isinstance(container, dict) else list(container)

    def put_back() -> None:
        container.clear()
        container.update(kept) if isinstance(container, dict | set) else container.extend(kept)

    return put_back


def _cell(cell: CellType) -> PutBack:
    kept = _content_of(cell)
    return partial(setattr, cell, "cell_contents", kept) if kept is not _ABSENT else _nothing()


def _binding(names: dict[str, Any], name: str) -> PutBack:
    kept = names.get(name, _ABSENT)
    return partial(names.pop, name, None) if kept is _ABSENT else partial(names.__setitem__, name, kept)


def _attribute(cls: type, name: str) -> PutBack:
    kept = vars(cls)[name]

    def put_back() -> None:
        if vars(cls).get(name) is not kept:
            setattr(cls, name, kept)

    return put_back


def _nothing() -> PutBack:
    return lambda: None


def _content_of(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _ABSENT  # not bound yet


# -- whose it is ---------------------------------------------------------------------------------------


def _is_container(one: object) -> TypeGuard[Container]:
    return isinstance(one, _CONTAINERS) and (type(one) in _CONTAINERS or _is_instance(one))


def _is_instance(one: object) -> bool:
    """Of a class of the user's that is built on nobody else's: what a library keeps is the library's business."""
    kinds = type(one).__mro__
    foreign = any(not is_theirs(kind.__module__) and not is_pythons(kind.__module__) for kind in kinds)
    return isinstance(one, _HOLDERS) or (is_theirs(kinds[0].__module__) and not foreign and not isinstance(one, type))
