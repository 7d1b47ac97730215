"""What the page shows: all sessions, and one of them with its drafts and its causation tree."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from examples.genesis import shelf, story
from examples.genesis.refusals import SessionNotFound
from examples.genesis.studio import Studio

_LOOK_EVERY: Final = 0.3
_HEARTBEAT_LOOKS: Final = 30


async def changes(studio: Studio, session_id: str | None) -> AsyncIterator[str]:
    """A picture whenever it differs from the one before. A closed page ends it: the server cancels us."""
    before, idle = "", 0
    while True:
        now = json.dumps(await picture(studio, session_id), ensure_ascii=False)
        idle += 1
        if now != before:
            before, idle = now, 0
            yield f"data: {now}\n\n"
        elif idle >= _HEARTBEAT_LOOKS:
            # Without a word now and then, a proxy would take the line for dead.
            idle = 0
            yield ": still here\n\n"
        await asyncio.sleep(_LOOK_EVERY)


async def picture(studio: Studio, session_id: str | None) -> dict[str, Any]:
    road = studio.road
    return {
        "sessions": [dict(row) for row in await shelf.latest(road)],
        "session": await _session(studio, session_id) if session_id else None,
        "database": road.store.address,
        "broker": road.broker.address,
    }


async def _session(studio: Studio, id: str) -> dict[str, Any] | None:
    try:
        session, history, trace = await studio.session(id), await studio.history(id), await studio.trace(id)
    except SessionNotFound:
        return None
    rejected = [_draft(one.event, history) for one in history if isinstance(one.event, story.Rejected)]
    steps = [
        {"id": s.id, "kind": s.kind, "type": s.type, "state": s.state, "cause": s.causation_id, "at": s.at.isoformat()}
        for s in trace
    ]
    return {"id": id, **msgspec.to_builtins(session), "rejected": rejected, "steps": steps}


def _draft(rejected: story.Rejected, history: Any) -> dict[str, Any]:
    about = (rejected.stage, rejected.round)
    proposals = (one.event for one in history if isinstance(one.event, story.Proposed))
    draft = next(event.draft for event in proposals if (event.stage, event.round) == about)
    return {"stage": rejected.stage, "round": rejected.round, "title": draft.title, "wish": rejected.wish}
