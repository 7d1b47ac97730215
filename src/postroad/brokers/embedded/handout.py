"""Handing messages out: leases, and at most one receiver per key."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from postroad.brokers.embedded.database import SQL
from postroad.brokers.embedded.settle import release

BATCH: Final = 500
"""Messages per transaction: enough to make its cost small, few enough to keep the file free for others."""

_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Room:
    """What the receiver may still take."""

    messages: int
    bytes: int
    empty_handed: bool
    """It holds nothing, so it takes one message however large, else that one could never be delivered."""


@dataclass(frozen=True, slots=True)
class Taken:
    message: int
    key: str
    attempt: int
    size: int
    attributes: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class HandOut:
    receiver: int
    """Its current id: a new one if it had lost its lease."""
    taken: Sequence[Taken]
    wake_at: int | None
    """When time alone makes something new deliverable; None if never."""


Candidate = tuple[int, str, int]
"""message, key, size"""


def register(connection: sqlite3.Connection, now: int, *, subscription: int) -> int:
    row = connection.execute(SQL["register"], {"subscription": subscription, "expires_at": now}).fetchall()
    receiver = int(row[0][0])
    extend(connection, now, receivers=[receiver])
    return receiver


def extend(connection: sqlite3.Connection, now: int, *, receivers: Sequence[int]) -> int:
    """Prolongs the leases of these receivers; the number of those that still had one."""
    return connection.executemany(
        SQL["extend"], [{"now": now, "receiver": receiver} for receiver in receivers]
    ).rowcount


def anything(connection: sqlite3.Connection, now: int, *, subscription: int, receiver: int) -> HandOut | None:
    """A look without the write lock: None if there may be something to take, else when to look again."""
    names = {"subscription": subscription, "receiver": receiver, "now": now, "after": -1}
    wake_at = _next(connection, names)
    return None if wake_at is not None and wake_at <= now else HandOut(receiver, (), wake_at)


def take(connection: sqlite3.Connection, now: int, *, subscription: int, receiver: int, room: Room) -> HandOut:
    names = {"subscription": subscription, "receiver": receiver, "now": now}
    for (expired,) in connection.execute(SQL["expired"], names).fetchall():
        release(connection, now, holder=expired, counted=True)
    if not extend(connection, now, receivers=[receiver]):
        receiver = register(connection, now, subscription=subscription)
        names["receiver"] = receiver
    chosen = _choose(connection, names, room)
    connection.executemany(SQL["hold"], [(receiver, subscription, message) for message, _, _ in chosen])
    rows = connection.execute(SQL["contents"], names | {"messages": _encode([c[0] for c in chosen]).decode()})
    taken = [Taken(*row) for row in rows.fetchall()]
    return HandOut(receiver, taken, _next(connection, names | {"after": now}))


def _next(connection: sqlite3.Connection, names: dict[str, int]) -> int | None:
    """When something becomes ready or a lease runs out, whichever is first."""
    moments = connection.execute(SQL["next"], names).fetchone()
    return min((moment for moment in moments if moment is not None), default=None)


def _choose(connection: sqlite3.Connection, names: dict[str, int], room: Room) -> list[Candidate]:
    """First the head of every ready key, oldest first; what room is left goes to the runs behind them."""
    limit = min(room.messages, BATCH)
    heads: list[Candidate] = connection.execute(SQL["heads"], names | {"room": limit}).fetchall()
    heads = _fitting(heads, room, 0)
    size = sum(head[2] for head in heads)
    runs: dict[int, list[Candidate]] = {}
    left = limit - len(heads)
    for message, key, _ in heads:
        if left <= 0 or size >= room.bytes:
            break
        if key:
            run = _fitting(_followers(connection, names, key, message, left), room, size)
            runs[message] = run
            left -= len(run)
            size += sum(follower[2] for follower in run)
    return [candidate for head in heads for candidate in (head, *runs.get(head[0], ()))]


def _followers(
    connection: sqlite3.Connection, names: dict[str, int], key: str, head: int, limit: int
) -> list[Candidate]:
    """The run right behind a head, up to the first that is delayed or in somebody's hands."""
    rows = connection.execute(SQL["followers"], {**names, "key": key, "head": head, "room": limit}).fetchall()
    run: list[Candidate] = []
    for message, row_key, size, takeable in rows:
        if not takeable:
            break
        run.append((message, row_key, size))
    return run


def _fitting(candidates: Sequence[Candidate], room: Room, used: int) -> list[Candidate]:
    """As many from the front as the bytes allow."""
    fitting: list[Candidate] = []
    for candidate in candidates:
        used += candidate[2]
        alone = room.empty_handed and used == candidate[2]
        if used > room.bytes and not alone:
            break
        fitting.append(candidate)
    return fitting
