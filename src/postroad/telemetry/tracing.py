"""Spans along the journey, through OpenTelemetry's API. As long as the application has set up no tracer provider,
nothing is imported and nothing is done.

The context of the span that wrote an event travels with it, as W3C `traceparent` and `tracestate`, and as `trace_id`
and `span_id`; nobody on the way changes it.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from postroad.message import TRACE_CONTEXT, Message

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer

_NOTHING: Final[AbstractContextManager[None]] = nullcontext()
TRACEPARENT: Final = "traceparent"
_PARTS: Final = 4


def tracer() -> "Tracer | None":
    """None unless the application has set up tracing, for which it must have imported the library."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    return _tracer_of(provider)


@lru_cache(maxsize=1)
def _tracer_of(provider: Any) -> "Tracer":
    found: Tracer = provider.get_tracer("postroad")
    return found


def writing(event_type: str, topic: str, cause: Message | None) -> Mapping[str, str]:
    """The context that travels with an event: of a new span, or else of the event that caused it."""
    found = tracer()
    if found is None:
        return _carried(cause) if cause else {}
    from opentelemetry.trace import SpanKind

    with found.start_as_current_span(f"write {event_type}", kind=SpanKind.PRODUCER, attributes=_about("create", topic)):
        carrier: dict[str, str] = {}
        _propagator().inject(carrier)
    return carrier


def ids_of(carrier: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Trace and span of a `traceparent`."""
    parts = carrier.get(TRACEPARENT, "").split("-")
    return (parts[1], parts[2]) if len(parts) >= _PARTS else (None, None)


class Publishing:
    """The publish spans of one batch. What has no context, because nobody traced its writing, has no span."""

    def __init__(self, batch: Sequence[Message]) -> None:
        found = tracer()
        self._spans = [self._begin(found, message) for message in batch] if found else []

    def _begin(self, found: "Tracer", message: Message) -> "Span | None":
        from opentelemetry.trace import SpanKind

        if not _carried(message):
            return None
        return found.start_span(
            f"publish {message.type}",
            context=_context(message),
            kind=SpanKind.PRODUCER,
            attributes=_about("send", message.topic, message),
        )

    def end(self, troubles: Iterable[str]) -> None:
        """With what went wrong for each message; empty where nothing did."""
        for span, trouble in zip(self._spans, troubles, strict=False):  # none of it is asked for without spans
            if span is not None:
                _fail(span, trouble)
                span.end()


def received(subscription: str, messages: Sequence[Message]) -> None:
    found = tracer()
    if found is not None:
        from opentelemetry.trace import SpanKind

        found.start_span(
            f"receive {subscription}",
            kind=SpanKind.CONSUMER,
            attributes=_about("receive", subscription, count=len(messages)),
            links=_links(messages),
        ).end()


def handling(group: str, messages: Sequence[Message]) -> AbstractContextManager[None]:
    """Around a handler. What it does and writes belongs to this span."""
    found = tracer()
    return _NOTHING if found is None else _handle_span(found, group, messages)


@contextmanager
def _handle_span(found: "Tracer", group: str, messages: Sequence[Message]) -> Iterator[None]:
    from opentelemetry.trace import SpanKind

    one = messages[0]
    if len(messages) == 1:
        about: Any = {"context": _context(one), "attributes": _about("process", one.topic, one, group=group)}
    else:
        about = {
            "links": _links(messages),
            "attributes": _about("process", one.topic, group=group, count=len(messages)),
        }
    with found.start_as_current_span(f"handle {one.type}", kind=SpanKind.CONSUMER, **about):
        yield


def _fail(span: "Span", trouble: str) -> None:
    if trouble:
        from opentelemetry.trace import Status, StatusCode

        span.set_status(Status(StatusCode.ERROR, trouble))


def _links(messages: Sequence[Message]) -> "list[Link]":
    from opentelemetry.trace import Link, get_current_span

    contexts = [get_current_span(_context(message)).get_span_context() for message in messages]
    return [Link(context) for context in contexts if context.is_valid]


def _context(message: Message) -> "Context":
    # Without what travelled it is empty: whatever span happens to be open here has nothing to do with the event.
    extracted: Context = _propagator().extract(_carried(message))
    return extracted


def _carried(message: Message) -> Mapping[str, str]:
    if TRACEPARENT not in message.headers and message.trace_id and message.span_id:
        # Written by somebody who tells no more than these.
        return {TRACEPARENT: f"00-{message.trace_id}-{message.span_id}-01"}
    return {name: message.headers[name] for name in TRACE_CONTEXT if name in message.headers}


def _propagator() -> Any:
    # Not the application's own: every service on the way must read it, whatever it is set up with.
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def _about(
    operation: str, destination: str, message: Message | None = None, *, group: str = "", count: int = 0
) -> dict[str, str | int]:
    about: dict[str, str | int] = {
        "messaging.system": "postroad",
        "messaging.operation.type": operation,
        "messaging.destination.name": destination,
    }
    if message is not None:
        about |= {
            "messaging.message.id": str(message.id),
            "postroad.event_type": message.type,
            "postroad.ordering_key": message.ordering_key,
        }
    if group:
        about["messaging.consumer.group.name"] = group
    if count:
        about["messaging.batch.message_count"] = count
    return about
