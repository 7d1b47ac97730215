"""Counting: cheap enough for the hot paths, without a library. What is counted is served by `exposition`."""

from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from postroad.telemetry.names import METRICS

MOST_SERIES: Final = 200
"""Label values of one metric; what comes after them is counted together."""
OVERFLOW: Final = "other"

Labels = tuple[str, ...]


@dataclass(slots=True)
class Distribution:
    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def take(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Meter:
    """Metrics by their name in the table and the values of their labels, in the table's order.

    May be used from several threads; each process has its own.
    """

    def __init__(self) -> None:
        self._values: dict[str, dict[Labels, float]] = {}
        self._distributions: dict[str, dict[Labels, Distribution]] = {}
        self._lock = Lock()

    def add(self, name: str, amount: float, *labels: str) -> None:
        with self._lock:
            series = self._values.setdefault(name, {})
            labels = _bounded(name, series, labels)
            series[labels] = series.get(labels, 0) + amount

    def set(self, name: str, value: float, *labels: str) -> None:
        with self._lock:
            series = self._values.setdefault(name, {})
            place = _bounded(name, series, labels)
            # Of those that share a place the highest is told: one that is well must not hide one that is not.
            series[place] = value if place == labels else max(value, series.get(place, value))

    def observe(self, name: str, values: Iterable[float], *labels: str) -> None:
        with self._lock:
            series = self._distributions.setdefault(name, {})
            labels = _bounded(name, series, labels)
            if labels not in series:
                series[labels] = Distribution(METRICS[name].buckets)
            for value in values:
                series[labels].take(value)

    def value(self, name: str, *labels: str) -> float | None:
        return self._values.get(name, {}).get(labels)

    def values(self, name: str) -> Iterator[tuple[Labels, float]]:
        yield from list(self._values.get(name, {}).items())

    def distributions(self, name: str) -> Iterator[tuple[Labels, Distribution]]:
        yield from list(self._distributions.get(name, {}).items())


class RecentAverage:
    """Of what one histogram took in the last minutes, in all its series."""

    def __init__(self, name: str, seconds: float = 300.0) -> None:
        self._name, self._seconds = name, seconds
        self._looks: deque[tuple[float, int, float]] = deque()

    def read(self, meter: Meter, now: float) -> float:
        found = [one for _, one in meter.distributions(self._name)]
        self._looks.append((now, sum(sum(one.counts) for one in found), sum(one.total for one in found)))
        while len(self._looks) > 1 and self._looks[1][0] <= now - self._seconds:
            self._looks.popleft()
        # Before the first look there was nothing.
        _, count, total = self._looks[0] if self._looks[0][0] <= now - self._seconds else (0.0, 0, 0.0)
        taken = self._looks[-1][1] - count
        return (self._looks[-1][2] - total) / taken if taken else 0.0


def _bounded(name: str, series: dict[Labels, float] | dict[Labels, Distribution], labels: Labels) -> Labels:
    if labels in series:
        return labels
    if len(labels) != len(METRICS[name].labels):
        raise ValueError(f"{name} has the labels {METRICS[name].labels}, not {len(labels)} of them")
    # A type or topic that somebody makes up for each message must not fill the memory, here or in Prometheus.
    return labels if len(series) < MOST_SERIES else (OVERFLOW,) * len(labels)


Source = Callable[[Meter], Awaitable[None]]
"""Sets gauges when they are asked for: `async def source(gauges: Meter): gauges.set("pending_commands", 3)`."""
