"""tail: events as they are written, live."""

import asyncio
import sys
from typing import Final

import click

from postroad import operations
from postroad.cli.output import Output, tell
from postroad.cli.site import Site, on_site

_PAUSE: Final = 0.2


@click.command()
@click.option("--topic", default="", help="Only this topic.")
@click.option("--type", "type_", default="", help="Only this event type.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many events.")
@on_site(argument=True)
async def tail(site: Site, out: Output, topic: str, type_: str, count: int | None) -> None:
    """New events as they are written, one line each, until Ctrl-C.

    It only reads the outbox: no group gets or misses anything by it.

    \b
    Examples:
      postroad tail shop:road --type order.placed
      postroad tail shop:road --json | jq -r .id
    """
    follow = operations.Tail(site.store, site.outboxes)
    shown = 0
    await follow.look()
    click.echo("following the outbox; Ctrl-C ends it", err=True)
    while True:
        for event in await follow.look():
            if (not topic or event.topic == topic) and (not type_ or event.type == type_):
                _show(out, event)
                shown += 1
                if shown == count:
                    return
        await asyncio.sleep(_PAUSE)


def _show(out: Output, event: operations.OutboxEvent) -> None:
    if out.as_json:
        out.line(event)
        return
    version = "" if event.version is None else f" v{event.version}"
    due = f", due at {tell(event.deliver_at)}" if event.deliver_at else ""
    out.say(f"{event.occurred_at:%H:%M:%S.%f}Z  {event.id}  {event.type}  {event.key}{version}  {event.state}{due}")
    sys.stdout.flush()
