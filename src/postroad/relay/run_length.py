"""How many events of one key a look reads at once."""

from typing import Final

_FULL: Final = 0.75
"""Of what a look may bring: then there is a backlog."""
_LOOKS_UNTIL_NEXT_TRY: Final = 16


class RunLength:
    """How many rows a key probably has. Finding a key costs more than reading its next row, so in a backlog fewer keys
    with longer runs are read at once; that there is more of each is tried now and then, while looks are full."""

    def __init__(self, batch: int, longest: int) -> None:
        self._batch, self._longest = batch, longest
        self.now = 1
        self._full_looks_to_wait = 0

    def found(self, rows: int) -> None:
        if rows < self._batch * _FULL:
            if self.now > 1:
                self._full_looks_to_wait = _LOOKS_UNTIL_NEXT_TRY
            self.now = max(1, self.now // 2)
        elif self._full_looks_to_wait:
            self._full_looks_to_wait -= 1
        else:
            self.now = min(self.now * 2, self._longest)
