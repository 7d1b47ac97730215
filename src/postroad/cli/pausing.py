"""pause, resume, drain, release: who stands still, or is given up, because a person said so."""

import click

from postroad import operations
from postroad.cli.output import Output
from postroad.cli.site import Site, on_site

_REASON = click.option("--reason", default="", help="Kept in the audit table, and shown by status.")
_OUTBOX = click.option("--outbox", default="", help="Instead of a group: the relays of this outbox.")


@click.command()
@click.argument("group", default="")
@_OUTBOX
@_REASON
@on_site()
async def pause(site: Site, out: Output, group: str, outbox: str, reason: str) -> None:
    """Let all workers of a group stand still, until it is resumed.

    They finish what is in hand and take no more within seconds, wherever they run, also after a restart. Nothing is
    lost, no attempt is counted, and order is kept.

    \b
    Examples:
      postroad pause receipts --reason "the printer is on fire"
      postroad pause --outbox postroad_outbox
    """
    _one_of(group, outbox)
    actor = operations.this_user()
    if outbox:
        await operations.pause_outbox(site.store, site.outboxes, outbox, actor=actor, reason=reason)
    else:
        groups = site.road.groups if site.road else ()
        await operations.pause_group(site.store, groups, group, actor=actor, reason=reason)
    _told(out, "paused", group, outbox, f"goes on with: postroad resume {_named(group, outbox)}{site.again}")


@click.command()
@click.argument("group", default="")
@_OUTBOX
@_REASON
@on_site()
async def resume(site: Site, out: Output, group: str, outbox: str, reason: str) -> None:
    """Let a paused group go on, where it stood.

    \b
    Example:
      postroad resume receipts
    """
    _one_of(group, outbox)
    actor = operations.this_user()
    if outbox:
        await operations.resume_outbox(site.store, outbox, actor=actor, reason=reason)
    else:
        await operations.resume_group(site.store, group, actor=actor, reason=reason)
    _told(out, "resumed", group, outbox, "goes on within seconds")


@click.command()
@click.argument("worker")
@_REASON
@on_site()
async def drain(site: Site, out: Output, worker: str, reason: str) -> None:
    """Let one process finish what is in hand, give back its leases and take no more.

    WORKER is a process as `postroad status` shows it, or an id from its --json. The process stays, idle, until it is
    started anew; others go on with its work.

    \b
    Example:
      postroad drain web-1:4711
    """
    drained = await operations.drain_worker(site.store, worker, actor=operations.this_user(), reason=reason)
    if out.as_json:
        out.data({"draining": worker, "ids": drained})
    else:
        out.say(
            f"{worker} finishes what is in hand and takes no more; then `postroad status` no longer shows it", "green"
        )


@click.command()
@click.argument("relay")
@_REASON
@on_site()
async def release(site: Site, out: Output, relay: str, reason: str) -> None:
    """Take the shards of a relay that is gone, instead of waiting until its lease has run out.

    RELAY is a process as `postroad doctor` names it. One that is alive is refused: drain it.

    \b
    Example:
      postroad release web-1:4711
    """
    actor = operations.this_user()
    count = await operations.release_leases(site.store, relay, actor=actor, reason=reason)
    if out.as_json:
        out.data({"released": relay, "shards": count})
    else:
        out.say(f"{count} shards of {relay} can be taken by others", "green")


def _one_of(group: str, outbox: str) -> None:
    if bool(group) == bool(outbox):
        raise click.UsageError("Name a group, or an outbox with --outbox.")


def _named(group: str, outbox: str) -> str:
    return f"--outbox {outbox}" if outbox else group


def _told(out: Output, what: str, group: str, outbox: str, follows: str) -> None:
    if out.as_json:
        out.data({what: {"outbox": outbox} if outbox else {"group": group}})
    else:
        out.say(f"{outbox or group} is {what}; it {follows}", "green")
