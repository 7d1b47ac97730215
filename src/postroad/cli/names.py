"""names: whether commands and events are called as they should be."""

import click

from postroad.cli.application import load
from postroad.cli.output import Output
from postroad.cli.which import needs_app
from postroad.events import declared_names
from postroad.naming import eventless


@click.group()
def names() -> None:
    """Names of commands and events."""


@names.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output with stable keys.")
@needs_app
def check(app: str, as_json: bool) -> None:
    """Whether each command is an order, each event a fact, and each command has its event.

    Command.Genesis.Session.Start belongs to Genesis.Session.Started. Tense and form of a name are checked where it is
    declared, and loading the application does that. Exits with 1 if something is wrong.

    \b
    Example:
      postroad names check shop:road
    """
    out, commands, events = Output(as_json), load(app).commands.events, declared_names()
    faults = [str(fault) for fault in eventless(commands, events)]
    if as_json:
        out.data({"commands": commands, "events": events, "faults": faults})
    else:
        out.table(
            ("command", "event"),
            [*commands.items(), *(("", event) for event in events if event not in commands.values())],
        )
        for fault in faults:
            out.say(fault, "red")
        out.say("all names are in order" if not faults else f"{len(faults)} to be mended", "bold")
    if faults:
        raise click.exceptions.Exit(1)
