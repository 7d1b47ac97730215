"""The shards that relays hold, and taking them from one that is gone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from postroad.errors import OperationRefused
from postroad.message import SHARDS
from postroad.operations import audit
from postroad.stores.base import Result, Store

_ALIVE: Final = 15.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The shards of an outbox that one relay holds."""

    outbox: str
    owner: str
    shards: int
    seconds_left: float
    """Until the first of them runs out, unless it is renewed; below zero, it is free for others."""
    gone: bool
    """Whether nobody has heard of the relay for 15 seconds."""


async def leases(store: Store) -> Sequence[Lease]:
    """Who holds which outbox's shards."""
    async with store.reading() as connection:
        alive = _ids(store, await store.execute(connection, "workers_alive", ttl=_ALIVE))
        held = (await store.execute(connection, "leases_held")).rows
        now = await store.server_time(connection)
    return [
        Lease(
            row.outbox, row.owner or "", int(row.shards),
            (store.time_out(row.expires_at) - now).total_seconds(),  # type: ignore[operator]
            store.id_out(row.token) not in alive,
        )
        for row in held
    ]  # fmt: skip


async def release_leases(store: Store, owner: str, *, actor: str, reason: str = "") -> int:
    """Of a relay that is gone, or of all of its process, for others to take at once; how many shards it held.

    One that is alive must give them back itself (`drain_worker`): it would go on sending what it has read.
    """
    released = 0
    async with store.transaction() as connection:
        rows = (await store.execute(connection, "leases_held")).rows
        held = [row for row in rows if f"{row.owner}:".startswith(f"{owner}:")]
        # Asked behind the leases: a relay tells that it is there before it takes any.
        alive = _ids(store, await store.execute(connection, "workers_alive", ttl=_ALIVE))
        for row in held:
            token = store.id_out(row.token)
            if token not in alive:
                values = {"outbox_name": row.outbox, "token": token, "shards": list(range(SHARDS))}
                released += (await store.execute(connection, "lease_release", **values)).rowcount
                # Else the others would leave it its share until its lease is over.
                await store.execute(connection, "worker_gone", id=token)
        if held and not released:
            raise OperationRefused(f"{owner} is alive. Let it give them back: postroad drain {owner}")
        if not released:
            raise OperationRefused(f"{owner!r} holds no shards. `postroad status` tells who is at work.")
        await audit.record(store, connection, actor=actor, action="lease.release", subject=owner, detail=reason)
    return released


def _ids(store: Store, workers: Result) -> set[UUID]:
    return {store.id_out(row.id) for row in workers.rows}
