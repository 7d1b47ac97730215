"""Telling the relays that something was committed: at once in this process, by NOTIFY in others.

Never inside the business transaction: PostgreSQL serialises notifying commits. A wake-up may be lost; the relays'
polling is always there.
"""

import threading
from collections.abc import Callable

from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

# Through a plain driver connection the commit cannot be seen: knock a few times while it is likely to happen.
_KNOCKS = (0.002, 0.02, 0.1)


class Wake:
    def __init__(self, store: Store, table: OutboxTable) -> None:
        self._store, self._table = store, table
        self._listeners: set[Callable[[], None]] = set()
        self._wanted = threading.Event()
        self._knocks: tuple[float, ...] = ()
        self._thread: threading.Thread | None = None
        self._closed = False

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """`listener` must be safe to call from any thread. Returns the function that ends it."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def committed(self) -> None:
        """An event of this outbox was committed just now."""
        for listener in tuple(self._listeners):
            listener()
        if self._store.can_notify:
            self._ask()

    def soon(self) -> None:
        """An event was written on a connection whose commit we shall not see."""
        self._knocks = _KNOCKS
        self._ask()

    def close(self) -> None:
        self._closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _ask(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name=f"postroad-wake-{self._table.name}", daemon=True)
            self._thread.start()
        self._wanted.set()

    def _run(self) -> None:
        """One notification serves all commits since the last: that is the coalescing."""
        notifier = self._store.notifier(self._table.channel)
        try:
            while not self._closed:
                self._wanted.wait()
                self._wanted.clear()
                knocks, self._knocks = self._knocks, ()
                if not knocks:
                    notifier.notify()
                for pause in knocks:
                    if self._wanted.wait(pause) and self._closed:
                        break
                    for listener in tuple(self._listeners):
                        listener()
                    notifier.notify()
        finally:
            notifier.close()
