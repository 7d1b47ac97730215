"""verify: whether each group got what was sent, here or in another service."""

from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

import click
import msgspec

from postroad import consistency
from postroad.cli.check import grace_option, since_option
from postroad.cli.output import Output, age, times
from postroad.cli.results import keep, kept, last_option
from postroad.cli.site import Site, on_site
from postroad.consistency import Ledger
from postroad.errors import ConfigurationError
from postroad.operations import results, this_user

_FILE = click.Path(dir_okay=False, path_type=Path)
_EXPORT: Final = "Write one where the group runs: postroad verify APP --export FILE"
_ASK: Final = "Write one where the events come from: postroad verify APP --against LEDGER --json > FILE"

F = TypeVar("F")


class _Found(msgspec.Struct):
    losses: list[consistency.Loss]


@click.command()
@since_option
@grace_option
@click.option("--export", "to", type=_FILE, help="Write what this service's groups got, for the producer.")
@click.option("--asked", type=_FILE, help="With --export: what the producer found with --json; tells those ids.")
@click.option("--against", type=_FILE, help="Compare with what another service has exported.")
@click.option("--resend", is_flag=True, help="Send what is missing to the broker once more.")
@last_option
@on_site(argument=True)
async def verify(
    site: Site,
    out: Output,
    since: timedelta,
    grace: timedelta,
    to: Path | None,
    asked: Path | None,
    against: Path | None,
    resend: bool,
    last: bool,
) -> None:
    """Whether each group got what was sent, by comparing sums per minute.

    Exit code 1 when something is missing and was not sent again, or could not be compared.

    \b
    Examples:
      postroad verify shop:road
      postroad verify mail:road --export mail.json
      postroad verify shop:road --against mail.json --json > lost.json
      postroad verify mail:road --export mail.json --asked lost.json
      postroad verify shop:road --against mail.json --resend
      postroad verify --last
    """
    if to and (against or resend):
        raise click.UsageError("--export only writes; use --against and --resend where the events come from.")
    if asked and not to:
        raise click.UsageError("--asked says which ids to export; add --export.")
    if last and (to or against or resend):
        raise click.UsageError("--last only shows what was found; --export, --against and --resend look anew.")
    seconds, made = grace.total_seconds(), dict[str, object]()
    if to:
        questions = _read(asked, _Found, "what a comparison found", _ASK).losses if asked else ()
        ledger = await consistency.export(site.require_road(), since=since, grace=seconds, asked=questions)
        _write(to, ledger)
        out.say(f"{times(len(ledger.groups), 'group')} written to {to}", "green")
        return
    if last:
        made["at"], made["actor"], losses = await kept(out, site.store, results.VERIFY, list[consistency.Loss])
        found = consistency.Comparison(losses)
    else:
        found = await _compared(site, out, since, seconds, against)
    sent = await consistency.resend(site.require_road(), found.losses, actor=this_user()) if resend else 0
    if out.as_json:
        out.data({**made, "losses": found.losses, "uncompared": found.uncompared, "resent": sent})
    else:
        # How far another service's ledger goes, or what was kept, only those who made it know.
        until = "" if against or last else f" until {age(seconds)} ago"
        _tell(out, found, resend, sent, until)
    missing = {id for one in found.losses for id in one.ids}
    if found.uncompared or sent < len(missing):
        raise click.exceptions.Exit(1)


def _tell(out: Output, found: consistency.Comparison, resend: bool, sent: int, until: str) -> None:
    if found.complete:
        out.say(f"every group got what was sent{until}", "green")
    for left in found.uncompared:
        out.say(
            f"{times(left.events, 'event')} not compared: whether {left.group} got them, its ledger does not tell. "
            "They have ids without a time, or were delayed. Export it anew, with this version and a shorter --since.",
            "bold red",
        )
    if not found.losses:
        return
    out.table(
        ("group", "topic", "type", "sent", "seen", "first"),
        [
            (one.group, one.topic, one.type, one.sent, one.seen, one.ids[0] if one.named else "not known yet")
            for one in found.losses
        ],
    )
    if any(one.named for one in found.losses):
        out.say(f"{times(sent, 'event')} sent again" if resend else "Add --resend to send them once more.", "yellow")
    if unnamed := [one for one in found.losses if not one.named]:
        out.say(
            f"Which events of {times(len(unnamed), 'minute')} are missing only the other service knows. Keep what "
            "--json shows in a file, run there: postroad verify APP --export LEDGER --asked FILE, and compare again.",
            "yellow",
        )


async def _compared(
    site: Site, out: Output, since: timedelta, grace: float, against: Path | None
) -> consistency.Comparison:
    other = _read(against, Ledger, "a ledger", _EXPORT) if against else None
    found = await consistency.verify(site.require_road(), since=since, grace=grace, against=other)
    if other is None:
        await keep(out, site.store, results.VERIFY, consistency.shortened(found.losses))
    return found


def _write(file: Path, ledger: Ledger) -> None:
    file.write_bytes(msgspec.json.encode(ledger))


def _read(file: Path, shape: type[F], what: str, cure: str) -> F:
    try:
        return msgspec.json.decode(file.read_bytes(), type=shape)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(f"{file} is not {what} ({error}). {cure}") from None
