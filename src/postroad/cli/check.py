"""check and repair: whether the stages fit together, and mending what can be mended."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from postroad import consistency
from postroad.cli.output import Output, times
from postroad.cli.results import keep, kept, last_option
from postroad.cli.site import Site, on_site
from postroad.cli.trace import span
from postroad.consistency.report import KINDS
from postroad.operations import results, this_user

since_option = click.option("--since", type=span, default="24h", show_default=True, help="How far back to look.")
grace_option = click.option(
    "--grace", type=span, default="5m", show_default=True, help="What is younger may still be on its way."
)


@click.command()
@since_option
@grace_option
@last_option
@on_site(argument=True)
async def check(site: Site, out: Output, since: timedelta, grace: timedelta, last: bool) -> None:
    """Whether commands, events, outbox and inbox fit together.

    Exit code 1 when something is found, or could not be looked at.

    It only reads, in short stretches, and can run beside everything else. The dashboard shows what was found.

    \b
    Examples:
      postroad check shop:road --since 24h
      postroad check --json | jq .report.findings
      postroad check --last
    """
    made: dict[str, object] = {}
    if last:
        made["at"], made["actor"], report = await kept(out, site.store, results.CHECK, consistency.Report)
    else:
        with _watching(out) as tell:
            report = await consistency.check(site.require_road(), since=since, grace=grace.total_seconds(), tell=tell)
        await keep(out, site.store, results.CHECK, report)
    if out.as_json:
        out.data({**made, "consistent": report.consistent, "report": report})
    else:
        _tell(out, report, site.again)
    if not report.consistent:
        raise click.exceptions.Exit(1)


def _tell(out: Output, report: consistency.Report, again: str) -> None:
    sizes = times(report.commands, "command"), times(report.events, "domain event"), times(report.handled, "handling")
    looked = f"{', '.join(sizes)} since {report.since:%F %T}Z"
    if report.consistent:
        out.say(f"everything fits together: {looked}", "green")
        return
    for one in report.findings:
        where = f" ({one.where})" if one.where else ""
        out.say(f"{one.count:,} {one.told}{where}", "bold red")
        for id in one.ids:
            out.say(f"  {id}")
        if one.count > len(one.ids):
            out.say(f"  … and {one.count - len(one.ids):,} more", "dim")
    for left in report.not_looked_at:
        out.say(f"not looked at: {left}", "bold red")
    out.say(looked)
    if report.findings:
        out.say(f"What can be mended: postroad repair{again}")


@click.command()
@since_option
@grace_option
@click.option("--apply", is_flag=True, help="Do it. Without this, only what would be done is shown.")
@on_site(argument=True)
async def repair(site: Site, out: Output, since: timedelta, grace: timedelta, apply: bool) -> None:
    """Add missing outbox rows, run orphaned commands again, release what vanished processes hold.

    Shows what it would do; --apply does it. Everything is audited, and a second run changes nothing more.

    \b
    Examples:
      postroad repair shop:road
      postroad repair shop:road --apply
    """
    done = await consistency.repair(
        site.require_road(), apply=apply, since=since, grace=grace.total_seconds(), actor=this_user()
    )
    if out.as_json:
        out.data({"applied": apply, "rows": sum(one.rows for one in done), "repairs": done})
        return
    if not done:
        out.say("nothing to repair", "green")
        return
    out.table(("fault", "where", "rows", "first"), [(KINDS[one.kind], one.where, one.rows, one.ids[0]) for one in done])
    if not apply:
        out.say("Nothing was done. Add --apply to do it.", "yellow")


@contextmanager
def _watching(out: Output) -> Iterator[Callable[[str], None]]:
    """A sign of life for whoever sits before it: which kind is being looked for, and how many pieces are done."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} pieces"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=out.as_json or not console.is_terminal, transient=True) as bar:
        task = bar.add_task("checking", total=None)
        yield lambda kind: bar.update(task, advance=1, description=kind.replace("_", " "))
