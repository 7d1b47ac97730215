"""command: what somebody wants done, and what became of it."""

from uuid import UUID

import click

from postroad import operations
from postroad.cli.ids import event_id
from postroad.cli.output import Output
from postroad.cli.progress import watching
from postroad.cli.site import Site, on_site
from postroad.operations.portions import in_portions


@click.group()
def command() -> None:
    """Commands: look at them, let a failed one run again."""


@command.command("list")
@click.option("--status", type=click.Choice(operations.COMMAND_STATES, case_sensitive=False), default=None)
@click.option("--type", "type_", default="", help="Only this command type.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--after", type=event_id, help="The last id of the previous page.")
@on_site(argument=True)
async def list_(site: Site, out: Output, status: str | None, type_: str, limit: int, after: UUID | None) -> None:
    """The commands, newest first.

    \b
    Example:
      postroad command list --status failed
    """
    found = await operations.command_page(site.store, status=status or "", type=type_, limit=limit, after=after)
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.say("no commands")
        return
    out.table(
        ("id", "status", "type", "key", "failures", "next try", "created", "error"),
        [
            (one.id, one.status, one.type, one.key, one.retry_count, one.next_retry_at, one.created_at, one.error or "")
            for one in found
        ],
    )
    if len(found) == limit:
        out.say(f"next page: --after {found[-1].id}", "dim")


@command.command()
@click.argument("id", type=event_id)
@on_site()
async def show(site: Site, out: Output, id: UUID) -> None:
    """Everything about one command, with its payload and the ids of its events."""
    found = await operations.command_detail(site.store, id)
    if out.as_json:
        out.data(found)
        return
    one = found.command
    out.facts(
        {
            "command": one.id,
            "status": one.status,
            "failures": one.retry_count,
            "error": one.error,
            "next try": one.next_retry_at,
            "type": one.type,
            "key": one.key,
            "tenant": found.tenant,
            "user": found.user_id,
            "correlation": found.correlation_id,
            "caused by": found.causation_id,
            "created": one.created_at,
            "started": one.started_at,
            "finished": one.finished_at,
            "held by": found.locked_by,
            "held until": found.locked_until,
            "payload": found.payload,
            "events": list(found.events),
        }
    )
    for act in found.history:
        out.say(f"{act.at:%Y-%m-%d %H:%M:%S}Z  {act.action} by {act.actor}  {act.detail}", "dim")
    if one.status == "FAILED":
        out.say(f"Try again: postroad command retry {one.id}{site.again}")
    out.say(f"What came of it: postroad trace {one.id}{site.again}")


@command.command()
@click.argument("ids", type=event_id, nargs=-1)
@click.option("--all-failed", is_flag=True, help="Every command that has failed; --type narrows it.")
@click.option("--type", "type_", default="", help="With --all-failed, only this command type.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@click.option("--reason", default="", help="Kept in the audit table.")
@on_site()
async def retry(
    site: Site, out: Output, ids: tuple[UUID, ...], all_failed: bool, type_: str, dry_run: bool, reason: str
) -> None:
    """Hand failed commands to the workers, with all their attempts before them."""
    if all_failed == bool(ids) or (ids and type_):
        raise click.UsageError("Give the ids of commands, or --all-failed.")
    chosen = await operations.failed_commands(site.store, type_) if all_failed else ids
    if not dry_run:
        with watching(out, "handing over") as progress:
            for portion in in_portions(chosen, progress):
                await operations.retry_commands(site.store, portion, actor=operations.this_user(), reason=reason)
    if out.as_json:
        out.data({"would_retry" if dry_run else "retried": chosen})
        return
    for id in chosen:
        out.say(f"{id} would be carried out again" if dry_run else f"{id} will be carried out by a worker", "green")
    if not chosen:
        out.say("no command has failed")
