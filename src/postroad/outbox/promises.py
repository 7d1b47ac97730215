"""Events that `add` was asked to write on a SQLAlchemy connection. Without them its transaction may not commit.

An `add` that was never awaited, or whose error was caught, would otherwise leave business rows without their event.
Rolling back, also to a savepoint, cancels what was promised since.
"""

from weakref import WeakKeyDictionary

from sqlalchemy import Connection, event

from postroad.errors import WriteRefused
from postroad.outbox.wake import Wake


class Promises:
    """Of one connection; listens to how its transactions end."""

    def __init__(self, connection: Connection) -> None:
        self._open: list[str] = []
        self._before_savepoint: dict[str, int] = {}
        self._wakes: set[Wake] = set()
        for name in ("commit", "rollback", "savepoint", "rollback_savepoint"):
            event.listen(connection, name, getattr(self, f"_{name}"))

    def make(self, event_text: str) -> None:
        self._open.append(event_text)

    def keep(self, event_text: str, wake: Wake) -> None:
        # Rolled back while the write was under way: there is nothing left to keep.
        if event_text in self._open:
            self._open.remove(event_text)
        self._wakes.add(wake)

    def _commit(self, connection: Connection) -> None:
        if self._open:
            raise WriteRefused(
                f"The event {self._open[0]} was added to this transaction but not written: its `add` failed or was "
                "never awaited. Nothing was committed. Write `await road.add(connection, event)`, or roll back."
            )
        for wake in self._forget():
            wake.soon()

    def _rollback(self, connection: Connection) -> None:
        self._forget()

    def _savepoint(self, connection: Connection, name: str | None) -> None:
        self._before_savepoint[str(name)] = len(self._open)

    def _rollback_savepoint(self, connection: Connection, name: str, context: None) -> None:
        # A savepoint older than our first look has nothing of ours before it.
        del self._open[self._before_savepoint.get(name, 0) :]

    def _forget(self) -> set[Wake]:
        wakes, self._wakes = self._wakes, set()
        self._open.clear()
        self._before_savepoint.clear()
        return wakes


_promises: WeakKeyDictionary[Connection, Promises] = WeakKeyDictionary()


def promises_of(connection: Connection) -> Promises:
    found = _promises.get(connection)
    if found is None:
        found = _promises[connection] = Promises(connection)
    return found
