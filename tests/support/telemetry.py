"""A small post office that tells about itself, and its metrics as Prometheus reads them."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from postroad import Postroad, event
from postroad.telemetry.telemetry import Telemetry

TOPIC, LABELS = (f"observed.{kind}{uuid4().hex[:8]}.events" for kind in ("parcel", "label"))


@event("parcel.weighed", topic=TOPIC, aggregate="parcel", key="parcel")
class Weighed(msgspec.Struct, frozen=True):
    parcel: str
    grams: int = 0


async def weigh(road: Postroad, *events: Weighed) -> None:
    async with road.session() as session, session.begin():
        for one in events:
            road.add(session, one)


async def fresh(telemetry: Telemetry) -> "Scrape":
    """Not what was read a moment ago."""
    telemetry._gauges = None
    return Scrape((await telemetry.metrics()).decode())


class Scrape:
    def __init__(self, page: str) -> None:
        self.page = page
        self._samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float | None:
        """The sum of those that carry these labels; None if there are none."""
        found = [s.value for s in self._samples if s.name == name and labels.items() <= s.labels.items()]
        return sum(found) if found else None

    def names(self) -> set[str]:
        return {sample.name for sample in self._samples}


async def eventually(telemetry: Telemetry, holds: Callable[[Scrape], bool]) -> Scrape:
    """For what gives no signal; a minute is never reached."""
    async with asyncio.timeout(60):
        while True:
            if holds(told := await fresh(telemetry)):
                return told
            await asyncio.sleep(0.01)


async def run_sql(road: Postroad, sql: str) -> None:
    async with road.store.transaction() as connection:
        await connection.execute(text(sql))


async def count_sql(road: Postroad, sql: str) -> int:
    async with road.store.reading() as connection:
        return int((await connection.execute(text(sql))).scalar_one())


@contextmanager
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator["Spans"]:
    """With a tracer provider set up, as an application does it; without one again afterwards."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with monkeypatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        yield Spans(exporter)


class Spans:
    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    @property
    def names(self) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans()]
