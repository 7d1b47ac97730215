"""Removing what is settled everywhere and older than its retention."""

import sqlite3
from typing import Final

from postroad.brokers.embedded.database import SQL

WINDOW: Final = 1_000
"""Messages looked at per step, so that no publisher ever waits for a large clean-up."""
PAUSE: Final = 60_000_000


class Purger:
    """Walks through the messages from the oldest on, one window per step, riding on other transactions.

    A message that somebody has not settled is never removed, whatever its age.
    """

    def __init__(self) -> None:
        self._position = 0
        self._due_at = 0

    def step_if_due(self, connection: sqlite3.Connection, now: int) -> None:
        if now >= self._due_at:
            self.step(connection, now)

    def step(self, connection: sqlite3.Connection, now: int) -> int:
        """The number of messages removed from this window."""
        window = self._old(connection, now)
        removed = 0
        if window:
            names = {"position": self._position, "last": window[-1], "now": now}
            removed = connection.execute(SQL["purge"], names).rowcount
        if len(window) == WINDOW:
            self._position, self._due_at = window[-1], now
        else:
            self._position, self._due_at = 0, now + PAUSE
        return removed

    def _old(self, connection: sqlite3.Connection, now: int) -> list[int]:
        shortest = connection.execute(SQL["shortest_retention"]).fetchone()[0]
        if shortest is None:
            return []
        names = {"position": self._position, "size": WINDOW}
        rows = connection.execute(SQL["purge_window"], names).fetchall()
        return [message for message, published_at in rows if published_at < now - shortest]
