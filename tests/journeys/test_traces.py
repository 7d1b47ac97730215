"""One trace from the caller through outbox, relay and broker to the handler, and on to what the handler writes."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Backoff, Message, Postroad, RelayOptions, SubscriberOptions, event, logs
from postroad.context import current_message
from postroad.telemetry import tracing
from tests.support.components import ROOT
from tests.support.consuming import placed
from tests.support.telemetry import LABELS, TOPIC, Spans, Weighed, traced, weigh


@event("parcel.labelled", topic=LABELS, aggregate="label", key="parcel")
class Labelled(msgspec.Struct, frozen=True):
    parcel: str


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with traced(monkeypatch) as spans:
        yield spans


def made(database_url: str, broker: str) -> tuple[Postroad, list[Message]]:
    options = SubscriberOptions(backoff=Backoff(attempts=2, base=0.01))
    road = Postroad("post", database_url, broker, subscriber=options, relay=RelayOptions(poll=0.02))
    seen: list[Message] = []

    @road.on(Weighed, group="scales")
    async def label(event: Weighed, message: Message, session: AsyncSession) -> None:
        seen.append(message)
        if event.grams == 1:
            raise RuntimeError("too light")
        road.add(session, Labelled(event.parcel))

    @road.on(Labelled, group="labels")
    async def stick(event: Labelled) -> None:
        return None

    return road, seen


def parent(span: ReadableSpan) -> str:
    return format_span_id(span.parent.span_id) if span.parent else ""


def own(span: ReadableSpan) -> str:
    return format_span_id(span.get_span_context().span_id)


async def goes_through(road: Postroad, seen: list[Message], spans: Spans) -> None:
    async with road:
        await road.migrate()
        async with road.running():
            with trace.get_tracer("shop").start_as_current_span("request") as request:
                await weigh(road, Weighed("7", 2))
            await road.drain()
    written, published = spans.one("write parcel.weighed"), spans.one("publish parcel.weighed")
    handled, followed = spans.one("handle parcel.weighed"), spans.one("write parcel.labelled")
    assert parent(written) == format_span_id(request.get_span_context().span_id)
    assert parent(published) == parent(handled) == own(written)
    assert parent(followed) == own(handled)
    one_trace = {span.get_span_context().trace_id for span in (written, published, handled, followed)}
    assert one_trace == {request.get_span_context().trace_id}
    received = spans.one(f"receive {TOPIC}.scales")
    assert [format_span_id(link.context.span_id) for link in received.links] == [own(written)]
    assert (written.kind, published.kind, handled.kind) == (SpanKind.PRODUCER, SpanKind.PRODUCER, SpanKind.CONSUMER)
    # What travelled: the conventions' attributes, and W3C's own.
    (message,) = seen
    assert message.trace_id == format_trace_id(request.get_span_context().trace_id)
    assert message.span_id == own(written)
    assert message.attributes()["traceparent"].startswith(f"00-{message.trace_id}-{message.span_id}-")
    assert handled.attributes is not None
    assert handled.attributes["messaging.message.id"] == str(message.id)
    assert handled.attributes["messaging.consumer.group.name"] == "scales"


@pytest.mark.spec("P5")
async def test_one_trace_through_every_store(database_url: str, tmp_path: Path, spans: Spans) -> None:
    await goes_through(*made(database_url, f"embedded:{tmp_path}/broker.db"), spans)


@pytest.mark.spec("P5")
async def test_one_trace_through_every_broker(sqlite_url: str, observed_broker_url: str, spans: Spans) -> None:
    await goes_through(*made(sqlite_url, observed_broker_url), spans)


async def test_a_handler_that_fails_fails_its_span(sqlite_url: str, tmp_path: Path, spans: Spans) -> None:
    road, _ = made(sqlite_url, f"embedded:{tmp_path}/broker.db")
    async with road:
        await road.migrate()
        async with road.running():
            await weigh(road, Weighed("7", 1))
            await road.drain()
    attempts = spans.named("handle parcel.weighed")
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR] * 2
    assert "too light" in str(attempts[0].events[0].attributes)


async def test_a_batch_has_one_span_linked_to_all(sqlite_url: str, tmp_path: Path, spans: Spans) -> None:
    async with Postroad("post", sqlite_url, f"embedded:{tmp_path}/broker.db") as road:

        @road.on(Weighed, group="scales", batch=10)
        async def label(events: list[Weighed]) -> None:
            return None

        await road.migrate()
        await weigh(road, *(Weighed(str(n)) for n in range(3)))
        async with road.running():
            await road.drain()
    wrote = {own(span) for span in spans.named("write parcel.weighed")}
    linked = {format_span_id(link.context.span_id) for s in spans.named("handle parcel.weighed") for link in s.links}
    alone = {parent(span) for span in spans.named("handle parcel.weighed")} - {""}
    assert linked | alone == wrote
    assert len(wrote) == 3


def test_what_the_broker_refused_shows_in_its_span(spans: Spans) -> None:
    traces = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    publishing = tracing.Publishing([placed(headers=traces), placed(headers=traces), placed()])
    publishing.end(["", "too large", ""])
    assert [span.status.status_code for span in spans.named("publish order.placed")] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]


def test_a_message_that_tells_only_ids_is_linked_by_them(spans: Spans) -> None:
    message = placed(trace_id="4bf92f3577b34da6a3ce929d0e0e4736", span_id="00f067aa0ba902b7")
    with tracing.handling("receipts", (message,)):
        pass
    assert parent(spans.one("handle order.placed")) == "00f067aa0ba902b7"


@pytest.mark.parametrize("nonsense", ["", "00-", "x" * 300, "00-zz-yy-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_nonsense_from_outside_begins_a_trace_of_its_own(nonsense: str, spans: Spans) -> None:
    with tracing.handling("receipts", (placed(headers={"traceparent": nonsense}),)):
        pass
    assert spans.one("handle order.placed").parent is None


def test_whatever_else_is_open_has_nothing_to_do_with_the_event(spans: Spans) -> None:
    with trace.get_tracer("shop").start_as_current_span("poll"), tracing.handling("receipts", (placed(),)):
        pass
    assert spans.one("handle order.placed").parent is None


# -- without tracing -----------------------------------------------------------------------------------------


def test_a_service_that_does_not_trace_passes_the_context_on() -> None:
    cause = placed(headers={"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "other": "x"})
    carried = tracing.writing("order.shipped", TOPIC, cause)
    assert carried == {"traceparent": cause.headers["traceparent"]}
    assert tracing.ids_of(carried) == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    assert tracing.writing("order.shipped", TOPIC, None) == {}
    assert tracing.ids_of({}) == (None, None)


def test_without_tracing_and_metrics_their_libraries_are_not_even_loaded(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.split("```python\n")[1].split("```")[0]
    told = "import sys; print({'opentelemetry', 'prometheus_client'} & sys.modules.keys() or 'none')"
    (tmp_path / "block.py").write_text(f"{block}\n{told}\n", encoding="utf-8")
    ran = subprocess.run([sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "none"


# -- logs ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("P17")
def test_what_a_handler_logs_carries_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "shop-42")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    message = placed(trace_id="4bf92f3577b34da6a3ce929d0e0e4736", span_id="00f067aa0ba902b7")
    record = logging.LogRecord("shop", logging.WARNING, __file__, 1, "stock is low", (), None)
    token = current_message.set(message)
    try:
        handler.emit(record)
    finally:
        current_message.reset(token)
    entry = json.loads(stream.getvalue())
    assert entry["event_id"] == str(message.id)
    assert entry["ordering_key"] == "order/1"
    assert entry["severity"] == entry["level"] == "WARNING"
    assert entry["logging.googleapis.com/trace"] == f"projects/shop-42/traces/{message.trace_id}"
    assert entry["logging.googleapis.com/spanId"] == message.span_id


@pytest.mark.spec("P17", "R12")
async def test_every_record_about_an_event_says_which(
    sqlite_url: str, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    road, _ = made(sqlite_url, rabbitmq_url)
    caplog.set_level(logging.DEBUG, "postroad")
    async with road:
        await road.migrate()
        async with road.running():
            await weigh(road, Weighed("7", 1), Weighed("8", 2))
            await road.drain()
    failed = [record for record in caplog.records if getattr(record, "outcome", "") == "failed"]
    handled = [
        record
        for record in caplog.records
        if record.getMessage() == "Event processed successfully" and record.group == "scales"  # type: ignore[attr-defined]
    ]
    assert len(failed) == 2
    assert len(handled) == 1
    for record in (*failed, *handled):
        told = {name: getattr(record, name, None) for name in logs.FIELDS}
        assert told["event_type"] == "parcel.weighed"
        assert told["aggregate_type"] == "parcel"
        assert told["aggregate_id"] in ("7", "8")
        assert told["version"] == 1
        assert told["event_id"] == told["message_id"]
        assert told["ordering_key"] == f"parcel/{told['aggregate_id']}"
        assert told["queue"] == told["subscription"] == f"{TOPIC}.scales"
        assert told["consumer"] == told["group"] == "scales"
    assert [record.attempt for record in failed] == [1, 2]  # type: ignore[attr-defined]
