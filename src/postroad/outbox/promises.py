"""Events that `add` was asked to write on a SQLAlchemy connection: it may not commit without them.

An `add` that was never awaited, or whose error was caught, would otherwise leave rows without their event.
Rolling back, also to a savepoint, cancels what was promised since.
"""

from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, event

from postroad.errors import WriteRefused
from postroad.outbox.wake import Wake


class Promises:
    """Of one connection, in its present transaction."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._before_savepoint: dict[str, int] = {}
        self._wakes: set[Wake] = set()

    def make(self, event_text: str) -> None:
        self._open.append(event_text)

    def keep(self, event_text: str, wake: Wake) -> None:
        # Rolled back while the write was under way: there is nothing left to keep.
        if event_text in self._open:
            self._open.remove(event_text)
        self._wakes.add(wake)

    def savepoint(self, name: str) -> None:
        self._before_savepoint[name] = len(self._open)

    def rolled_back_to(self, name: str) -> None:
        # A savepoint older than the first promise has nothing before it.
        del self._open[self._before_savepoint.get(name, 0) :]

    def commit(self) -> None:
        if self._open:
            raise WriteRefused(
                f"The event {self._open[0]} was added to this transaction but not written: its `add` failed "
                "or was never awaited. Nothing was committed. Write `await road.add(connection, event)`, or "
                "roll back."
            )
        for wake in self._wakes:
            wake.soon()


_promises: WeakKeyDictionary[Connection, Promises] = WeakKeyDictionary()


def promises_of(connection: Connection) -> Promises:
    found = _promises.get(connection)
    if found is None:
        found = _promises[connection] = Promises()
    return found


# For every engine, once: listening on each connection would cost more than the write itself.


@event.listens_for(Engine, "commit")
def _commit(connection: Connection) -> None:
    if connection in _promises:
        _promises[connection].commit()
        del _promises[connection]


@event.listens_for(Engine, "rollback")
def _rollback(connection: Connection) -> None:
    _promises.pop(connection, None)


@event.listens_for(Engine, "savepoint")
def _savepoint(connection: Connection, name: str | None) -> None:
    if connection in _promises:
        _promises[connection].savepoint(str(name))


@event.listens_for(Engine, "rollback_savepoint")
def _rollback_savepoint(connection: Connection, name: str, context: None) -> None:
    if connection in _promises:
        _promises[connection].rolled_back_to(name)
