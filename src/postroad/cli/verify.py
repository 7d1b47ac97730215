"""verify: whether each group got what was sent, here or in another service."""

from datetime import timedelta
from pathlib import Path

import click
import msgspec

from postroad import consistency
from postroad.cli.check import grace_option, since_option
from postroad.cli.output import Output, times
from postroad.cli.results import keep, kept, last_option
from postroad.cli.site import Site, on_site
from postroad.consistency import Ledger
from postroad.errors import ConfigurationError
from postroad.operations import results, this_user

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@since_option
@grace_option
@click.option("--export", "to", type=_FILE, help="Write what this service's groups got, for the producer.")
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
    against: Path | None,
    resend: bool,
    last: bool,
) -> None:
    """Whether each group got what was sent, by comparing sums per minute. Exit code 1 when something is missing.

    \b
    Examples:
      postroad verify shop:road
      postroad verify mail:road --export mail.json
      postroad verify shop:road --against mail.json --resend
      postroad verify --last
    """
    if to and (against or resend):
        raise click.UsageError("--export only writes; use --against and --resend where the events come from.")
    if last and (to or against or resend):
        raise click.UsageError("--last only shows what was found; --export, --against and --resend look anew.")
    seconds, made = grace.total_seconds(), dict[str, object]()
    if to:
        ledger = await consistency.export(site.require_road(), since=since, grace=seconds)
        _write(to, ledger)
        out.say(f"{times(len(ledger.groups), 'group')} written to {to}", "green")
        return
    if last:
        made["at"], made["actor"], losses = await kept(out, site.store, results.VERIFY, list[consistency.Loss])
    else:
        losses = await _compared(site, out, since, seconds, against)
    sent = await consistency.resend(site.require_road(), losses, actor=this_user()) if resend else 0
    if out.as_json:
        out.data({**made, "losses": losses, "resent": sent})
    elif losses:
        out.table(
            ("group", "topic", "type", "sent", "seen", "first"),
            [(one.group, one.topic, one.type, one.sent, one.seen, one.ids[0]) for one in losses],
        )
        out.say(f"{times(sent, 'event')} sent again" if resend else "Add --resend to send them once more.", "yellow")
    else:
        out.say("every group got what was sent", "green")
    if losses and not resend:
        raise click.exceptions.Exit(1)


async def _compared(
    site: Site, out: Output, since: timedelta, grace: float, against: Path | None
) -> list[consistency.Loss]:
    other = _read(against) if against else None
    losses = await consistency.verify(site.require_road(), since=since, grace=grace, against=other)
    if other is None:
        await keep(out, site.store, results.VERIFY, consistency.shortened(losses))
    return list(losses)


def _write(file: Path, ledger: Ledger) -> None:
    file.write_bytes(msgspec.json.encode(ledger))


def _read(file: Path) -> Ledger:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Ledger)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(
            f"{file} is not a ledger ({error}). Write one where the group runs: postroad verify APP --export FILE"
        ) from None
