"""The stretch of time that is looked at, by the database's clock, and the pieces in which it is read."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from postroad.errors import ConfigurationError

if TYPE_CHECKING:
    from postroad.app import Postroad

GRACE: Final = 300.0
"""Seconds within which an event may still be on its way."""
DAY: Final = 86_400.0
_SLICE: Final = timedelta(hours=1)
PIECE: Final = 50_000
"""Rows of a numbered table that one statement looks at."""


@dataclass(frozen=True, slots=True)
class Window:
    since: datetime
    kept_since: datetime
    """Before that, the outbox may have been cleared of what was sent."""
    until: datetime
    now: datetime

    def slices(self) -> Iterator[dict[str, Any]]:
        return slices(self.kept_from, self.until)

    @property
    def kept_from(self) -> datetime:
        """From when on the outbox still has what was sent."""
        return max(self.since, self.kept_since)


def slices(low: datetime, high: datetime) -> Iterator[dict[str, Any]]:
    """Short stretches: no statement holds back the clearing of old rows for long."""
    while low < high:
        end = min(low + _SLICE, high)
        yield {"low": low, "high": end}
        low = end


async def window(road: "Postroad", since: float | timedelta, grace: float) -> Window:
    seconds = since.total_seconds() if isinstance(since, timedelta) else since
    for name, value in (("since", seconds), ("grace", grace)):
        if not 0 <= value < float("inf"):
            raise ConfigurationError(f"`{name}` is {value:g}. Give seconds, not below zero.")
    async with road.store.reading() as connection:
        now = await road.store.server_time(connection)
    # The outbox forgets by the time of sending, events are dated by their writers: an hour for clocks that differ.
    kept = now - timedelta(seconds=road.outbox_retention) + timedelta(hours=1)
    return Window(now - timedelta(seconds=seconds), kept, now - timedelta(seconds=grace), now)


def ranges(span: Any) -> Iterator[dict[str, Any]]:
    """Pieces of a numbered table, from the first row wanted to the last."""
    if span.low is None:
        return
    for low in range(span.low, span.high + 1, PIECE):
        yield {"low": low, "high": min(low + PIECE - 1, span.high)}
