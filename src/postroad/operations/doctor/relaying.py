"""Whether what is written is carried: relays, their shards and leases, and what stands still."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from postroad.gates import OUTBOX
from postroad.message import SHARDS
from postroad.operations.doctor.finding import Level, Problem
from postroad.operations.pauses import paused
from postroad.operations.status import parked_keys, workers
from postroad.stores.tables import OutboxTable

if TYPE_CHECKING:
    from postroad.app import Postroad

LATE: Final = 300.0
"""Seconds after which waiting is no longer normal."""
SECOND_LOOK: Final = 2.0
"""A relay that takes or gives back shards leaves them without an owner for a moment, but not for so long."""
_EXAMPLES: Final = 3


async def relays(road: "Postroad") -> AsyncIterator[Problem]:
    """Somebody carries, and nothing waits for long."""
    still = await paused(road.store, OUTBOX)
    for outbox in road.outboxes:
        waiting = await _waits(road, outbox, 0.0)
        if outbox.name in still:
            cause = f"{outbox.name} is paused {still[outbox.name]}: nothing in it is sent."
            command = f"postroad resume --outbox {outbox.name}"
            yield Problem(Level.WARNING, cause, "Resume it once its cause is mended.", command)
        elif not await _relays_alive(road, outbox):
            if waiting:
                cause = f"Events wait in {outbox.name}, and no relay is alive."
                yield Problem(Level.FAULT, cause, "Start one.", "postroad relay")
            else:
                cause = f"No relay of {outbox.name} is alive; nothing waits yet."
                yield Problem(Level.HINT, cause, "Start one before events are written.", "postroad relay")
        elif waiting and await _waits(road, outbox, LATE):
            yield Problem(
                Level.WARNING,
                f"Events in {outbox.name} have waited for more than {LATE / 60:.0f} min, although a relay is alive.",
                "Look at its log, and at what the broker refuses.",
                "postroad outbox list --state retry",
            )


async def shards(road: "Postroad") -> AsyncIterator[Problem]:
    """Each shard is there and, while relays are alive, has an owner."""
    for outbox in road.outboxes:
        if missing := sorted({*range(SHARDS)} - {row.shard for row in await _leases(road, outbox)}):
            rows = ", ".join(f"('{outbox.name}', {shard})" for shard in missing)
            yield Problem(
                Level.FAULT,
                f"{len(missing)} of the {SHARDS} shards of {outbox.name} are missing: their events are never sent.",
                "Put their rows back.",
                f"INSERT INTO postroad_shard (outbox, shard) VALUES {rows}",
            )
        elif free := await _free_for_long(road, outbox):
            told = ", ".join(map(str, free[:_EXAMPLES])) + (", …" if len(free) > _EXAMPLES else "")
            yield Problem(
                Level.FAULT,
                f"{len(free)} shards of {outbox.name} ({told}) have no owner, although a relay is alive.",
                "Start the relays again, and look at their logs.",
                "postroad relay",
            )


async def leases(road: "Postroad") -> AsyncIterator[Problem]:
    """Nobody who is gone still holds a lease that keeps the others out."""
    for outbox in road.outboxes:
        alive = {one.id for one in await _relays_alive(road, outbox)}
        held = [row for row in await _leases(road, outbox) if row.held]
        gone = [row for row in held if str(road.store.id_out(row.token)) not in alive]
        for owner in sorted({row.owner for row in gone}):
            count = sum(row.owner == owner for row in gone)
            yield Problem(
                Level.WARNING,
                f"{count} shards of {outbox.name} are leased to {owner}, which has not been heard of for a while.",
                "Others take over when the lease has run out; once you are sure that it is dead, end it now.",
                f"postroad release {quote(owner)}",
            )


async def parked(road: "Postroad") -> AsyncIterator[Problem]:
    for outbox in road.outboxes:
        for key in await parked_keys(road.store, outbox, _EXAMPLES):
            behind = f", with {key.waiting_behind:,} behind it" if key.waiting_behind else ""
            yield Problem(
                Level.FAULT,
                f"{key.key or key.event_id} stands still{behind}: {key.type} {key.event_id} was refused ({key.error}).",
                "Mend the cause and let it be tried again, or skip it.",
                f"postroad outbox retry {key.event_id}",
            )


async def _waits(road: "Postroad", outbox: OutboxTable, seconds: float) -> bool:
    """Whether an event that nobody needs to decide about has been due for so long."""
    by = road.clock.now() - timedelta(seconds=seconds)
    async with road.store.reading() as connection:
        run = road.store.execute
        return bool((await run(connection, "unsent_exists", outbox=outbox, written_by=by, due_by=by)).rows)


async def _free_for_long(road: "Postroad", outbox: OutboxTable) -> list[int]:
    if not await _relays_alive(road, outbox):
        return []
    free = {row.shard for row in await _leases(road, outbox) if not row.held}
    if free:
        await road.clock.sleep(SECOND_LOOK)
        free &= {row.shard for row in await _leases(road, outbox) if not row.held}
    return sorted(free)


async def _leases(road: "Postroad", outbox: OutboxTable) -> Sequence[Any]:
    async with road.store.reading() as connection:
        return (await road.store.execute(connection, "shard_leases", outbox_name=outbox.name)).rows


async def _relays_alive(road: "Postroad", outbox: OutboxTable) -> Sequence[Any]:
    found = await workers(road.store)
    return [one for one in found if one.kind == "relay" and one.detail == outbox.name and not one.gone]
