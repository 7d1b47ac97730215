"""What the figures share: fresh databases, rounds side by side, and the form of a result."""

import gc
import os
import statistics
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

import msgspec

from postroad import Postroad, event
from postroad.subscriber import SubscriberOptions
from tests.support.databases import fresh_postgresql

ROOT = Path(__file__).parents[1]
T = TypeVar("T")


class Scale(Enum):
    """How much is measured: a smoke test, a few minutes, or the sizes of the promise."""

    QUICK = 0
    NORMAL = 1
    FULL = 2

    def of(self, quick: T, normal: T, full: T | None = None) -> T:
        return (quick, normal, normal if full is None else full)[self.value]

    @property
    def rounds(self) -> int:
        return self.of(1, 3, 5)


@dataclass(frozen=True, slots=True)
class Target:
    """A limit of the ratio; with a unit, of our own value, where only that is promised."""

    limit: float
    at_most: bool = False
    unit: str = ""

    def met_by(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.limit:g}{' ' + self.unit if self.unit else ''}"


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    ours: Sequence[float]
    bare: Sequence[float]
    """The same rounds without us; empty where there is nothing to compare with."""
    unit: str
    target: Target | None = None
    """None: for information only."""
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        return [ours / bare for ours, bare in zip(self.ours, self.bare, strict=True)] if self.bare else []

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def best(self) -> float | None:
        choose = min if self.target and self.target.at_most else max
        return choose(self.ratios) if self.ratios else None

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        judged = statistics.median(self.ours) if self.target.unit else self.ratio
        return judged is not None and self.target.met_by(judged)


Measure = Callable[[], Awaitable[float]]


async def side_by_side(rounds: int, ours: Measure, bare: Measure) -> tuple[list[float], list[float]]:
    """Ours, bare, ours, bare …: whatever slows the machine for a while slows both."""
    pairs = [(await _undisturbed(ours), await _undisturbed(bare)) for _ in range(rounds)]
    return [ours for ours, _ in pairs], [bare for _, bare in pairs]


async def _undisturbed(measure: Measure) -> float:
    """As in `postroad run`: what is loaded by now is nothing for the garbage collector, whoever has loaded it."""
    gc.collect()
    gc.freeze()
    return await measure()


@event("bench.order.placed", topic="bench.order.events", aggregate="order", key="order_id")
class OrderPlaced(msgspec.Struct, frozen=True):
    order_id: str
    customer: str
    cents: int


def service(name: str) -> str:
    """A server's address, from the environment or from scripts/services."""
    variable = f"POSTROAD_TEST_{name.upper()}_URL"
    script = f'eval "$(scripts/services env {name})"; echo "${variable}"'
    asked = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    if url := os.environ.get(variable) or asked.stdout.strip():
        return url
    raise SystemExit(f"{name} is not running. Start it: scripts/services up {name}")


@asynccontextmanager
async def fresh_road(
    server: str, *tables: str, broker_url: str = "embedded:", subscriber: SubscriberOptions | None = None
) -> AsyncIterator[Postroad]:
    """A service on a migrated database of its own, with these business tables."""
    with fresh_postgresql(server) as url:
        async with Postroad("bench", url, broker_url, subscriber=subscriber) as road:
            await road.migrate()
            async with road.store.transaction() as connection:
                for table in tables:
                    await connection.exec_driver_sql(table)
            yield road
