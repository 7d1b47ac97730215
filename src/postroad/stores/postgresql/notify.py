"""LISTEN and NOTIFY, each on a connection of its own. Only a wake-up: it may be lost, polling goes on."""

import logging
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy.engine import URL

from postroad.clock import Clock
from postroad.stores.base import Notifier

log = logging.getLogger("postroad.wakeup")

_PAUSE = 1.0
_LONGEST_NAME = 63
"""To which LISTEN cuts the name of a channel; the function refuses a longer one."""


class PostgreSQLNotifier(Notifier):
    def __init__(self, url: URL, channel: str, sender: str) -> None:
        self._url = url
        # To notify is to commit, and all who notify wait for one another: not for the disk, too. What is told of is
        # there to stay already; only the word of it may get lost, as any wake-up may.
        notify = sql.SQL("SELECT pg_notify({}, {}), set_config('synchronous_commit', 'off', true)")
        # Written out once: it is sent after every commit.
        self._statement = notify.format(sql.Literal(channel[:_LONGEST_NAME]), sql.Literal(sender)).as_bytes(None)
        self._connection: psycopg.Connection | None = None
        self._not_before = 0.0

    def notify(self) -> None:
        if time.monotonic() < self._not_before:
            return
        try:
            if self._connection is None:
                self._connection = psycopg.connect(**connect_args(self._url), autocommit=True)
            self._connection.execute(self._statement)
        except psycopg.Error:
            # The relays find the event by polling; do not hammer a database that is in trouble.
            self.close()
            self._not_before = time.monotonic() + _PAUSE

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


async def watch(url: URL, channel: str, wake: Callable[[], None], but_from: str, clock: Clock) -> None:
    while True:
        try:
            connection = await psycopg.AsyncConnection.connect(**connect_args(url), autocommit=True)
            async with connection:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                # What was notified while we were away is lost: look for ourselves.
                wake()
                async for notification in connection.notifies():
                    if notification.payload != but_from:
                        wake()
        except psycopg.Error as error:
            log.debug("listening on %s broke off (%s); polling goes on", channel, type(error).__name__)
        await clock.sleep(_PAUSE)


def connect_args(url: URL) -> dict[str, Any]:
    """As the engine understands the address: several hosts, and whatever may stand in a password."""
    dialect = url.set(drivername="postgresql+psycopg").get_dialect()()
    _, arguments = dialect.create_connect_args(url)
    return {"connect_timeout": 5, **arguments}
