"""What may be written: only values that every store keeps and that arrive as they were given.

Two walks over an event. `Walk.check` looks at the values themselves, before encoding: a NaN would become
null, a NUL breaks a database, a naive datetime means another moment elsewhere. `compare` looks at what came
back from the encoded bytes: a set in a field of type Any would arrive as a list.
"""

import math
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

import msgspec

from postroad.events import field_names, is_pydantic

MAX_DEPTH: Final = 100
_INT_LIMIT: Final = 2**63
_LONGEST_PATH: Final = 12

Step = str | int
Check = Callable[[Any, int], None]


class Unfaithful(Exception):
    """Raised where the fault is; the containers around it add their step to the path on the way up."""

    def __init__(self, rule: str, *path: Step) -> None:
        super().__init__(rule)
        self.rule = rule
        self._inside_out: list[Step] = list(reversed(path))

    def within(self, step: Step) -> "Unfaithful":
        self._inside_out.append(step)
        return self

    @property
    def path(self) -> str:
        return path_text(self._inside_out[::-1])


def path_text(steps: Iterable[Step]) -> str:
    """`items[2].price`; the payload as a whole is called `payload`."""
    steps = list(steps)
    text = ""
    for step in steps[:_LONGEST_PATH]:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier() and step.isprintable():
            text += f".{step}"
        else:
            text += f"[{step!a}]"
    if len(steps) > _LONGEST_PATH:
        text += "…"
    return text.removeprefix(".") or "payload"


class Walk:
    """Checks every value in an event. What it knows about a class is worked out once and kept."""

    def __init__(self, *, foreign: bool) -> None:
        """`foreign`: let classes pass that the encoder may know although this walk does not."""
        self._foreign = foreign
        self._checks: dict[type, Check] = {
            str: _check_text,
            int: _check_int,
            float: _check_float,
            Decimal: _check_decimal,
            datetime: _check_zone,
            time: _check_zone,
            dict: self._entries,
            list: self._items,
            tuple: self._items,
            set: self._items,
            frozenset: self._items,
            **dict.fromkeys((type(None), bool, UUID, date, timedelta, bytes, msgspec.UnsetType), _nothing_to_check),
        }

    def check(self, value: object, depth: int = 0) -> None:
        kind = type(value)
        check = self._checks.get(kind)
        if check is None:
            check = self._checks[kind] = self._check_for(kind)
        check(value, depth)

    def _check_for(self, kind: Any) -> Check:
        if issubclass(kind, Enum):
            return lambda member, depth: self.check(member.value, depth)
        if issubclass(kind, dict):
            return self._dict_subclass
        if issubclass(kind, list | tuple | set | frozenset):
            return self._items
        names = field_names(kind)
        if names is not None:
            return self._fields(kind, names)
        if self._foreign:
            return next((self._checks[base] for base in kind.__mro__ if base in self._checks), _nothing_to_check)
        return _refuse_class

    def _entries(self, entries: dict[object, object], depth: int) -> None:
        _check_depth(depth)
        for key, value in entries.items():
            if type(key) is not str:
                raise Unfaithful(f"keys must be text, this one is of type {type(key).__name__}", ascii(key)[:40])
            try:
                if key.isascii() is False or "\0" in key:
                    _check_text(key, depth)
                self.check(value, depth + 1)
            except Unfaithful as fault:
                raise fault.within(key) from None

    def _dict_subclass(self, entries: dict[object, object], depth: int) -> None:
        _check_nothing_beside(entries, ())
        self._entries(entries, depth)

    def _items(self, items: Iterable[object], depth: int) -> None:
        _check_depth(depth)
        for index, item in enumerate(items):
            try:
                self.check(item, depth + 1)
            except Unfaithful as fault:
                raise fault.within(index) from None

    def _fields(self, kind: type, names: dict[str, str]) -> Check:
        model = is_pydantic(kind)
        bare = kind.__dictoffset__ == 0
        pairs = tuple(names.items())

        def check_fields(value: Any, depth: int) -> None:
            _check_depth(depth)
            for attribute, name in pairs:
                try:
                    self.check(getattr(value, attribute), depth + 1)
                except Unfaithful as fault:
                    raise fault.within(name) from None
            if model:
                self._entries(value.model_extra or {}, depth)
            elif not bare:
                _check_nothing_beside(value, names)

        return check_fields


def compare(sent: object, back: object) -> None:
    """Raises Unfaithful at the first place where what would arrive is not what was given."""
    if _equal(sent, back):
        return
    if type(sent) is not type(back):
        raise Unfaithful(
            f"a {type(sent).__name__} would arrive as {type(back).__name__}; "
            "give the field that type, or convert the value before"
        )
    for step, one, other in _pairs(sent, back):
        try:
            compare(one, other)
        except Unfaithful as fault:
            raise fault.within(step) from None


def _pairs(sent: Any, back: Any) -> list[tuple[Step, object, object]]:
    """The parts of two values of one type. Two unequal leaves have none and are refused here."""
    kind: Any = type(sent)
    names = field_names(kind)
    if names is not None:
        pairs: list[tuple[Step, object, object]] = [
            (name, getattr(sent, attribute), getattr(back, attribute)) for attribute, name in names.items()
        ]
        if is_pydantic(kind) and sent.model_extra != back.model_extra:
            pairs += _pairs(sent.model_extra, back.model_extra)
        return pairs
    if isinstance(sent, dict) and sent.keys() == back.keys():
        return [(key, value, back[key]) for key, value in sent.items()]
    if isinstance(sent, list | tuple) and len(sent) == len(back):
        return [(index, one, other) for index, (one, other) in enumerate(zip(sent, back, strict=True))]
    raise Unfaithful(f"this {type(sent).__name__} would arrive changed")


def _equal(sent: object, back: object) -> bool:
    try:
        return bool(sent == back)
    except Exception:
        # Whatever a class's own comparison raises, its fields can still be compared one by one.
        return False


def _nothing_to_check(value: object, depth: int) -> None:
    pass


def _check_text(text: str, depth: int) -> None:
    if "\0" in text:
        raise Unfaithful("contains a NUL character, which PostgreSQL cannot store")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unfaithful("contains half a surrogate pair, which is not Unicode text") from None


def _check_int(number: int, depth: int) -> None:
    if not -_INT_LIMIT <= number < _INT_LIMIT:
        raise Unfaithful("does not fit in 64 bits; send it as text")


def _check_float(number: float, depth: int) -> None:
    if not math.isfinite(number):
        raise Unfaithful("is NaN or infinite, which JSON does not have")


def _check_decimal(number: Decimal, depth: int) -> None:
    if not number.is_finite():
        raise Unfaithful("is NaN or infinite, which is not an amount")


def _check_zone(moment: datetime | time, depth: int) -> None:
    if moment.utcoffset() is None:
        raise Unfaithful(f"is a {type(moment).__name__} without time zone; give it one, such as datetime.UTC")


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise Unfaithful(f"is nested more than {MAX_DEPTH} levels deep, or contains itself")


def _check_nothing_beside(value: object, names: Iterable[str]) -> None:
    """An attribute that is not a field would be lost. One the class knows (a cached property) may be."""
    for attribute in getattr(value, "__dict__", {}).keys() - set(names):
        if not hasattr(type(value), attribute):
            raise Unfaithful(f"is not a field of {type(value).__name__} and would be lost", attribute)


def _refuse_class(value: object, depth: int) -> None:
    raise Unfaithful(f"is of type {type(value).__name__}, which has no JSON form; convert it before")
