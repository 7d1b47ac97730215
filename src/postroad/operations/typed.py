"""From JSON that a person typed to an event: what cannot be read, or would be passed over in silence, is refused."""

import json
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final, NoReturn

from postroad.codec import decode, encode
from postroad.codec.formats import format_of
from postroad.errors import InvalidPayload, UnreadableMessage, WriteRefused
from postroad.events import EventType, field_names, is_protobuf

_NEARBY: Final = 20
_ODD: Final[dict[str, Any]] = {"": [[{}]]}
"""A value that no field takes which has a type of its own."""

Place = tuple[str | int, ...]


def typed_event(text: str, kind: EventType) -> object:
    plain = _plain(text)
    if is_protobuf(kind.cls):
        return _protobuf(plain, kind)
    try:
        event = decode(text.encode(), kind)
    except UnreadableMessage as error:
        raise WriteRefused(f"{error}. Nothing was stored.") from None
    _refuse_unknown(plain, event, kind)
    return event


def _protobuf(plain: Any, kind: EventType) -> object:
    """Protobuf's own JSON, which refuses unknown fields by itself."""
    try:
        return format_of(kind).from_plain(plain, kind)
    except UnreadableMessage as error:
        raise WriteRefused(f"{error}. Nothing was stored.") from None


def _plain(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - _NEARBY) : error.pos + _NEARBY]
        raise WriteRefused(
            f"The JSON cannot be read: {error.msg}, at line {error.lineno}, column {error.colno}, near {near!r}. "
            "Nothing was stored. Where the shell takes its quotes away, write it to a file and give @file."
        ) from None
    except RecursionError:
        raise WriteRefused("The JSON is nested too deeply. Nothing was stored.") from None


def _no_number(name: str) -> NoReturn:
    raise WriteRefused(f"The JSON cannot be read: {name} is no number in JSON. Nothing was stored.")


# -- fields that nobody would read -----------------------------------------------------------------------


def _refuse_unknown(plain: Any, event: object, kind: EventType) -> None:
    """Consumers pass over fields they do not know, so that producers can add some. One typed by hand is a mistake."""
    try:
        read = json.loads(encode(event, kind))
    except InvalidPayload:
        return  # which the outbox will say too, and name the field
    declared = list((field_names(kind.cls) or {}).values())
    for place, others in _left_out(plain, read):
        known = declared if len(place) == 1 else others
        if _is_passed_over(plain, place, read, kind):
            near = get_close_matches(str(place[-1]), known, n=1)
            cure = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(known) or 'none'}."
            raise WriteRefused(f"{kind.name} has no field {_told(place)}. {cure} Nothing was stored.")


def _left_out(given: Any, read: Any, place: Place = ()) -> Iterator[tuple[Place, list[str]]]:
    """The keys that were given and did not come back, each with those that did."""
    if isinstance(given, dict) and isinstance(read, dict):
        for name, value in given.items():
            if name in read:
                yield from _left_out(value, read[name], (*place, name))
            else:
                yield (*place, name), list(read)
    elif isinstance(given, list) and isinstance(read, list):
        for number, (value, back) in enumerate(zip(given, read, strict=False)):
            yield from _left_out(value, back, (*place, number))


def _is_passed_over(plain: Any, place: Place, read: Any, kind: EventType) -> bool:
    """Not if it only stayed out because it is the field's default: then another value would make a difference."""
    try:
        other = decode(json.dumps(_with(plain, place, _ODD)).encode(), kind)
        return bool(json.loads(encode(other, kind)) == read)
    except (UnreadableMessage, InvalidPayload):
        return False


def _with(plain: Any, place: Place, value: Any) -> Any:
    if not place:
        return value
    changed = plain.copy()
    changed[place[0]] = _with(plain[place[0]], place[1:], value)
    return changed


def _told(place: Place) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return repr("".join(parts).removeprefix("."))
