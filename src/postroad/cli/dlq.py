"""dlq: what the broker holds as dead."""

from collections.abc import Sequence
from contextlib import aclosing

import click

from postroad import operations
from postroad.brokers.base import Broker
from postroad.cli.output import Output, times
from postroad.cli.progress import watching
from postroad.cli.reach import require_database
from postroad.cli.site import Site, on_site
from postroad.errors import StoreUnavailable
from postroad.redact import one_line

_TOPIC = click.option("--topic", default="", help="Only this topic.")


@click.group()
def dlq() -> None:
    """Dead letters: look at them, give them back, throw them away."""


@dlq.command("list")
@_TOPIC
@click.option("--group", default="", help="Only of this group.")
@click.option("--cause", default="", help="Only of this cause, as `postroad failures` tells it.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--after", default="", help="Where the previous page ended, as it says.")
@on_site(argument=True, asks=False)
async def list_(site: Site, out: Output, topic: str, group: str, cause: str, limit: int, after: str) -> None:
    """The dead letters of all topics, oldest first.

    \b
    Example:
      postroad dlq list --topic shop.order.events
    """
    broker = site.require_broker()
    page: list[operations.DeadEvent] = []
    letters = operations.dead_from(broker, await _topics(broker, topic), after, group=group, cause=cause)
    async with aclosing(letters):
        async for one in letters:
            page.append(one)
            if len(page) == limit:
                break
    found = await _with_attempts(site, page)
    if out.as_json:
        out.data(found)
        return
    if not found:
        out.say("no dead letters", "green")
        return
    out.table(
        ("id", "topic", "group", "type", "event", "attempts", "died", "reason"),
        [(d.id, d.topic, d.group, d.type, d.event_id, d.attempts, d.died_at, d.reason) for d in found],
    )
    if len(found) == limit:
        out.say(f"next page: --after {operations.place_of_dead(found[-1])}", "dim")


@dlq.command()
@click.argument("id")
@_TOPIC
@on_site(asks=False)
async def show(site: Site, out: Output, id: str, topic: str) -> None:
    """Everything about a dead letter. ID is its own or its event's."""
    broker = site.require_broker()
    letters = await operations.find_dead(broker, await _topics(broker, topic), [id])
    found = await _with_attempts(site, letters)
    if out.as_json:
        out.data(found)
        return
    for one in found:
        out.facts(
            {
                "id": one.id,
                "topic": one.topic,
                "group": one.group,
                "reason": one.reason,
                "attempts": one.attempts,
                "died": one.died_at,
                "attributes": one.attributes,
                "payload": one.payload,
            }
        )
        out.say(f"Give it back: postroad dlq retry {one.id} --topic {one.topic}{site.again}")


@dlq.command()
@click.argument("ids", nargs=-1)
@click.option(
    "--all", "all_of_them", is_flag=True, help="Every dead letter of this service's groups; the next three narrow it."
)
@_TOPIC
@click.option("--group", default="", help="With --all, only of this group.")
@click.option("--cause", default="", help="With --all, only of this cause, as `postroad failures` tells it.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@click.option("--reason", default="", help="Kept in the audit table.")
@on_site()
async def retry(
    site: Site,
    out: Output,
    ids: tuple[str, ...],
    all_of_them: bool,
    topic: str,
    group: str,
    cause: str,
    dry_run: bool,
    reason: str,
) -> None:
    """Give dead letters back to the groups they came from, after the cause is mended.

    \b
    Examples:
      postroad dlq retry 17
      postroad dlq retry --all --topic shop.order.events
    """
    if all_of_them == bool(ids) or (ids and (group or cause)):
        raise click.UsageError("Give the ids of dead letters, or --all.")
    broker = site.require_broker()
    if ids:
        dead = await operations.find_dead(broker, await _topics(broker, topic), ids)
    else:
        groups = site.road.groups if site.road else ()
        narrowed = {"topic": topic.removesuffix(".dlq"), "group": group, "cause": cause}
        dead = await operations.own_dead(site.store, broker, groups, **narrowed)
    if dry_run:
        _tell_dry_run(out, dead)
        return
    with watching(out, "giving back") as progress:
        revived = await operations.retry_dead(
            site.store, broker, dead, actor=operations.this_user(), reason=reason, progress=progress
        )
    if out.as_json:
        out.data({"retried": [one.id for one in dead], "count": revived})
    else:
        if len(dead) == 1:
            told = f"{dead[0].event_id or dead[0].id} will be handled again by {dead[0].group}"
        else:
            told = f"{revived:,} events will be handled again" if dead else "no dead letters"
        out.say(told, "green")


def _tell_dry_run(out: Output, dead: Sequence[operations.DeadEvent]) -> None:
    if out.as_json:
        out.data({"would_retry": [one.id for one in dead], "count": len(dead)})
        return
    for one in dead:
        out.say(f"{one.id} {one.type} {one.event_id} would be handled again by {one.group}", "yellow")
    out.say(f"{times(len(dead), 'dead letter')} would be given back" if dead else "no dead letters")


@dlq.command()
@click.argument("ids", nargs=-1, required=True)
@_TOPIC
@click.option("--reason", required=True, help="Why nobody will miss it; kept in the audit table.")
@click.option("--yes", is_flag=True, help="Do it. Without this, only what would be done is shown.")
@on_site()
async def discard(site: Site, out: Output, ids: tuple[str, ...], topic: str, reason: str, yes: bool) -> None:
    """Throw dead letters away for good. Shows what it would do; --yes does it."""
    broker = site.require_broker()
    dead = await operations.find_dead(broker, await _topics(broker, topic), ids)
    if yes:
        await operations.discard_dead(site.store, broker, dead, actor=operations.this_user(), reason=reason)
    if out.as_json:
        out.data({"discarded": yes, "dead_letters": dead})
        return
    for one in dead:
        told = "discarded" if yes else "would be discarded"
        out.say(f"{one.id} {one.type} {one.event_id} of {one.group} {told}", "green" if yes else "yellow")
    if not yes:
        out.say("Nothing was done. Add --yes to do it.")


async def _topics(broker: Broker, topic: str) -> Sequence[str]:
    return [topic.removesuffix(".dlq")] if topic else await operations.topics_of(broker)


async def _with_attempts(site: Site, dead: Sequence[operations.DeadEvent]) -> Sequence[operations.DeadEvent]:
    """Dead letters are the broker's: without the database they are shown all the same, with the broker's count."""
    if not dead:
        return dead
    try:
        await require_database(site.store)
        return await operations.with_attempts(site.store, dead)
    except StoreUnavailable as error:
        click.echo(f"attempts are the broker's count, not the inbox's: {one_line(str(error))}", err=True)
        return dead
