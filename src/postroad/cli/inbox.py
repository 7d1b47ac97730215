"""inbox: what became of events in the consumer groups."""

from uuid import UUID

import click

from postroad import operations
from postroad.cli.ids import event_id
from postroad.cli.output import Output
from postroad.cli.progress import watching
from postroad.cli.site import Site, on_site
from postroad.operations.portions import in_portions


@click.group()
def inbox() -> None:
    """What became of events in the consumer groups; handle a failed one again."""


@inbox.command("list")
@click.option("--group", default="", help="Only this group.")
@click.option("--failed", is_flag=True, help="Only what has failed, also what will be tried again.")
@click.option("--cause", default="", help="Only what failed of this cause, as `postroad failures` tells it.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--after", default="", metavar="GROUP/ID", help="The last record of the previous page.")
@on_site(argument=True)
async def list_(site: Site, out: Output, group: str, failed: bool, cause: str, limit: int, after: str) -> None:
    """The records of handled, waiting and failed events.

    \b
    Example:
      postroad inbox list --group receipts --failed
    """
    place = _place(after) if after else None
    found = await operations.inbox_page(site.store, group=group, failed=failed, cause=cause, limit=limit, after=place)
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.say("no records")
        return
    out.table(
        ("group", "event", "state", "type", "key", "failures", "next try", "error"),
        [(r.group, r.event_id, r.state, r.type, r.key, r.retry_count, r.next_retry_at, r.error or "") for r in found],
    )
    if len(found) == limit:
        out.say(f"next page: --after {found[-1].group}/{found[-1].event_id}", "dim")


@inbox.command()
@click.argument("group")
@click.argument("id", type=event_id)
@on_site()
async def show(site: Site, out: Output, group: str, id: UUID) -> None:
    """Everything about one event in one group, with its message if it is kept."""
    found = await operations.inbox_record(site.store, group, id)
    if out.as_json:
        out.data(found)
        return
    record = found.record
    out.facts(
        {
            "group": record.group,
            "event": record.event_id,
            "state": record.state,
            "failures": record.retry_count,
            "error": record.error,
            "next try": record.next_retry_at,
            "type": record.type,
            "key": record.key,
            "version": record.version,
            "topic": record.topic,
            "tenant": found.tenant,
            "received": record.received_at,
            "processed": record.processed_at,
            "held by": found.locked_by,
            "held until": found.locked_until,
            "attributes": found.message,
            "payload": found.payload,
        }
    )
    for act in found.history:
        out.say(f"{act.at:%Y-%m-%d %H:%M:%S}Z  {act.action} by {act.actor}  {act.detail}", "dim")
    if record.state in ("failed", "waiting", "refused"):
        out.say(f"Try again: postroad inbox retry {record.group} {record.event_id}{site.again}")


@inbox.command()
@click.argument("group")
@click.argument("ids", type=event_id, nargs=-1)
@click.option("--all-failed", is_flag=True, help="All of the group that have failed; --cause narrows it.")
@click.option("--cause", default="", help="With --all-failed, only of this cause, as `postroad failures` tells it.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@click.option("--reason", default="", help="Kept in the audit table.")
@on_site()
async def retry(
    site: Site,
    out: Output,
    group: str,
    ids: tuple[UUID, ...],
    all_failed: bool,
    cause: str,
    dry_run: bool,
    reason: str,
) -> None:
    """Handle failed events again, as if they had just arrived."""
    if all_failed == bool(ids) or (ids and cause):
        raise click.UsageError("Give the ids of events, or --all-failed.")
    chosen = [one.event_id for one in await operations.failed_records(site.store, group, cause)] if all_failed else ids
    if not dry_run:
        letters = await operations.letters_of(site.store, site.broker, group, chosen)
        given = {"actor": operations.this_user(), "reason": reason}
        with watching(out, "handing over") as progress:
            for portion in in_portions(chosen, progress):
                await operations.retry_records(site.store, site.broker, group, portion, letters=letters, **given)
    if out.as_json:
        out.data({"group": group, "would_retry" if dry_run else "retried": chosen})
        return
    for id in chosen:
        out.say(f"{id} {'would' if dry_run else 'will'} be handled again by {group}", "green")
    if not chosen:
        out.say("nothing has failed")


@inbox.command()
@click.argument("group")
@click.argument("ids", type=event_id, nargs=-1, required=True)
@click.option("--reason", required=True, help="Why nobody will miss it; kept in the audit table.")
@click.option("--yes", is_flag=True, help="Do it. Without this, only what would be done is shown.")
@on_site()
async def discard(site: Site, out: Output, group: str, ids: tuple[UUID, ...], reason: str, yes: bool) -> None:
    """Give failed events up for good. Shows what it would do; --yes does it."""
    records = [(await operations.inbox_record(site.store, group, id)).record for id in ids]
    if yes:
        actor = operations.this_user()
        await operations.discard_records(site.store, site.broker, group, ids, actor=actor, reason=reason)
    if out.as_json:
        out.data({"discarded": yes, "records": records})
        return
    for one in records:
        told = "is discarded" if yes else f"is {one.state} and would be discarded"
        out.say(f"{one.event_id} {one.type} of {group} {told}", "green" if yes else "yellow")
    if not yes:
        out.say("Nothing was done. Add --yes to do it.")


def _place(text: str) -> tuple[str, UUID]:
    group, _, id = text.rpartition("/")
    if not group:
        raise click.BadParameter("write it as group/id, as the previous page shows it", param_hint="--after")
    return group, event_id(id)


@inbox.command()
@click.argument("group")
@click.argument("id", type=event_id)
@click.option("--reason", default="", help="Kept in the audit table.")
@on_site()
async def replay(site: Site, out: Output, group: str, id: UUID, reason: str) -> None:
    """Let one group handle once more what it has handled already; its effects happen again, and only there.

    The event comes from the outbox or, if another service sent it, from the broker, where that keeps what was handled.
    """
    actor = operations.this_user()
    await operations.replay_event(site.store, site.outboxes, group, id, actor=actor, reason=reason, broker=site.broker)
    if out.as_json:
        out.data({"replayed": {"group": group, "event_id": id}})
    else:
        out.say(f"{group} will handle {id} once more", "green")
