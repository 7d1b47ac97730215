"""The screens: each asks its questions and fills its template."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from postroad import operations
from postroad.consistency import MOST_KEPT
from postroad.dashboard import desk as reading
from postroad.dashboard.desk import Desk
from postroad.dashboard.drawing import MOST_DRAWN, topology, tree
from postroad.dashboard.view import render
from postroad.message import parse_id


async def overview(desk: Desk, request: Request) -> Response:
    every = round(desk.watch.interval * 1000)
    return render(request, "overview.html", {**await _now(desk), "every": every})


async def tiles(desk: Desk, request: Request) -> Response:
    """What the overview fetches again and again."""
    return render(request, "_live.html", await _now(desk))


async def _now(desk: Desk) -> dict[str, Any]:
    status = await desk.watch.status()
    return {"status": status, "latest": desk.watch.samples[-1], "trouble": desk.watch.trouble}


async def outbox(desk: Desk, request: Request) -> Response:
    query = request.query_params
    if id := _whole_id(query.get("text", "")):
        return render(request, "", go=f"/outbox/{id}")
    page = await reading.events(desk, query, request.state.user)
    asked = {name: query.get(name, "") for name in ("state", "type", "key", "text", "since", "until")}
    return render(request, "outbox.html", {"page": page, "asked": asked, "states": operations.STATES})


def _whole_id(text: str) -> str:
    """Whoever pastes an id wants the event, not a list."""
    try:
        return str(parse_id(text.strip()))
    except ValueError:
        return ""


async def event(desk: Desk, request: Request) -> Response:
    id = request.path_params["id"]
    if group := await reading.recorded(desk, id):
        return render(request, "", go=f"/groups/{quote(group, safe='')}/{quote(id, safe='')}")
    return render(request, "event.html", {"view": await reading.event(desk, id)})


async def edit(desk: Desk, request: Request) -> Response:
    return render(request, "edit.html", {"view": await reading.event(desk, request.path_params["id"])})


async def retry_events(desk: Desk, request: Request) -> Response:
    """The dry run: how many, before anything is done. So are the three below."""
    query = request.query_params
    asked = {name: query.get(name, "") for name in ("state", "type", "key", "text", "since", "until")}
    asked["state"] = asked["state"] or "FAILED"
    count = await reading.retryable_count(desk, asked, request.state.user)
    return _dry_run(request, "outbox.retry_matching", ("/outbox", "Outbox"), "event", count, asked)


async def retry_dead(desk: Desk, request: Request) -> Response:
    asked = _asked(request, "topic", "group", "cause")
    count = len(await reading.own_dead(desk, asked))
    return _dry_run(request, "dlq.retry_matching", ("/dead", "Dead letters"), "dead letter", count, asked)


async def retry_group(desk: Desk, request: Request) -> Response:
    group = request.path_params["group"]
    asked = {"group": group, **_asked(request, "cause")}
    count = len(await operations.failed_records(desk.road.store, group, asked["cause"]))
    path = f"/groups/{quote(group, safe='')}"
    return _dry_run(request, "inbox.retry_matching", (path, group), "event", count, asked)


async def retry_commands(desk: Desk, request: Request) -> Response:
    asked = _asked(request, "type")
    count = len(await operations.failed_commands(desk.road.store, asked["type"]))
    return _dry_run(request, "command.retry_matching", ("/commands", "Commands"), "command", count, asked)


def _asked(request: Request, *names: str) -> dict[str, str]:
    return {name: request.query_params.get(name, "") for name in names}


def _dry_run(
    request: Request, act: str, back: tuple[str, str], noun: str, count: int, asked: Mapping[str, str]
) -> Response:
    return render(request, "retry.html", {"act": act, "back": back, "noun": noun, "count": count, "asked": asked})


async def failures(desk: Desk, request: Request) -> Response:
    return render(request, "failures.html", {"causes": await reading.causes(desk)})


async def dead(desk: Desk, request: Request) -> Response:
    page, asked = await reading.dead_letters(desk, request.query_params), _asked(request, "topic", "group", "cause")
    topics = await operations.topics_of(desk.road.broker)
    return render(request, "dead.html", {"page": page, "asked": asked, "topics": topics})


async def dead_letter(desk: Desk, request: Request) -> Response:
    path = request.path_params
    found = await operations.find_dead(desk.road.broker, [path["topic"]], [path["id"]])
    (letter, *_) = await operations.with_attempts(desk.road.store, found)
    recorded = [one.group for one in await operations.records_of(desk.road.store, reading.event_id(letter.event_id))]
    shown = {"letter": reading.masked_dead(desk, letter), "recorded": letter.group in recorded}
    return render(request, "dead_letter.html", shown)


async def groups(desk: Desk, request: Request) -> Response:
    registry = desk.road.registry
    handlers = {group: registry.handlers(group) for group in desk.road.groups}
    return render(request, "groups.html", {"status": await desk.watch.status(), "handlers": handlers})


async def group(desk: Desk, request: Request) -> Response:
    name, query = request.path_params["group"], request.query_params
    records = await reading.records(desk, name, query)
    shown: Mapping[str, Any] = {
        "group": name,
        "records": records,
        "failed": query.get("failed") == "1",
        "cause": query.get("cause", ""),
        "next": str(records[-1].event_id) if len(records) == reading.PAGE else "",
        "standing": next((one for one in (await desk.watch.status()).groups if one.group == name), None),
    }
    return render(request, "group.html", shown)


async def record(desk: Desk, request: Request) -> Response:
    path = request.path_params
    view = await reading.record(desk, path["group"], path["id"])
    return render(request, "record.html", {"view": view, "group": path["group"]})


async def workers(desk: Desk, request: Request) -> Response:
    found = {"status": await desk.watch.status(fresh=True), "leases": await operations.leases(desk.road.store)}
    return render(request, "workers.html", found)


async def chain(desk: Desk, request: Request) -> Response:
    id = request.path_params.get("id", "") or request.query_params.get("id", "").strip()
    found = await reading.chain(desk, id) if id else operations.Trace("", [])
    return render(request, "chain.html", {"id": id, "trace": found, "tree": tree(found.steps), "most": MOST_DRAWN})


async def projections(desk: Desk, request: Request) -> Response:
    return render(request, "projections.html", {"projections": await operations.projections(desk.road)})


async def commands(desk: Desk, request: Request) -> Response:
    query = request.query_params
    found = await reading.commands(desk, query)
    shown: Mapping[str, Any] = {
        "commands": found,
        "asked": {name: query.get(name, "") for name in ("status", "type")},
        "states": operations.COMMAND_STATES,
        "next": str(found[-1].id) if len(found) == reading.PAGE else "",
    }
    return render(request, "commands.html", shown)


async def command(desk: Desk, request: Request) -> Response:
    return render(request, "command.html", {"view": await reading.command(desk, request.path_params["id"])})


async def consistency(desk: Desk, request: Request) -> Response:
    return render(request, "consistency.html", {"found": await reading.consistent(desk), "most": MOST_KEPT})


async def doctor(desk: Desk, request: Request) -> Response:
    return render(request, "doctor.html", {"examined": await reading.examined(desk)})


async def aggregate(desk: Desk, request: Request) -> Response:
    path = request.path_params
    found = await reading.history(desk, path["type"], path["id"], request.query_params)
    more = found[-1].version if len(found) == reading.PAGE else None
    return render(request, "aggregate.html", {"type": path["type"], "id": path["id"], "events": found, "next": more})


async def scheduled(desk: Desk, request: Request) -> Response:
    found = await reading.scheduled(desk, request.query_params)
    last = found[-1] if len(found) == reading.PAGE else None
    more = reading.cursor(last.deliver_at, last.id) if last and last.deliver_at else ""
    return render(request, "scheduled.html", {"events": found, "next": more})


async def topology_page(desk: Desk, request: Request) -> Response:
    status = await desk.watch.status()
    backlog = {one.group: one.backlog for one in status.groups}
    picture = topology(await operations.layout(desk.road), backlog)
    return render(request, "topology.html", {"map": picture, "status": status})


async def audit(desk: Desk, request: Request) -> Response:
    found = await reading.audit(desk, request.query_params)
    more = found[-1].id if len(found) == reading.PAGE else None
    subject = request.query_params.get("subject", "").strip()
    return render(request, "audit.html", {"acts": found, "subject": subject, "next": more})


async def job(desk: Desk, request: Request) -> Response:
    found = desk.jobs.find(request.path_params["id"])
    return render(request, "_job.html" if "hx-request" in request.headers else "job.html", {"job": found})
