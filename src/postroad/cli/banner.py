"""What a long-running command shows: what it runs, then one line of counters on a terminal."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from postroad.app import Postroad
from postroad.cli.output import Output
from postroad.message import Message
from postroad.runner import Runner
from postroad.stores.migrations import Migration

_REFRESH: Final = 0.5


def banner(out: Output, road: Postroad, app: str, runner: Runner, applied: Sequence[Migration]) -> None:
    """Only once everything runs: it says "started"."""
    groups = {
        subscriber.group: [
            f"{handler.event_type.name} → {handler.name}" for handler in road.registry.handlers(subscriber.group)
        ]
        for subscriber in runner.subscribers
    }
    outboxes = [outbox.name for outbox in road.outboxes] if runner.relays else []
    if out.as_json:
        out.line(
            {
                "state": "started",
                "app": app,
                "database": road.store.address,
                "broker": road.broker.address,
                "migrations": [str(migration) for migration in applied],
                "relays": outboxes,
                "groups": groups,
            }
        )
        return
    out.say(f"postroad · {app}", "bold")
    facts: dict[str, object] = {
        "database": road.store.address,
        "migrated": ", ".join(map(str, applied)),
        "broker": road.broker.address,
        "relay": ", ".join(outboxes),
    }
    out.facts(facts | {f"group {group}": ", ".join(handlers) for group, handlers in groups.items()})
    out.say("started; Ctrl-C stops it", "green")
    sys.stdout.flush()


def tell_handled(out: Output, runner: Runner) -> None:
    """A line for each event: when, what, whose, by which group, and how long that took."""
    for subscriber in runner.subscribers:
        subscriber.tell(partial(_tell_one, out, subscriber.group))
    if runner.scheduler is not None:
        runner.scheduler.tell = partial(_tell_one, out)


def _tell_one(out: Output, group: str, message: Message, seconds: float) -> None:
    took = f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
    key = f"{message.aggregate_type}/{message.aggregate_id}"
    out.say(f"{datetime.now(UTC).astimezone():%H:%M:%S}  {message.type}  {key}  handled by {group} in {took}", "dim")
    sys.stdout.flush()


async def show_counters(out: Output, runner: Runner, stop: asyncio.Event) -> None:
    """Until `stop` is set."""
    if out.as_json or not (out.on_terminal and sys.stderr.isatty()):
        await stop.wait()
        return
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        while not stop.is_set():
            live.update(Text(counters(runner), style="dim"), refresh=True)
            try:
                async with asyncio.timeout(_REFRESH):
                    await stop.wait()
            except TimeoutError:
                pass


def counters(runner: Runner) -> str:
    relays = [relay.statistics for relay in runner.relays]
    groups = [subscriber.statistics for subscriber in runner.subscribers]
    counts = {
        "sent": sum(one.sent for one in relays),
        "parked": sum(one.parked for one in relays),
        "handled": sum(one.handled for one in groups),
        "failed attempts": sum(one.failed for one in groups),
        "dead": sum(one.dead for one in groups),
    }
    shown = {name: count for name, count in counts.items() if count or name in ("sent", "handled")}
    return " · ".join(f"{name} {count:,}" for name, count in shown.items())
