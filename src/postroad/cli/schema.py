"""schema: whether a schema may follow another, and the schemas of an application's events."""

from pathlib import Path

import click

from postroad import events
from postroad.cli.application import load
from postroad.cli.output import Output, times
from postroad.cli.which import needs_app
from postroad.codec.compat import Break
from postroad.codec.compat import check as find_breaks
from postroad.codec.export import export as exported
from postroad.codec.export import for_pubsub
from postroad.errors import ConfigurationError, OperationRefused

_PLACE = click.Path(exists=True, path_type=Path)
_json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable output with stable keys.")


@click.group()
def schema() -> None:
    """Compare schemas of events, and write down those of an application."""


@schema.command()
@click.argument("old", type=_PLACE)
@click.argument("new", type=_PLACE)
@click.option(
    "--include",
    "-I",
    "includes",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder from which .proto files import. May be repeated.",
)
@_json_option
def check(old: Path, new: Path, includes: tuple[Path, ...], as_json: bool) -> None:
    """Whether NEW may follow OLD: two files, or two folders, of .proto, .binpb (descriptors) or .json (JSON Schema).

    Refused: a field, message, enum or enum value removed; a type, number, name or label changed; a field that
    becomes required; moves between oneofs; reserved numbers or names that are free again.

    Exit codes: 0 it may, 1 it may not, 2 they cannot be compared.

    \b
    Examples:
      postroad schema check released/events.proto events.proto
      postroad schema check released/schemas schemas --json
    """
    try:
        breaks = find_breaks(old, new, includes)
    except ConfigurationError as error:
        # Not 1: whoever asks in a pipeline must not take "cannot be compared" for an answer.
        raise click.UsageError(str(error)) from None
    _tell(Output(as_json), breaks)
    if breaks:
        raise OperationRefused(
            f"{times(len(breaks), 'breaking change')}: NEW may not follow OLD. Add a schema version instead."
        )


def _tell(out: Output, breaks: list[Break]) -> None:
    if out.as_json:
        told = [
            {"file": one.file, "message": one.message, "field": one.field, "rule": one.rule, "text": one.text}
            for one in breaks
        ]
        out.data({"compatible": not breaks, "breaks": told})
    elif breaks:
        out.table(("file", "message", "rule", "what"), [(one.file, one.message, one.rule, one.text) for one in breaks])
    else:
        out.say("compatible", "green")


@schema.command()
@click.option(
    "--out",
    "folder",
    default="schemas",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to write to.",
)
@click.option("--pubsub", is_flag=True, help="For Pub/Sub's registry instead: a .proto for each topic with protobuf.")
@_json_option
@needs_app
def export(app: str, folder: Path, pubsub: bool, as_json: bool) -> None:
    """Write the schema of each event and version that the application declares, a file each.

    JSON Schema for events that travel as JSON; for protobuf a set of descriptors (.binpb), which `schema check`,
    protoc and buf read. Keep them with the code, and let CI compare what is exported with what was released.

    With --pubsub, what can be registered with Pub/Sub: one file for each topic with protobuf, made of the message that
    all events of the topic travel in, with all that it imports inside it.

    \b
    Examples:
      postroad schema export shop:road --out schemas
      postroad schema export shop:road --pubsub --out registry
    """
    load(app)
    kinds = [kind for name in events.declared_names() for kind in events.declared(name).values()]
    files = dict(for_pubsub(kinds) if pubsub else map(exported, kinds))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, contents in files.items():
            (folder / name).write_bytes(contents)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or folder} cannot be written: {error.strerror}.") from None
    out = Output(as_json)
    if as_json:
        out.data({"folder": str(folder), "files": list(files)})
        return
    for name in files:
        out.say(str(folder / name))
    out.say(f"{times(len(files), 'schema')} written", "green")
