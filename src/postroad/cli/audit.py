"""audit: what people did by hand."""

import click

from postroad import operations
from postroad.cli.output import Output
from postroad.cli.site import Site, on_site


@click.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@on_site(argument=True)
async def audit(site: Site, out: Output, limit: int) -> None:
    """What people did by hand, newest first: retry, skip, discard."""
    found = await operations.acts(site.store, limit=limit)
    if out.as_json:
        out.data(found)
    elif found:
        rows = [(act.at, act.actor, act.action, act.subject, act.detail) for act in found]
        out.table(("at", "by", "action", "subject", "reason"), rows)
    else:
        out.say("nothing was done by hand")
