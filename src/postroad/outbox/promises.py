"""Events that `add` was asked to write on a SQLAlchemy connection: it may not commit without them.

An `add` that was never awaited, or whose error was caught, would otherwise leave rows without their event.
Rolling back, also to a savepoint, cancels what was promised since.
"""

from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, event

from postroad.errors import WriteRefused
from postroad.outbox.statement import Row
from postroad.outbox.wake import Wake


class Promise:
    """One event that is to be written."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def __str__(self) -> str:
        return f"{self.row['event_type']} of {self.row['aggregate_type']} {self.row['aggregate_id']!r}"


class Promises:
    """Of one connection, in its present transaction."""

    def __init__(self) -> None:
        self._open: list[Promise] = []
        self._savepoints: list[list[Promise]] = []
        """What was open at each that is not released yet. SQLAlchemy does not tell a new one's name, but they are
        nested: the last is the first to end."""
        self._wakes: set[Wake] = set()

    def make(self, row: Row) -> Promise:
        promise = Promise(row)
        self._open.append(promise)
        return promise

    def keep(self, promise: Promise, wake: Wake) -> None:
        # Rolled back while the write was under way: there is nothing left to keep.
        if promise in self._open:
            self._open.remove(promise)
        self._wakes.add(wake)

    def savepoint(self) -> None:
        self._savepoints.append(list(self._open))

    def released(self) -> None:
        self._last_savepoint()

    def rolled_back(self) -> None:
        before = self._last_savepoint()
        self._open = [promise for promise in self._open if promise in before]

    def commit(self) -> None:
        if self._open:
            raise WriteRefused(
                f"The event {self._open[0]} was added to this transaction but not written: its `add` failed "
                "or was never awaited. Nothing was committed. Write `await road.add(connection, event)`, or "
                "roll back."
            )
        for wake in self._wakes:
            wake.soon()

    def _last_savepoint(self) -> list[Promise]:
        # One older than the first promise has nothing before it.
        return self._savepoints.pop() if self._savepoints else []


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
        _promises[connection].savepoint()


@event.listens_for(Engine, "release_savepoint")
def _release_savepoint(connection: Connection, name: str, context: None) -> None:
    if connection in _promises:
        _promises[connection].released()


@event.listens_for(Engine, "rollback_savepoint")
def _rollback_savepoint(connection: Connection, name: str, context: None) -> None:
    if connection in _promises:
        _promises[connection].rolled_back()
