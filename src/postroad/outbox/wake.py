"""Telling the relays that something was committed: at once in this process, by NOTIFY in others.

Never inside the business transaction: PostgreSQL serialises notifying commits. A wake-up may be lost; the
relays' polling is always there.
"""

import threading
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

# Through a plain driver connection the commit cannot be seen: knock a few times while it is likely to happen.
_FIRST_KNOCK = 0.002
_LATER_KNOCKS = (0.02, 0.1)
# Between two notifications, however many commits there are: else a busy writer would spend itself on them. Where a
# notification takes long, writers and server are busy, and so are the relays: then they come more seldom. At 50 they
# take 2 % of a writing process's time; at 20, eight busy processes lost a twentieth of their transactions to them.
_REST = 0.005
_REST_PER_NOTIFYING = 50
_LONGEST_REST = 0.1
# Who was quiet before need not rest at once: else one slow notification would hold back the next commit of a writer
# that has hardly any.
_SAVED_UP = 0.5


class Wake:
    def __init__(self, store: Store, table: OutboxTable) -> None:
        self._store, self._table = store, table
        self.name = uuid4().hex
        """Sent along with notifications, so that a relay that is told here need not be told by them again."""
        self._listeners: set[Callable[[], None]] = set()
        self._wanted = threading.Event()
        self._unseen = False
        """Whether one of those who asked could not see the commit."""
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = threading.Event()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """`listener` must be safe to call from any thread. Returns the function that ends it."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def committed(self) -> None:
        """An event of this outbox was committed just now."""
        self._tell_listeners()
        if self._store.can_notify:
            self._ask()

    def soon(self) -> None:
        """An event was written on a connection whose commit we shall not see."""
        self._unseen = True
        self._ask()

    def close(self) -> None:
        with self._starting:
            self._closed.set()
            self._wanted.set()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _ask(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._closed.is_set():
                    name = f"postroad-wake-{self._table.name}"
                    self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                    self._thread.start()
        if not self._wanted.is_set():  # most often it is, while many write; setting it takes a lock
            self._wanted.set()

    def _run(self) -> None:
        """One notification serves all commits since the last: that is the coalescing."""
        notifier = self._store.notifier(self._table.channel, self.name)
        later: Iterator[float] = iter(())
        rested = 0.0
        """When all rests will be over that were due so far."""
        try:
            while not self._closed.is_set():
                asked, knocking = self._wanted.wait(next(later, None)), True
                if asked:
                    self._wanted.clear()
                    knocking, self._unseen = self._unseen, False
                    if knocking:
                        later = iter(_LATER_KNOCKS)
                        self._closed.wait(_FIRST_KNOCK)
                if knocking:
                    self._tell_listeners()
                begun = time.monotonic()
                notifier.notify()
                ended = time.monotonic()
                rested = max(rested, begun - _SAVED_UP) + _REST_PER_NOTIFYING * (ended - begun)
                rested = min(rested, ended + _LONGEST_REST)
                self._closed.wait(max(rested - ended, _REST))
        finally:
            notifier.close()

    def _tell_listeners(self) -> None:
        for listener in tuple(self._listeners):
            listener()
