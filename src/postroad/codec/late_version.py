"""A version inside a payload that was written before the database gave it out.

In protobuf, a field that is appended to a message is a part of it like any other. So the payload is stored without
its version, its content type says in which field that is missing, and whoever reads the row with its version
appends it: without knowing the message, and without protobuf.
"""

from typing import Final

_MISSING: Final = "; version-field="
ROOM: Final = 15
"""The most bytes that are appended."""


def without_version(content_type: str, field: int) -> str:
    return f"{content_type}{_MISSING}{field}"


def with_version(payload: bytes, content_type: str, version: int | None) -> tuple[bytes, str]:
    """Payload and content type as they travel. Raises ValueError for a field that cannot be."""
    plain, missing, field = content_type.partition(_MISSING)
    if not missing:
        return payload, content_type
    number = int(field)
    if not 0 < number < 2**29:
        raise ValueError(f"{number} is no number of a protobuf field")
    return payload + _varint(number << 3) + _varint(version or 0), plain


def _varint(number: int) -> bytes:
    number &= 2**64 - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
