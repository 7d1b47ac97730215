"""projection: the read models, whether they are right, and building one anew."""

from datetime import UTC, datetime
from typing import Any

import click
from sqlalchemy import Select

from postroad import operations
from postroad.app import Postroad
from postroad.cli.application import find
from postroad.cli.output import Output, times
from postroad.cli.progress import watching
from postroad.cli.site import Site, on_site
from postroad.errors import ConfigurationError
from postroad.projections import Differences

_SOURCE = click.option(
    "--source",
    type=click.Choice(operations.SOURCES),
    default="declared",
    show_default=True,
    help="Where the events come from: what the projection declares (else the broker), the broker, the outbox or the "
    "event store.",
)
_SINCE = click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]),
    help="Only what the broker got from this time (UTC) on.",
)


@click.group()
def projection() -> None:
    """The read models: how they stand, whether they are right, building one anew."""


@projection.command("list")
@on_site(argument=True)
async def list_(site: Site, out: Output) -> None:
    """The declared projections, and how far a rebuild has come."""
    found = await operations.projections(_road(site))
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.say("no projections")
        return
    rows = []
    for one in found:
        state = one.state
        progress = f"{state.progress:,} of {state.total:,}" if state and state.state == "rebuilding" else ""
        told = (state.generation, state.state, progress, state.started_at) if state else (0, "live", "", None)
        rows.append((one.name, one.table, one.group, *told, "-" if one.behind is None else f"{one.behind:,}"))
    out.table(("projection", "table", "group", "generation", "state", "rebuilt", "last begun", "behind"), rows)


@projection.command()
@click.argument("name")
@_SOURCE
@_SINCE
@click.option("--accept-loss", is_flag=True, help="Swap even if the source does not tell of all rows.")
@click.option("--yes", is_flag=True, help="Do it. Without this, only what would be done is shown.")
@on_site()
async def rebuild(
    site: Site, out: Output, name: str, source: str, since: datetime | None, accept_loss: bool, yes: bool
) -> None:
    """Build a projection anew from its events, then swap. Readers keep the old table until then.

    Only the projection's own functions run: nothing else is done again. Shows what it would do; --yes does it.

    \b
    Examples:
      postroad projection rebuild video_search
      postroad projection rebuild video_search --source outbox --yes
    """
    road = _road(site)
    of = operations.projection(road, name)
    events = operations.projection_source(road, of, source, _utc(since))
    if not yes:
        plan = {"projection": name, "table": str(of.table.fullname), "source": type(events).__name__, "rebuilt": False}
        if out.as_json:
            out.data(plan)
        else:
            out.say(f"{name} would be rebuilt from its {plan['source']}, beside {plan['table']}, and swapped", "yellow")
            out.say("Nothing was done. Add --yes to do it.")
        return
    with watching(out, f"rebuilding {name}") as tell:
        actor = operations.this_user()
        done = await operations.rebuild(road, name, events, actor=actor, accept_loss=accept_loss, tell=tell)
    if out.as_json:
        out.data({"rebuilt": True, **_plain(done)})
        return
    out.say(f"{name} is rebuilt from {times(done.events, 'event')}, generation {done.generation}", "green")
    _tell_differences(out, done.differences, "as it was before")


@projection.command()
@click.argument("name")
@_SOURCE
@_SINCE
@click.option("--against", default="", metavar="MODULE:QUERY", help="Compare with this SQLAlchemy select instead.")
@on_site()
async def verify(site: Site, out: Output, name: str, source: str, since: datetime | None, against: str) -> None:
    """Compare a projection with its events, or with a query. Exit code 1 when something differs.

    The events are applied to a table beside the projection's, which is removed afterwards; nothing is replaced.

    \b
    Examples:
      postroad projection verify video_search
      postroad projection verify video_search --against shop:current_videos
    """
    road = _road(site)
    of = operations.projection(road, name)
    right = _query(against) if against else operations.projection_source(road, of, source, _utc(since))
    with watching(out, f"verifying {name}") as tell:
        found = await operations.verify(road, name, right, tell=tell)
    if out.as_json:
        out.data({"right": found.right, **_plain(found)})
    else:
        _tell_differences(out, found.differences, "as it is")
        for gap in found.gaps:
            out.say(f"{gap.key} {'is parked' if gap.parked else 'waits'} at version {gap.version}: {gap.error}", "red")
        if found.gaps:
            again = f"postroad projection rebuild {name}{site.again}"
            out.say(f"Give back what is missing (postroad dlq list), or: {again}")
    if not found.right:
        raise click.exceptions.Exit(1)


def _tell_differences(out: Output, found: Differences, when: str) -> None:
    if not found:
        out.say(f"{times(found.rows, 'row')}, no difference", "green")
        return
    kinds = ("missing", "extra", "stale", "ahead", "differing")
    counts = [(kind, getattr(found, kind), ", ".join(found.keys.get(kind, ()))) for kind in kinds]
    out.say(f"{times(found.rows, 'row')} are right; the table {when}:", "yellow")
    out.table(("difference", "rows", "first keys"), [row for row in counts if row[1]])


def _plain(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _road(site: Site) -> Postroad:
    if site.road is None:
        raise ConfigurationError("This needs the application, which declares its projections. Name it with --app.")
    return site.road


def _utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment else None


def _query(reference: str) -> Select[Any]:
    found = find(reference)
    if not isinstance(found, Select):
        raise ConfigurationError(f"{reference} is a {type(found).__name__}. Name a SQLAlchemy select(…).")
    return found
