"""doctor: a live installation against the list of what it needs, each fault with its cure."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import click

from postroad.cli.application import load
from postroad.cli.output import STYLES, Output, times
from postroad.cli.results import keep, kept, last_option
from postroad.cli.site import close, require_file
from postroad.cli.which import needs_app, typed
from postroad.operations import results
from postroad.operations.doctor import PATIENCE, Finding, Level, Report, examine

_WORST_FIRST: Final = {
    Level.FAULT: "Faults: events are lost, doubled or stand still",
    Level.WARNING: "Warnings: it works today, and will hurt one day",
    Level.UNMADE: "Not made: these checks could not be made",
    Level.HINT: "Hints",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output with stable keys.")
@last_option
@needs_app
def doctor(app: str, as_json: bool, last: bool) -> None:
    """Examine a live installation: what is missing, wrong or standing still, and what to do about it.

    It changes nothing, and no check takes longer than a few seconds. Run it beside the relays and workers, as the
    user they run as. The dashboard shows what was found. Exit code: 0 no faults, 1 faults were found.

    \b
    Examples:
      postroad doctor shop:road
      postroad doctor --json | jq '.findings[] | select(.level == "fault")'
      postroad doctor --last
    """
    out = Output(as_json)
    made, report = asyncio.run(_last(out, app) if last else _examined(out, app))
    if as_json:
        out.data(made | asdict(report))
    else:
        _tell(out, report)
    if report.at(Level.FAULT):
        raise click.exceptions.Exit(1)


async def _examined(out: Output, app: str) -> tuple[dict[str, object], Report]:
    road = load(app)
    again = f" --app {app}" if typed("app") or typed("app_argument") else ""
    try:
        report = await examine(road, again=again)
        if any(one.check == "tables" and one.level is Level.OK for one in report.findings):
            # Else there is nowhere to keep it, and to try would make a missing SQLite file.
            await keep(out, road.store, results.DOCTOR, report)
        return {}, report
    finally:
        await close(road)


async def _last(out: Output, app: str) -> tuple[dict[str, object], Report]:
    road = load(app)
    try:
        require_file(road.store)
        at, actor, report = await kept(out, road.store, results.DOCTOR, Report)
        return {"at": at, "actor": actor}, report
    finally:
        await close(road)


def _tell(out: Output, report: Report) -> None:
    out.facts({"database": report.database, "broker": report.broker})
    out.say()
    out.table(
        ("", "check", "looked at whether"), [(one.level, one.check, one.looked_at) for one in _worst_of_each(report)]
    )
    for level, heading in _WORST_FIRST.items():
        if found := report.at(level):
            out.heading(heading)
            _tell_each(out, found)
    out.say()
    counts = {level: len(report.at(level)) for level in _WORST_FIRST}
    told = f"{times(counts[Level.FAULT], 'fault')}, {times(counts[Level.WARNING], 'warning')}"
    made = len({one.check for one in report.findings}) - len({one.check for one in report.at(Level.UNMADE)})
    style = "bold red" if counts[Level.FAULT] else "yellow" if counts[Level.WARNING] else "green"
    out.say(f"{told}; {made} checks made, {counts[Level.UNMADE]} not made (each within {PATIENCE:g} s)", style)


def _tell_each(out: Output, found: Sequence[Finding]) -> None:
    """What several checks say in the same words is said once."""
    told: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        told.setdefault((one.cause, one.cure, one.command), []).append(one.check)
    for (cause, cure, command), checks in told.items():
        out.say(f"{', '.join(checks)}: {cause}", STYLES[found[0].level])
        out.say(f"  {cure}")
        if command:
            out.say(f"  {command}", "bold")


def _worst_of_each(report: Report) -> Sequence[Finding]:
    order = [*_WORST_FIRST, Level.OK]
    worst: dict[str, Finding] = {}
    for finding in sorted(report.findings, key=lambda one: order.index(one.level)):
        worst.setdefault(finding.check, finding)
    return [worst[name] for name in dict.fromkeys(one.check for one in report.findings)]
