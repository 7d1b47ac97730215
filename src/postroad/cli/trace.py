"""trace: what came of what, as a tree."""

import functools
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from postroad import operations
from postroad.cli.output import STYLES, Output
from postroad.cli.site import Site, on_site
from postroad.errors import OperationRefused
from postroad.operations import Step, Trace
from postroad.operations.trace import LONGEST
from postroad.redact import one_line

_WIDE = 1_000
_MORE = f"The flow goes on: only the first {LONGEST:,} commands and events of each table are shown."
_APPLICATION: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3_600, "d": 86_400}


def span(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,6})(s|min|m|h|d)", text)
    if not found:
        raise click.BadParameter(f"{text!r} is no span of time. Write it as 90s, 30m, 24h or 7d.")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _is_told_from_applications(command: Callable[..., None]) -> Callable[..., None]:
    """Most commands take the application right behind, and so it is written here, too. An id may look like one."""

    @functools.wraps(command)
    def call(id: str | None, orphans: bool, app: str | None, database_url: str | None, **values: Any) -> None:
        run = functools.partial(command, id=id, orphans=orphans, app=app, database_url=database_url, **values)
        if id is None or not _APPLICATION.fullmatch(id):
            return run()
        refusal = click.UsageError(
            f"{id} is no id of an event, a command or a flow here. If it is the application, write: "
            f"postroad trace {'--orphans' if orphans else 'ID'} --app {id}"
        )
        if not (app or database_url):
            raise refusal
        try:
            return run()
        except OperationRefused:
            raise refusal from None

    return call


@click.command()
@click.argument("id", required=False)
@click.option("--mermaid", is_flag=True, help="As a Mermaid flow chart, for a document.")
@click.option("--orphans", is_flag=True, help="Instead of one flow: whatever has no cause, or a wrong one.")
@click.option("--since", type=span, default="24h", show_default=True, help="With --orphans: how far back to look.")
@_is_told_from_applications
@on_site()
async def trace(site: Site, out: Output, id: str | None, mermaid: bool, orphans: bool, since: timedelta) -> None:
    """What came of what: commands, events and their handling, from the first cause on.

    ID is a correlation id, or the id of any event or command of the flow. It reads the commands, the event store,
    the outbox and the inbox of this service's database.

    \b
    Examples:
      postroad trace flow-0199f6e2-7c11-7d7a-9a59-1f6a0a7d2d54
      postroad trace --orphans --since 24h
    """
    if bool(id) == orphans:
        raise click.UsageError("Give the id of an event, a command or a flow; or --orphans for broken links.")
    if orphans:
        await _orphans(site, out, site.store.clock.now() - since)
        return
    found = await operations.trace_of(site.store, site.outboxes, str(id))
    if out.as_json:
        out.data(found)
    elif mermaid:
        click.echo(as_mermaid(found))
    else:
        # In a pipe nothing is folded: an id must stay whole, to be copied into the next command.
        console = out.console if out.on_terminal else Console(highlight=False, width=_WIDE)
        console.print(as_tree(found), soft_wrap=False)
        if found.truncated:
            out.say(_MORE, "yellow")


async def _orphans(site: Site, out: Output, since: datetime) -> None:
    found = await operations.orphans(site.store, site.outboxes, since)
    if out.as_json:
        out.data(found)
    elif not found:
        out.say(f"no broken links since {since:%Y-%m-%d %H:%M:%S}Z")
    else:
        rows = [(one.step.id, one.step.type, one.step.key, one.step.at, one.reason) for one in found]
        out.table(("id", "type", "key", "at", "what is wrong"), rows)


def as_tree(trace: Trace) -> Tree:
    tree = Tree(Text(f"flow {one_line(trace.correlation_id)}", style="bold"), guide_style="dim")
    broken = {one.step.id: one.reason for one in trace.broken}
    for root in trace.roots:
        place = tree
        if root.id in broken:
            place = tree.add(Text(f"✗ {one_line(broken[root.id])}", style="bold red"))
        _grow(place, trace, root, root.at, {root.id})
    return tree


def _grow(place: Tree, trace: Trace, step: Step, since: datetime, above: set[str]) -> None:
    branch = place.add(_line(step, since))
    for one in step.handled:
        told = f"{one.group}: {one.state}{' · ' + one.error if one.error else ''}"
        branch.add(Text(one_line(told), style=STYLES.get(one.state, "")))
    for effect in trace.caused_by(step.id):
        if effect.id not in above:
            _grow(branch, trace, effect, step.at, above | {effect.id})


def _line(step: Step, since: datetime) -> Text:
    line = Text(one_line(step.type), style="bold" if step.kind == "command" else "")
    version = "" if step.version is None else f" v{step.version}"
    line.append(Text(f"  {one_line(step.key)}{version}  ", style="dim"))
    line.append(Text(step.state, style=STYLES.get(step.state, "cyan")))
    line.append(Text(f"  {_time(step.at, since)}  {one_line(step.id)}", style="dim"))
    if step.error:
        line.append(Text(f"  {one_line(step.error)}", style="red"))
    return line


def _time(at: datetime, since: datetime) -> str:
    """When it began, and how long after its cause that was."""
    seconds = (at - since).total_seconds()
    gap = f" (+{seconds:.3f} s)" if seconds > 0 else ""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}Z{gap}"


def as_mermaid(trace: Trace) -> str:
    names = {step.id: f"n{place}" for place, step in enumerate(trace.steps)}
    lines = ["flowchart LR", *([f"  %% {_MORE}"] if trace.truncated else [])]
    for step in trace.steps:
        shape = '(["{}"])' if step.kind == "command" else '["{}"]'
        lines.append(f"  {names[step.id]}{shape.format(_label(step.type, step.key, step.state))}")
        lines += [
            f'  {names[step.id]} -.-> {names[step.id]}g{place}{{{{"{_label(one.group, one.state)}"}}}}'
            for place, one in enumerate(step.handled)
        ]
    lines += _links(trace, names)
    return "\n".join(lines)


def _links(trace: Trace, names: dict[str, str]) -> Sequence[str]:
    links = [
        f"  {names[str(step.causation_id)]} --> {names[step.id]}" for step in trace.steps if step.causation_id in names
    ]
    broken = [
        f'  {names[one.step.id]}x["{_label("missing: " + one.reason)}"] -.- {names[one.step.id]}'
        for one in trace.broken
        if one.step.causation_id not in names
    ]
    return [*links, *broken]


def _label(*parts: str) -> str:
    """What Mermaid takes for its own is written as an entity."""
    return "<br/>".join(
        re.sub(r'[#"<>&{}\[\]()]', lambda found: f"#{ord(found[0])};", one_line(part)) for part in parts
    )
