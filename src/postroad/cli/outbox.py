"""outbox: the events on their way out."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import click

from postroad import operations
from postroad.cli.ids import event_id, outbox_id
from postroad.cli.output import Output
from postroad.cli.payload import read_text
from postroad.cli.progress import watching
from postroad.cli.site import Site, on_site

TIME: Final = click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"])


@click.group()
def outbox() -> None:
    """The events on their way out: look at them, free a parked key."""


_PARKED: Final = "PARKED"
"""What `status` calls the state FAILED."""


@outbox.command("list")
@click.option("--state", type=click.Choice((*operations.STATES, _PARKED), case_sensitive=False), default=None)
@click.option("--type", "type_", default="", help="Only this event type.")
@click.option("--key", default="", help="Only this aggregate: its id, or type and id as in order/42.")
@click.option("--text", default="", help="Part of the type, the aggregate's id, the error or the payload.")
@click.option("--since", type=TIME, help="Moved at this time (UTC) or later.")
@click.option("--until", type=TIME, help="Moved before this time (UTC).")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--after", type=outbox_id, help="The last id of the previous page.")
@on_site(argument=True)
async def list_(
    site: Site,
    out: Output,
    state: str | None,
    type_: str,
    key: str,
    text: str,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    after: UUID | str | None,
) -> None:
    """The events, newest first: by when they were sent or skipped, the others by when they happened.

    \b
    Examples:
      postroad outbox list --state parked
      postroad outbox list --key order/42 --json
    """
    state = "FAILED" if state == _PARKED else state
    wanted = operations.Filter(state or "", type_, key, text, utc(since), utc(until))
    place = await operations.place_of_id(site.store, site.outboxes, after) if after is not None else None
    found = await operations.matching(site.store, site.outboxes, wanted, limit=limit, after=place)
    tell_events(out, found)
    if len(found) == limit and not out.as_json:
        out.say(f"next page: --after {found[-1].id}", "dim")


@outbox.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@on_site(argument=True)
async def scheduled(site: Site, out: Output, limit: int) -> None:
    """Delayed events whose time is still to come, the next one first, and where they wait for it."""
    found = await operations.scheduled(site.store, site.outboxes, limit=limit)
    if out.as_json or not found:
        tell_events(out, found)
        return
    out.table(
        ("id", "due at", "waits in", "type", "key", "version", "occurred", "error"),
        [
            (
                one.id,
                one.deliver_at,
                operations.waits_in(one),
                one.type,
                one.key,
                one.version,
                one.occurred_at,
                one.last_error or "",
            )
            for one in found
        ],
    )


@outbox.command()
@click.argument("key")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@on_site()
async def history(site: Site, out: Output, key: str, limit: int) -> None:
    """The events of one aggregate, the newest first. KEY is its type and id, as in order/42."""
    aggregate_type, slash, aggregate_id = key.partition("/")
    if not slash:
        raise click.UsageError("KEY is an aggregate's type and id, as in order/42.")
    found = await operations.aggregate_history(site.store, site.outboxes, aggregate_type, aggregate_id, limit=limit)
    tell_events(out, found)


def utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment else None


def tell_events(out: Output, found: Sequence[operations.OutboxEvent]) -> None:
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


@outbox.command()
@click.argument("id", type=outbox_id)
@on_site()
async def show(site: Site, out: Output, id: UUID | str) -> None:
    """Everything about one event: payload, attempts, error, what each group made of it, and what people did to it."""
    found = await operations.outbox_event(site.store, site.outboxes, id)
    groups = await operations.records_of(site.store, found.event.id)
    if out.as_json:
        out.data({field.name: getattr(found, field.name) for field in fields(found)} | {"groups": groups})
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
    if groups:
        out.table(
            ("group", "state", "failures", "received", "settled", "next try", "error"),
            [
                (
                    one.group,
                    one.state,
                    one.retry_count,
                    one.received_at,
                    one.processed_at,
                    one.next_retry_at,
                    one.error or "",
                )
                for one in groups
            ],
        )
    else:
        out.say("no group has it in this database", "dim")
    for act in found.history:
        out.say(f"{act.at:%Y-%m-%d %H:%M:%S}Z  {act.action} by {act.actor}  {act.detail}", "dim")
    if event.state in ("FAILED", "RETRY"):
        out.say(f"Try again:  postroad outbox retry {event.id}{site.again}")
        out.say(f'Give it up: postroad outbox skip {event.id} --reason "…"{site.again}')


@outbox.command()
@click.argument("ids", type=outbox_id, nargs=-1)
@click.option("--all-parked", is_flag=True, help="Every parked event; the next five narrow it.")
@click.option("--type", "type_", default="", help="With --all-parked, only this event type.")
@click.option("--key", default="", help="With --all-parked, only this aggregate.")
@click.option("--text", default="", help="With --all-parked, only with this text, in the error for instance.")
@click.option("--since", type=TIME, help="With --all-parked, only written at this time (UTC) or later.")
@click.option("--until", type=TIME, help="With --all-parked, only written before this time (UTC).")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@click.option("--reason", default="", help="Kept in the audit table.")
@on_site()
async def retry(
    site: Site,
    out: Output,
    ids: tuple[UUID | str, ...],
    all_parked: bool,
    type_: str,
    key: str,
    text: str,
    since: datetime | None,
    until: datetime | None,
    dry_run: bool,
    reason: str,
) -> None:
    """Let the relay try parked events again, from the first attempt.

    \b
    Examples:
      postroad outbox retry 0198c2c5-7f0e-7d52-9f5e-2f9f6f0c7a11
      postroad outbox retry --all-parked --reason "topic created"
    """
    if all_parked == bool(ids) or (ids and (type_ or key or text or since or until)):
        raise click.UsageError("Give the ids of events, or --all-parked.")
    wanted = operations.Filter("FAILED", type_, key, text, utc(since), utc(until))
    chosen = await operations.retryable_ids(site.store, site.outboxes, wanted) if all_parked else ids
    if not dry_run:
        with watching(out, "freeing") as progress:
            await operations.retry_events(
                site.store, site.outboxes, chosen, actor=operations.this_user(), reason=reason, progress=progress
            )
    if out.as_json:
        out.data({"would_retry" if dry_run else "retried": chosen})
        return
    for id in chosen:
        out.say(f"{id} would be tried again" if dry_run else f"{id} will be tried again", "green")
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


@outbox.command()
@click.argument("id", type=event_id)
@click.argument("payload", metavar="JSON")
@click.option("--reason", required=True, help="What was wrong with the event; kept in the audit table.")
@on_site()
async def resend(site: Site, out: Output, id: UUID, payload: str, reason: str) -> None:
    """Write an edited copy of an event: a new id, caused by the old one, last in its aggregate's order.

    JSON may be @file, or - for standard input.
    """
    road, text = site.require_road(), read_text(payload)
    new = await operations.resend_event(road, id, text, actor=operations.this_user(), reason=reason)
    if out.as_json:
        out.data({"resent": id, "as": new})
    else:
        out.say(f"{new} is in the outbox, caused by {id}", "green")


@outbox.command("run-now")
@click.argument("id", type=event_id)
@click.option("--reason", default="", help="Kept in the audit table.")
@on_site()
async def run_now(site: Site, out: Output, id: UUID, reason: str) -> None:
    """Deliver a delayed event at once. A copy that the broker holds does nothing when its time comes."""
    await operations.run_now(site.require_road(), id, actor=operations.this_user(), reason=reason)
    if out.as_json:
        out.data({"run": id})
    else:
        out.say(f"{id} is on its way", "green")
