"""Letting messages come again: from a time, from a snapshot, from the dead letters."""

import re
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Final

import msgspec

from postroad.brokers.base import DeadLetter
from postroad.brokers.embedded.database import SQL, micros, moment
from postroad.brokers.embedded.publish import read_attributes
from postroad.brokers.embedded.structure import find, reopen
from postroad.errors import ConfigurationError

_encode: Final = msgspec.json.Encoder().encode
_NUMBER: Final = re.compile("[0-9]{1,18}")
"""What an id of ours looks like; a longer number would not even fit into a column."""


def seek(connection: sqlite3.Connection, now: int, *, name: str, to: datetime | str) -> int:
    """Reopens what is settled; what is not settled stays as it is."""
    found = find(connection, now, name=name)
    names: dict[str, object] = {"subscription": found.id, "topic": found.topic}
    if isinstance(to, datetime):
        return reopen(connection, "reopen_since", names | {"since": micros(to)})
    rows = connection.execute(SQL["snapshots"], names).fetchall()
    snapshots = {name: {"position": position, "unsettled": unsettled} for name, position, unsettled in rows}
    if to not in snapshots:
        near = get_close_matches(to, snapshots, n=1)
        cure = f"Did you mean {near[0]!r}?" if near else "Take one first."
        raise ConfigurationError(f"Subscription {name!r} has no snapshot {to!r}. {cure}")
    return reopen(connection, "reopen_snapshot", names | snapshots[to])


def take_snapshot(connection: sqlite3.Connection, now: int, *, subscription: str, name: str) -> None:
    """What is unsettled now, and the position up to which that is so. It does not prolong the retention."""
    found = find(connection, now, name=subscription)
    position = connection.execute(SQL["last_message"]).fetchone()[0]
    connection.execute(SQL["take_snapshot"], {"subscription": found.id, "name": name, "position": position})


def dead_letters(connection: sqlite3.Connection, now: int, *, topic: str, limit: int, after: str) -> list[DeadLetter]:
    position = int(after) if _NUMBER.fullmatch(after) else 0
    names = {"topic": topic, "limit": limit, "after": position}
    return [_dead_letter(*row) for row in connection.execute(SQL["dead_letters"], names).fetchall()]


def dead_letter_count(connection: sqlite3.Connection, now: int, *, topic: str) -> int:
    return int(connection.execute(SQL["dead_letter_count"], {"topic": topic}).fetchone()[0])


def _dead_letter(
    id: int,
    topic: str,
    subscription: str,
    reason: str,
    attempts: int,
    died_at: int,
    attributes: bytes,
    data: bytes,
) -> DeadLetter:
    died = moment(died_at)
    return DeadLetter(str(id), topic, subscription, reason, attempts, died, read_attributes(attributes), data)


def revive(connection: sqlite3.Connection, now: int, *, topic: str, ids: Sequence[str]) -> int:
    exhumed = _exhume(connection, topic, ids)
    for subscription, message in exhumed:
        key = connection.execute(SQL["key_of"], {"message": message}).fetchone()[0]
        names = {"subscription": subscription, "message": message, "key": key, "now": now}
        connection.execute(SQL["demote"], names)
        connection.execute(SQL["reopen_message"], names)
        connection.execute(SQL["promote"], names)
    return len(exhumed)


def discard(connection: sqlite3.Connection, now: int, *, topic: str, ids: Sequence[str]) -> int:
    return len(_exhume(connection, topic, ids))


def _exhume(connection: sqlite3.Connection, topic: str, ids: Sequence[str]) -> list[tuple[int, int]]:
    numbers = [int(id) for id in ids if _NUMBER.fullmatch(id)]
    names = {"topic": topic, "ids": _encode(numbers).decode()}
    return connection.execute(SQL["exhume"], names).fetchall()
