"""Taking messages in."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from postroad.brokers.base import Confirmed, Outcome, Refused, Unavailable
from postroad.brokers.embedded.database import SQL, micros
from postroad.message import Message

MAX_MESSAGE_BYTES: Final = 10_000_000

_encode: Final = msgspec.json.Encoder().encode
_decode_attributes: Final = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class Letter:
    """A message ready to be stored."""

    topic: int
    key: str
    not_before: int
    size: int
    attributes: bytes
    data: bytes


def judge(batch: Sequence[Message], topics: Mapping[str, int]) -> tuple[list[Outcome], list[Letter]]:
    """An outcome per message, and what is to be stored for the confirmed ones to be true."""
    outcomes: list[Outcome] = []
    letters: list[Letter] = []
    stopped: set[tuple[str, str]] = set()
    for message in batch:
        lane = (message.topic, message.wire_key)
        if lane in stopped:
            # Not refused: the fault is its predecessor's, and must cost this one no attempt.
            outcomes.append(Unavailable(f"held back by a refused predecessor of key {message.wire_key!r}"))
            continue
        letter = _letter(message, topics)
        if isinstance(letter, Refused):
            if message.wire_key:
                stopped.add(lane)
            outcomes.append(letter)
        else:
            letters.append(letter)
            outcomes.append(Confirmed())
    return outcomes, letters


def _letter(message: Message, topics: Mapping[str, int]) -> Letter | Refused:
    if (topic := topics.get(message.topic)) is None:
        return Refused(f"topic {message.topic!r} does not exist. Run: postroad topology apply")
    try:
        attributes = _encode(message.attributes())
    except UnicodeEncodeError as error:
        return Refused(f"an attribute is not valid Unicode: {error}")
    size = len(attributes) + len(message.payload)
    if size > MAX_MESSAGE_BYTES:
        return Refused(f"the message is {size:,} bytes, the embedded broker takes {MAX_MESSAGE_BYTES:,}")
    not_before = micros(message.deliver_at) if message.deliver_at else 0
    return Letter(topic, message.wire_key, not_before, size, attributes, message.payload)


def topic_ids(connection: sqlite3.Connection, now: int, *, names: Sequence[str]) -> dict[str, int]:
    return dict(connection.execute(SQL["topic_ids"], {"names": _encode(names).decode()}).fetchall())


def store(connection: sqlite3.Connection, now: int, *, letters: Sequence[Letter]) -> None:
    """The messages, and one delivery for each subscription of their topics."""
    last = connection.execute(SQL["last_message"]).fetchone()[0]
    connection.executemany(
        SQL["add_message"],
        [(m.topic, m.key, now, max(now, m.not_before), m.size, m.attributes, m.data) for m in letters],
    )
    connection.execute(SQL["deliver_new"], {"last": last})


def read_attributes(raw: bytes) -> Mapping[str, str]:
    """None at all if they cannot be read: the subscriber then buries the message, and the others go on."""
    try:
        return _decode_attributes(raw)
    except msgspec.MsgspecError:
        return {}
