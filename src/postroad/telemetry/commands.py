"""How the command box stands: what waits, runs and has failed, and how the last ones went."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from postroad.telemetry.meter import Meter

if TYPE_CHECKING:
    from postroad.app import Postroad

_RECENT: Final = 500


async def read_commands(road: "Postroad", gauges: Meter, most: int) -> None:
    if not road.commands.handled:
        return
    counts = {row.status: int(row.commands) for row in (await road.store.read("command_counts", most=most)).rows}
    for status in ("PENDING", "PROCESSING", "FAILED"):
        gauges.set(f"{status.lower()}_commands", counts.get(status, 0))
    recent = (await road.store.read("commands_recent", most=_RECENT)).rows
    for command_type, commands in Counter(row.command_type for row in recent).items():
        gauges.set("commands_by_type", commands, command_type)
    seconds = [
        (finished - started).total_seconds()
        for row in recent
        if (started := road.store.time_out(row.started_at)) and (finished := road.store.time_out(row.finished_at))
    ]
    gauges.set("avg_processing_time", 1000 * sum(seconds) / len(seconds) if seconds else 0.0)
    # A failure counts whether or not it is tried again: where all fail for good, nothing would be repeated.
    failed = sum(row.retry_count > 0 or row.status == "FAILED" for row in recent)
    gauges.set("retry_rate", failed / len(recent) if recent else 0.0)
