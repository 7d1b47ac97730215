"""topology: what the broker must have, for what the application writes and reads."""

from collections.abc import Sequence

import click

from postroad import operations
from postroad.brokers.base import Broker, Change, Topology
from postroad.cli.output import Output
from postroad.cli.reach import require_broker
from postroad.cli.site import Site, on_site
from postroad.errors import ConfigurationError


@click.group()
def topology() -> None:
    """The broker's topics, subscriptions and dead letters: what is missing, and make it so."""


@topology.command()
@on_site(argument=True, creates=True, asks=False)
async def show(site: Site, out: Output) -> None:
    """Who reads what: the service's topics, the groups that read them, here and elsewhere, and their handlers."""
    found = await operations.layout(site.require_road())
    if out.as_json:
        out.data(found)
        return
    read = {topic: [one for one in found.readers if one.topic == topic] for topic in found.topics}
    rows = [(topic, one.group, *_handlers(found, topic, one)) for topic in found.topics for one in read[topic]]
    rows += [(topic, "", "nobody reads it") for topic in found.topics if not read[topic]]
    out.table(("topic", "group", "handlers"), sorted(rows))


@topology.command()
@on_site(argument=True, creates=True, asks=False)
async def plan(site: Site, out: Output) -> None:
    """What apply would create or change. Changes nothing.

    \b
    Example:
      postroad topology plan shop:road
    """
    broker, wanted = await _reached(site)
    changes = await broker.plan(wanted)
    if out.as_json:
        out.data({"broker": broker.address, "changes": changes, "applied": False})
        return
    _tell(out, broker, changes)
    if changes:
        out.say(f"Nothing was done. Run: postroad topology apply{site.again.replace(' --app', '')}", "yellow")


@topology.command()
@on_site(argument=True, creates=True, asks=False)
async def apply(site: Site, out: Output) -> None:
    """Create what is missing and change what differs. Running it again changes nothing.

    Messages are never dropped: what only a new subscription could change is refused, and named.

    \b
    Example:
      postroad topology apply shop:road
    """
    broker, wanted = await _reached(site)
    _tell(out, broker, await broker.plan(wanted))
    changes = await broker.apply(wanted)
    if out.as_json:
        out.data({"broker": broker.address, "changes": changes, "applied": True})
    elif changes:
        out.say("done", "green")


def _handlers(found: operations.Layout, topic: str, reader: operations.Reader) -> tuple[str]:
    mine = [one for one in found.reactions if one.group == reader.group and one.type in found.topics[topic]]
    told = ", ".join(f"{one.handler} ({one.type})" for one in mine)
    return (told if reader.here else "elsewhere",)


async def _reached(site: Site) -> tuple[Broker, Topology]:
    if site.road is None:
        raise ConfigurationError("Only the application knows its topics and groups. Name it with --app.")
    broker, wanted = site.road.broker, site.road.topology
    await require_broker(broker, wanted)
    return broker, wanted


def _tell(out: Output, broker: Broker, changes: Sequence[Change]) -> None:
    if out.as_json:
        return
    if changes:
        rows = [(change.action, change.kind, change.name, change.detail) for change in changes]
        out.table(("action", "kind", "name", "detail"), rows)
    else:
        out.say(f"{broker.address} is up to date", "green")
