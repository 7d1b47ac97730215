"""outbox: the events on their way out."""

from typing import Final
from uuid import UUID

import click

from postroad import operations
from postroad.cli.ids import outbox_id
from postroad.cli.output import Output
from postroad.cli.site import Site, on_site


@click.group()
def outbox() -> None:
    """The events on their way out: look at them, free a parked key."""


_PARKED: Final = "PARKED"
"""What `status` calls the state FAILED."""


@outbox.command("list")
@click.option("--state", type=click.Choice((*operations.STATES, _PARKED), case_sensitive=False), default=None)
@click.option("--type", "type_", default="", help="Only this event type.")
@click.option("--key", default="", help="Only this aggregate: its id, or type and id as in order/42.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--after", type=outbox_id, help="The last id of the previous page.")
@on_site(argument=True)
async def list_(
    site: Site, out: Output, state: str | None, type_: str, key: str, limit: int, after: UUID | str | None
) -> None:
    """The events, newest first: by when they were sent or skipped, the others by when they happened.

    \b
    Examples:
      postroad outbox list --state parked
      postroad outbox list --key order/42 --json
    """
    found = await operations.outbox_page(
        site.store,
        site.outboxes,
        state="FAILED" if state == _PARKED else state or "",
        type=type_,
        key=key,
        limit=limit,
        after=after,
    )
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.say("no events")
        return
    delayed = any(one.deliver_at for one in found)
    out.table(
        ("id", "state", *(["due at"] if delayed else []), "type", "key", "version", "attempts", "occurred", "error"),
        [
            (
                one.id,
                one.state,
                *([one.deliver_at or ""] if delayed else []),
                one.type,
                one.key,
                one.version,
                one.attempts,
                one.occurred_at,
                one.last_error or "",
            )
            for one in found
        ],
    )
    if len(found) == limit:
        out.say(f"next page: --after {found[-1].id}", "dim")


@outbox.command()
@click.argument("id", type=outbox_id)
@on_site()
async def show(site: Site, out: Output, id: UUID | str) -> None:
    """Everything about one event: payload, attempts, error, and what people did to it."""
    found = await operations.outbox_event(site.store, site.outboxes, id)
    if out.as_json:
        out.data(found)
        return
    event = found.event
    out.facts(
        {
            "id": event.id,
            "type": event.type,
            "state": event.state,
            "due at": event.deliver_at,
            "attempts": event.attempts,
            "error": event.last_error,
            "next attempt": event.next_attempt_at,
            "published": event.published_at,
            "key": event.key,
            "version": event.version,
            "topic": event.topic,
            "outbox": event.outbox,
            "shard": found.shard,
            "occurred": event.occurred_at,
            "schema version": found.schema_version,
            "content type": found.content_type,
            "tenant": found.tenant,
            "correlation": found.correlation_id,
            "causation": found.causation_id,
            "attributes": found.attributes,
            "payload": found.payload,
        }
    )
    for act in found.history:
        out.say(f"{act.at:%Y-%m-%d %H:%M:%S}Z  {act.action} by {act.actor}  {act.detail}", "dim")
    if event.state in ("FAILED", "RETRY"):
        out.say(f"Try again:  postroad outbox retry {event.id}{site.again}")
        out.say(f'Give it up: postroad outbox skip {event.id} --reason "…"{site.again}')


@outbox.command()
@click.argument("ids", type=outbox_id, nargs=-1)
@click.option("--all-parked", is_flag=True, help="Every parked event.")
@click.option("--reason", default="", help="Kept in the audit table.")
@on_site()
async def retry(site: Site, out: Output, ids: tuple[UUID | str, ...], all_parked: bool, reason: str) -> None:
    """Let the relay try parked events again, from the first attempt.

    \b
    Examples:
      postroad outbox retry 0198c2c5-7f0e-7d52-9f5e-2f9f6f0c7a11
      postroad outbox retry --all-parked --reason "topic created"
    """
    if all_parked == bool(ids):
        raise click.UsageError("Give the ids of events, or --all-parked.")
    chosen = await operations.parked_ids(site.store, site.outboxes) if all_parked else ids
    await operations.retry_events(site.store, site.outboxes, chosen, actor=operations.this_user(), reason=reason)
    if out.as_json:
        out.data({"retried": chosen})
        return
    for id in chosen:
        out.say(f"{id} will be tried again", "green")
    if not chosen:
        out.say("no event is parked")


@outbox.command()
@click.argument("id", type=outbox_id)
@click.option("--reason", required=True, help="Why its consumers may miss it; kept in the audit table.")
@on_site()
async def skip(site: Site, out: Output, id: UUID | str, reason: str) -> None:
    """Never send this event, so that its key can go on. Consumers will miss it.

    The event stays in the outbox, in the state SKIPPED.
    """
    await operations.skip_event(site.store, site.outboxes, id, actor=operations.this_user(), reason=reason)
    if out.as_json:
        out.data({"skipped": id, "reason": reason})
    else:
        out.say(f"{id} is skipped; its key goes on", "green")
