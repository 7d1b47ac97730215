"""audit: what people did by hand."""

import click

from postroad import operations
from postroad.cli.output import Output
from postroad.cli.site import Site, on_site


@click.command()
@click.option("--subject", default="", help="Only what was done to this: an event, a group, an outbox, a read model.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option(
    "--before",
    type=click.IntRange(1, operations.NEWEST_ACT),
    default=operations.NEWEST_ACT,
    help="The last number of the previous page.",
)
@on_site(argument=True)
async def audit(site: Site, out: Output, subject: str, limit: int, before: int) -> None:
    """What people did by hand, newest first: retry, skip, discard."""
    found = await operations.acts(site.store, subject=subject, limit=limit, before=before)
    if out.as_json:
        out.data(found)
    elif found:
        rows = [(act.at, act.actor, act.action, act.subject, act.detail) for act in found]
        out.table(("at", "by", "action", "subject", "reason"), rows)
        if len(found) == limit:
            out.say(f"next page: --before {found[-1].id}", "dim")
    else:
        out.say("nothing was done by hand")
