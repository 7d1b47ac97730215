"""What people tell to stand still: a consumer group, an outbox, a worker. Their processes look every second."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.errors import OperationRefused
from postroad.gates import GROUP, OUTBOX, WORKER
from postroad.operations import audit
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

_ALIVE: Final = 15.0


@dataclass(frozen=True, slots=True)
class Pause:
    kind: str
    """group, outbox or worker"""
    name: str
    actor: str
    reason: str
    since: datetime

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return f"by {self.actor} since {self.since:%Y-%m-%d %H:%M:%S} UTC{why}"


async def pauses(store: Store) -> Sequence[Pause]:
    return [
        Pause(row.kind, row.name, row.actor, row.reason, store.time_out(row.since))  # type: ignore[arg-type]
        for row in (await store.read("pauses")).rows
    ]


async def paused(store: Store, kind: str) -> dict[str, Pause]:
    """By name."""
    return {one.name: one for one in await pauses(store) if one.kind == kind}


async def pause_group(store: Store, groups: Sequence[str], group: str, *, actor: str, reason: str = "") -> None:
    """Its workers finish what is in hand and take no more, wherever they run, until it is resumed.

    `groups` are those that the application knows; those that have handled something are known to the database.
    """
    known = sorted({*groups, *(row.consumer_group for row in (await store.read("groups_known")).rows)})
    await _pause(store, GROUP, group, known, actor, reason)


async def resume_group(store: Store, group: str, *, actor: str, reason: str = "") -> None:
    await _resume(store, GROUP, group, actor, reason)


async def pause_outbox(
    store: Store, outboxes: Sequence[OutboxTable], outbox: str, *, actor: str, reason: str = ""
) -> None:
    """Its relays finish what is on its way, give back their shards and send no more, until it is resumed."""
    await _pause(store, OUTBOX, outbox, [one.name for one in outboxes], actor, reason)


async def resume_outbox(store: Store, outbox: str, *, actor: str, reason: str = "") -> None:
    await _resume(store, OUTBOX, outbox, actor, reason)


async def drain_worker(store: Store, worker: str, *, actor: str, reason: str = "") -> Sequence[str]:
    """The process finishes what is in hand, gives back its leases and takes no more until it is started anew.

    `worker` is an id, or the name of a process as `status` tells it; what is returned, the ids that it had.
    """
    alive = {str(store.id_out(row.id)): row.name for row in (await store.read("workers_alive", ttl=_ALIVE)).rows}
    chosen = [id for id, name in alive.items() if worker in (id, name) or name.startswith(f"{worker}:")]
    if not chosen:
        names = ", ".join(sorted(set(alive.values()))) or "nobody"
        raise OperationRefused(f"No worker {worker!r} is alive. At work: {names}.")
    known = await paused(store, WORKER)
    async with store.transaction() as connection:
        for gone in known.keys() - alive.keys():
            await store.execute(connection, "pause_end", kind=WORKER, name=gone)
        for id in chosen:
            if id not in known:
                await _add(store, connection, WORKER, id, actor, reason)
        await audit.record(store, connection, actor=actor, action="worker.drain", subject=worker, detail=reason)
    return chosen


async def _pause(store: Store, kind: str, name: str, known: Sequence[str], actor: str, reason: str) -> None:
    if name not in known:
        raise OperationRefused(f"There is no {kind} {name!r}. Known: {', '.join(known) or 'none'}.")
    async with store.transaction() as connection:
        await _add(store, connection, kind, name, actor, reason)
        await audit.record(store, connection, actor=actor, action=f"{kind}.pause", subject=name, detail=reason)


async def _resume(store: Store, kind: str, name: str, actor: str, reason: str) -> None:
    async with store.transaction() as connection:
        if not (await store.execute(connection, "pause_end", kind=kind, name=name)).rowcount:
            raise OperationRefused(f"The {kind} {name!r} is not paused. `postroad status` tells what is.")
        await audit.record(store, connection, actor=actor, action=f"{kind}.resume", subject=name, detail=reason)


async def _add(store: Store, connection: AsyncConnection, kind: str, name: str, actor: str, reason: str) -> None:
    values: dict[str, Any] = {
        "kind": kind,
        "name": name,
        "actor": actor[:255],
        "reason": reason,
        "now": store.clock.now(),
    }
    try:
        added = (await store.execute(connection, "pause_add", **values)).rowcount
    except IntegrityError as error:
        if store.code_of(error) not in store.duplicate_codes:
            raise
        added = 0
    if not added:
        raise OperationRefused(f"The {kind} {name!r} is paused already. `postroad status` tells by whom.")
