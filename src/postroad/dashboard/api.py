"""The same questions and acts as JSON, and the document that describes them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from postroad import operations
from postroad.dashboard import desk as reading
from postroad.dashboard.access import same_origin
from postroad.dashboard.acts import do
from postroad.dashboard.desk import Desk
from postroad.dashboard.jobs import Job
from postroad.dashboard.watch import Sample
from postroad.errors import OperationRefused
from postroad.redact import redact_values

Ask = Callable[[Desk, Request], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Question:
    path: str
    summary: str
    answer: Any
    ask: Ask
    query: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workers:
    workers: Sequence[operations.WorkerStatus]
    leases: Sequence[operations.Lease]


@dataclass(frozen=True, slots=True)
class DryRun:
    count: int


async def _status(desk: Desk, request: Request) -> operations.Status:
    found = await desk.watch.status()
    return replace(found, dead_letters=[reading.masked_dead(desk, one) for one in found.dead_letters])


async def _samples(desk: Desk, request: Request) -> Sequence[Sample]:
    await desk.watch.status()
    return list(desk.watch.samples)


async def _outbox(desk: Desk, request: Request) -> reading.EventPage:
    return await reading.events(desk, request.query_params, request.state.user)


async def _count(desk: Desk, request: Request) -> DryRun:
    return DryRun(await reading.retryable_count(desk, request.query_params, request.state.user))


async def _event(desk: Desk, request: Request) -> reading.EventView:
    return await reading.event(desk, request.path_params["id"])


async def _dead(desk: Desk, request: Request) -> Sequence[operations.DeadEvent]:
    return (await reading.dead_letters(desk, request.query_params)).letters


async def _count_dead(desk: Desk, request: Request) -> DryRun:
    return DryRun(len(await reading.own_dead(desk, request.query_params)))


async def _failures(desk: Desk, request: Request) -> Sequence[operations.Cause]:
    return await reading.causes(desk)


async def _records(desk: Desk, request: Request) -> Sequence[operations.InboxRecord]:
    return await reading.records(desk, request.path_params["group"], request.query_params)


async def _count_failed(desk: Desk, request: Request) -> DryRun:
    cause = request.query_params.get("cause", "")
    return DryRun(len(await operations.failed_records(desk.road.store, request.path_params["group"], cause)))


async def _record(desk: Desk, request: Request) -> reading.RecordView:
    return await reading.record(desk, request.path_params["group"], request.path_params["id"])


async def _workers(desk: Desk, request: Request) -> Workers:
    return Workers((await desk.watch.status()).workers, await operations.leases(desk.road.store))


async def _chain(desk: Desk, request: Request) -> operations.Trace:
    return await reading.chain(desk, request.path_params["id"])


async def _projections(desk: Desk, request: Request) -> Sequence[operations.ProjectionStatus]:
    return await operations.projections(desk.road)


async def _commands(desk: Desk, request: Request) -> Sequence[operations.CommandView]:
    return await reading.commands(desk, request.query_params)


async def _count_commands(desk: Desk, request: Request) -> DryRun:
    return DryRun(len(await operations.failed_commands(desk.road.store, request.query_params.get("type", ""))))


async def _command(desk: Desk, request: Request) -> operations.CommandDetail:
    return await reading.command(desk, request.path_params["id"])


async def _consistent(desk: Desk, request: Request) -> reading.Consistency:
    return await reading.consistent(desk)


async def _examined(desk: Desk, request: Request) -> reading.Examined | None:
    return await reading.examined(desk)


async def _history(desk: Desk, request: Request) -> Sequence[operations.OutboxEvent]:
    return await reading.history(desk, request.path_params["type"], request.path_params["id"], request.query_params)


async def _scheduled(desk: Desk, request: Request) -> Sequence[operations.OutboxEvent]:
    return await reading.scheduled(desk, request.query_params)


async def _audit(desk: Desk, request: Request) -> Sequence[operations.Act]:
    return await reading.audit(desk, request.query_params)


async def _layout(desk: Desk, request: Request) -> operations.Layout:
    return await operations.layout(desk.road)


async def _job(desk: Desk, request: Request) -> Job:
    return desk.jobs.find(request.path_params["id"])


_FILTER: Final = ("state", "type", "key", "text", "since", "until")
QUESTIONS: Final = (
    Question("/api/status", "How it stands", operations.Status, _status),
    Question("/api/samples", "The last half hour, sampled", list[Sample], _samples),
    Question("/api/outbox", "Events, newest first", reading.EventPage, _outbox, (*_FILTER, "after")),
    Question("/api/outbox/count", "How many a retry of all that match would touch", DryRun, _count, _FILTER),
    Question("/api/outbox/{id}", "One event, and what each group did with it", reading.EventView, _event),
    Question(
        "/api/dead-letters",
        "Dead letters, by topic, 50 at a time; after: topic~id of the last one",
        list[operations.DeadEvent],
        _dead,
        ("topic", "group", "cause", "after"),
    ),
    Question(
        "/api/dead-letters/count",
        "How many a retry of all that match would give back",
        DryRun,
        _count_dead,
        ("topic", "group", "cause"),
    ),
    Question("/api/failures", "Failures, alike with alike", list[operations.Cause], _failures),
    Question(
        "/api/groups/{group}",
        "What a group handled",
        list[operations.InboxRecord],
        _records,
        ("failed", "cause", "after"),
    ),
    Question(
        "/api/groups/{group}/count",
        "How many a retry of all of them would touch",
        DryRun,
        _count_failed,
        ("cause",),
    ),
    Question("/api/groups/{group}/{id}", "What a group knows of an event", reading.RecordView, _record),
    Question("/api/workers", "Who is at work, and who holds which shards", Workers, _workers),
    Question("/api/chains/{id}", "What came of what, by a correlation id or any id of it", operations.Trace, _chain),
    Question(
        "/api/projections", "Read models, and how far a rebuild is", list[operations.ProjectionStatus], _projections
    ),
    Question(
        "/api/commands", "Commands, newest first", list[operations.CommandView], _commands, ("status", "type", "after")
    ),
    Question("/api/commands/count", "How many a retry of all of them would touch", DryRun, _count_commands, ("type",)),
    Question("/api/commands/{id}", "One command", operations.CommandDetail, _command),
    Question("/api/consistency", "What the last check has found", reading.Consistency, _consistent),
    Question("/api/doctor", "What the last examination has found", reading.Examined | None, _examined),
    Question(
        "/api/aggregates/{type}/{id:path}", "An aggregate's events", list[operations.OutboxEvent], _history, ("before",)
    ),
    Question("/api/scheduled", "Delayed events still to come", list[operations.OutboxEvent], _scheduled, ("after",)),
    Question("/api/audit", "What people did", list[operations.Act], _audit, ("subject", "before")),
    Question("/api/topology", "Service, topics, groups and handlers", operations.Layout, _layout),
    Question("/api/jobs/{id}", "How far a job has come", Job, _job),
)


def told(value: Any, status: int = 200) -> Response:
    """Without secrets, wherever in it somebody has written one."""
    return as_json(redact_values(msgspec.to_builtins(value, str_keys=True, enc_hook=str)), status)


def as_json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def act(desk: Desk, request: Request) -> Response:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json" or not same_origin(request):
        # A foreign page cannot make a browser send this type without asking first, and is never allowed to.
        return as_json({"error": "Send application/json, from a program or from this dashboard's own pages."}, 403)
    try:
        given = msgspec.json.decode(await request.body(), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OperationRefused(f"The body cannot be read: {error}. Send a JSON object.") from None
    return told(await do(desk, request.state.user, request.path_params["name"], given))
