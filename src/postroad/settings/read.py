"""From plain values to the model. Every refusal names the key's path, and shows no secret."""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from postroad.errors import InvalidSetting
from postroad.redact import one_line
from postroad.settings.model import Duration, Secret, unknown

T = TypeVar("T")

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PARTS: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_LONGEST: Final = 366 * 86_400.0
_MOST: Final = 2**53
_SHOWN: Final = 24


def read(cls: type[T], given: object, path: str = "") -> T:
    """Raises InvalidSetting for the first key that is unknown, missing or of another kind."""
    if not isinstance(given, Mapping):
        raise InvalidSetting(path or "settings", f"is {_kind(given)}, not a mapping of keys to values.")
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, value in given.items():
        place = _under(path, name)
        if name not in known:
            raise unknown(place, name, known)
        values[name] = _value(hints[name], value, place)
        rule = known[name].metadata
        if rule and values[name] != rule["only"]:
            raise InvalidSetting(place, f"{_shown(value)} is not possible: {rule['why']}. Leave the key out.")
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise InvalidSetting(_under(path, name), "is missing.")
    return cls(**values)


def duration(value: object, path: str) -> Duration:
    """ "10s", "1h30m", "250ms", "7d"."""
    text = value if isinstance(value, str) else ""
    parts = _PARTS.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidSetting(path, f'{_shown(value)} is not a duration. Write it as in "10s", "10m" or "1h30m".')
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < seconds <= _LONGEST:
        raise InvalidSetting(path, f"{_shown(value)} is out of range. Give more than 0s and at most 366d.")
    return Duration(seconds)


def _count(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidSetting(path, f"{_shown(value)} is not a whole number.")
    if not 1 <= value <= _MOST:
        raise InvalidSetting(path, f"{_shown(value)} is out of range. Give at least 1.")
    return value


def _flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidSetting(path, f"{_shown(value)} is neither true nor false.")
    return value


def _text(value: object, path: str) -> str:
    # Not shown: whatever stands in the wrong place may be a secret.
    if not isinstance(value, str):
        raise InvalidSetting(path, f"is {_kind(value)}, not text. Put it in quotation marks.")
    if not value.isprintable():
        raise InvalidSetting(path, "contains a control character.")
    return value


_READERS: Final[dict[object, Callable[[object, str], Any]]] = {
    Duration: duration,
    int: _count,
    bool: _flag,
    str: _text,
    Secret: _text,
}


def _value(hint: Any, value: object, path: str) -> Any:
    if value is None:
        raise InvalidSetting(path, "has no value. Give one, or leave the key out.")
    if get_origin(hint) in (Union, UnionType):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    if reader := _READERS.get(hint):
        return reader(value, path)
    if is_dataclass(hint):
        return read(hint, value, path)  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        return _list(get_args(hint)[0], value, path)
    return _names(get_args(hint)[1], value, path)


def _list(hint: Any, value: object, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise InvalidSetting(path, "must be a list of at least one value.")
    return tuple(_value(hint, one, f"{path}[{number}]") for number, one in enumerate(value))


def _names(hint: Any, value: object, path: str) -> dict[str, Any]:
    """Keys of the user's own."""
    if not isinstance(value, Mapping):
        raise InvalidSetting(path, f"is {_kind(value)}, not a mapping of names to values.")
    found = {}
    for name, one in value.items():
        if not isinstance(name, str):
            raise InvalidSetting(_under(path, name), "has a name that is not text. Put it in quotation marks.")
        found[name] = _value(hint, one, _under(path, name))
    return found


def _under(path: str, name: object) -> str:
    told = name if isinstance(name, str) else repr(name)
    return f"{path}.{one_line(told)[:80]}".removeprefix(".")


def _kind(value: object) -> str:
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text", NoneType: "nothing"}
    if isinstance(value, Mapping):
        return "a mapping"
    return kinds.get(type(value), f"a {type(value).__name__}")


def _shown(value: object) -> str:
    """What is short can be shown, since these keys hold no secrets; a longer text is something else."""
    if not isinstance(value, str | int | float):
        return f"a value of type {type(value).__name__}"
    if isinstance(value, int) and abs(value) > _MOST:
        return "the number"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return one_line(text) if len(text) <= _SHOWN else "the value"
