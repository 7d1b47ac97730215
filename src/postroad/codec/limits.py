"""What the brokers take, checked when an event is written: an oversize message would be retried for ever."""

from operator import attrgetter
from typing import Any, Final

import msgspec

from postroad.codec.faithful import Step, path_text
from postroad.errors import InvalidPayload, MessageTooLarge
from postroad.message import OPTIONAL_ATTRIBUTES, Message

MAX_ATTRIBUTES: Final = 100
MAX_NAME_BYTES: Final = 256
MAX_VALUE_BYTES: Final = 1_024

_free_texts = attrgetter("aggregate_id", "tenant", *OPTIONAL_ATTRIBUTES)
_PLAIN_BYTES: Final = 4_096
"""More than the attributes of a plain message can take together, with their names."""


def check_size(message: Message, limit: int) -> None:
    """`limit` is for payload and attributes together; the limits of attributes are the same everywhere."""
    if _is_plain(message) and len(message.payload) + _PLAIN_BYTES <= limit:
        return
    size = len(message.payload) + _attribute_bytes(message)
    if size > limit:
        raise MessageTooLarge(message.type, size, limit, *_largest(message))


def _largest(message: Message) -> tuple[str, int]:
    """The field that takes the most room, as far inside as it is still most of what surrounds it; and its bytes."""
    try:
        value: Any = msgspec.json.decode(message.payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "", 0  # not JSON
    steps: list[Step] = []
    size = 0
    while parts := _parts(value):
        step, part = max(parts, key=lambda one: _json_bytes(one[1]))
        if steps and _json_bytes(part) < size // 2:
            break
        steps.append(step)
        value, size = part, _json_bytes(part)
    return _cut(path_text(steps)), size


def _parts(value: Any) -> list[tuple[Step, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _json_bytes(value: Any) -> int:
    return len(msgspec.json.encode(value))


def _is_plain(message: Message) -> bool:
    """Nearly every message: a little text in ASCII, and no headers. One look at all of it together is enough."""
    if message.headers:
        return False
    try:
        text = "".join(filter(None, _free_texts(message)))
    except TypeError:
        return False
    return text.isascii() and "\0" not in text and len(text) <= MAX_VALUE_BYTES


def _attribute_bytes(message: Message) -> int:
    attributes = message.attributes()
    if len(attributes) > MAX_ATTRIBUTES:
        own = len(attributes) - len(message.headers)
        raise InvalidPayload(
            message.type,
            "headers",
            f"has {len(message.headers)} entries; beside {own} other attributes {MAX_ATTRIBUTES - own} fit",
        )
    total = 0
    for name, value in attributes.items():
        name_bytes, value_bytes = _bytes(message, name, name), _bytes(message, name, value)
        if name_bytes > MAX_NAME_BYTES:
            raise _refusal(message, name, f"has a name longer than {MAX_NAME_BYTES} bytes")
        if value_bytes > MAX_VALUE_BYTES:
            raise _refusal(message, name, f"is longer than {MAX_VALUE_BYTES:,} bytes")
        total += name_bytes + value_bytes
    return total


def _bytes(message: Message, name: str, text: object) -> int:
    if not isinstance(text, str):
        raise _refusal(message, name, f"is {type(text).__name__}, not text")
    if "\0" in text:
        raise _refusal(message, name, "contains a NUL character")
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise _refusal(message, name, "contains half a surrogate pair, which is not Unicode text") from None


def _refusal(message: Message, name: str, rule: str) -> InvalidPayload:
    shown = ascii(name)[1:-1].replace("header.", "headers.", 1)
    return InvalidPayload(message.type, _cut(shown), rule)


def _cut(path: str) -> str:
    return path if len(path) < 80 else path[:79] + "…"
