"""How much a relay holds in memory: payloads up to a bound, however large the messages are."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy.engine import Row

from postroad.stores.base import Store, id_text
from postroad.stores.tables import OutboxTable

_MOST_OWED: Final = 1_000
OfKey = Sequence[Row[Any]]
"""The next rows of one key, oldest first."""


class Payloads:
    """Small ones come with their rows; large ones are fetched once it is clear which can be sent."""

    def __init__(self, store: Store, outbox: OutboxTable, most_bytes: int, most_rows: int) -> None:
        self._store, self._outbox, self._most = store, outbox, most_bytes
        self.inline = most_bytes // most_rows
        """Up to this size a payload comes with its row: all of them together still keep the bound."""
        self._owed: set[tuple[int, str]] = set()

    def within_bounds(self, keys: Sequence[OfKey]) -> Sequence[OfKey]:
        """The same without what would be too much: it is read again next time. A run is cut at its tail only."""
        left = self._most
        chosen: list[OfKey] = []
        # Heads that had no room before go first, or smaller ones could keep them waiting for ever.
        for of_key in sorted(keys, key=lambda of_key: _place(of_key) not in self._owed):
            taken: list[Row[Any]] = []
            for row in of_key:
                size = row.size or 0
                # One at least, or a message larger than the bound would never go.
                if size > left and (chosen or taken):
                    break
                left -= size
                taken.append(row)
            if taken:
                chosen.append(taken)
                self._owed.discard(_place(of_key))
            elif len(self._owed) < _MOST_OWED:
                self._owed.add(_place(of_key))
        return chosen

    async def fetch(self, keys: Sequence[OfKey]) -> Mapping[Any, Any]:
        """The payloads that did not come with their rows, by event id."""
        ids = [id_text(row.event_id) for of_key in keys for row in of_key if row.payload is None and row.size]
        if not ids:
            return {}
        found = await self._store.read("read_payloads", self._outbox, ids=ids)
        return {row.event_id: row.payload for row in found.rows}


def _place(of_key: OfKey) -> tuple[int, str]:
    return of_key[0].shard, of_key[0].ordering_key
