"""failures: what went wrong, alike with alike."""

import click

from postroad import operations
from postroad.cli.output import Output
from postroad.cli.site import Site, on_site


@click.command()
@on_site(argument=True)
async def failures(site: Site, out: Output) -> None:
    """Failures by their cause, the most frequent first: parked events, failed handlers, refused events, failed
    commands, dead letters.

    Two are alike if they say the same but for ids, numbers, times and quotations.
    """
    found = await operations.causes(site.store, site.outboxes, site.broker)
    if out.as_json:
        out.data(found)
    elif found:
        rows = [(c.count, c.where, c.place, ", ".join(c.types), c.last, c.fingerprint) for c in found]
        out.table(("count", "where", "of", "types", "last", "cause"), rows)
    else:
        out.say("nothing has failed", "green")
