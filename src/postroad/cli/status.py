"""status: the whole picture on one page, each problem with the command that deals with it."""

from collections.abc import Sequence

import click

from postroad import operations
from postroad.cli.output import Output, age, counted, times
from postroad.cli.reach import deserted_groups
from postroad.cli.site import Site, on_site
from postroad.operations import MOST_COUNTED, MOST_DEAD


@click.command()
@on_site(argument=True)
async def status(site: Site, out: Output) -> None:
    """What waits, what runs, what has failed, who is at work.

    Below each problem stands the command that deals with it.

    \b
    Examples:
      postroad status shop:road
      postroad status --json | jq .outboxes
    """
    groups = site.road.groups if site.road else ()
    found = await operations.status(site.store, site.outboxes, site.broker, groups=groups)
    if out.as_json:
        out.data(found)
        return
    out.facts({"database": found.database, "broker": found.broker})
    if found.broker_trouble:
        out.say(f"The broker does not answer: {found.broker_trouble}", "bold red")
    _outboxes(out, found.outboxes, site.again)
    _parked(out, found.parked, site.again)
    _groups(out, found.groups, site.again)
    if site.road and not found.broker_trouble:
        for sentence in await deserted_groups(site.road):
            out.say(sentence, "yellow")
    _failed(out, found, site.again)
    _commands(out, found, site.again)
    _workers(out, found.workers, site.again)
    _leases(out, found.leases, site.again)


def _outboxes(out: Output, outboxes: Sequence[operations.OutboxStatus], again: str) -> None:
    out.heading("Outbox")
    out.table(
        ("outbox", "waiting", "retrying", "parked", "oldest unsent", "scheduled", "next due", "sent in the last hour"),
        [
            (
                one.name,
                f"{one.waiting:,}",
                f"{one.retrying:,}",
                f"{one.parked:,}",
                age(one.oldest_unsent_age),
                f"{one.scheduled:,}",
                one.next_due,
                counted(one.sent_recently, MOST_COUNTED),
            )
            for one in outboxes
        ],
    )
    for one in outboxes:
        if one.paused:
            out.say(f"{one.name} is paused {one.paused}", "yellow")
            out.say(f"  postroad resume --outbox {one.name}{again}")
        elif one.shards_without_owner:
            out.say(f"{one.shards_without_owner} of 256 shards of {one.name} have no relay.", "yellow")


def _parked(out: Output, parked: Sequence[operations.ParkedKey], again: str) -> None:
    if not parked:
        return
    out.heading("Parked keys: they stand still until somebody decides")
    for one in parked:
        behind = f", {one.waiting_behind:,} behind it" if one.waiting_behind else ""
        told = times(one.attempts, "attempt")
        out.say(f"{one.key}  {one.type} {one.event_id}, {told}{behind}", "red")
        out.say(f"  {one.error}")
        out.say(f"  postroad outbox retry {one.event_id}{again}")
        out.say(f'  postroad outbox skip {one.event_id} --reason "…"{again}')


def _groups(out: Output, groups: Sequence[operations.GroupStatus], again: str) -> None:
    if not groups:
        return
    out.heading("Groups")
    out.table(
        ("group", "backlog", "oldest", "scheduled", "running", "waiting", "refused", "failed", "dead letters"),
        [
            (
                one.group,
                "-" if one.backlog is None else f"{one.backlog:,}",
                age(one.oldest_age),
                "-" if one.scheduled is None else f"{one.scheduled:,}",
                f"{one.running:,}",
                f"{one.waiting:,}",
                f"{one.refused:,}",
                f"{one.failed:,}",
                counted(one.dead_letters, MOST_DEAD),
            )
            for one in groups
        ],
    )
    for one in groups:
        if one.paused:
            out.say(f"{one.group} is paused {one.paused}", "yellow")
            out.say(f"  postroad resume {one.group}{again}")


def _failed(out: Output, found: operations.Status, again: str) -> None:
    if found.failed:
        out.heading("Failed or refused: not tried again by themselves")
        for one in found.failed:
            told = times(one.retry_count, "failure")
            out.say(f"{one.group}  {one.type} {one.event_id}, {one.state}, {told}", "red")
            out.say(f"  {one.error or ''}")
            out.say(f"  postroad inbox retry {one.group} {one.event_id}{again}")
    if found.dead_letters:
        out.heading("Dead letters")
        for dead in found.dead_letters:
            told = times(dead.attempts, "attempt")
            out.say(f"{dead.group}  {dead.type} {dead.event_id or dead.id}, {told}", "red")
            out.say(f"  {dead.reason}")
            out.say(f"  postroad dlq retry {dead.id} --topic {dead.topic}{again}")


def _commands(out: Output, found: operations.Status, again: str) -> None:
    counts = found.commands
    if not (counts.pending or counts.processing or counts.failed):
        return
    out.heading("Commands")
    row = [counted(number, MOST_COUNTED) for number in (counts.pending, counts.processing, counts.failed)]
    out.table(("pending", "processing", "failed"), [row])
    for one in found.failed_commands:
        told = times(one.retry_count, "failure")
        by_itself = ", tried again by itself" if one.next_retry_at else ""
        out.say(f"{one.key}  {one.type} {one.id}, {told}{by_itself}", "red")
        out.say(f"  {one.error or ''}")
        if not by_itself:
            out.say(f"  postroad command retry {one.id}{again}")


def _workers(out: Output, workers: Sequence[operations.WorkerStatus], again: str) -> None:
    out.heading("At work")
    present, gone = [one for one in workers if not one.gone], [one for one in workers if one.gone]
    if present:
        _worker_table(out, present, "running")
    else:
        out.say(f"nobody: start a relay and a worker with `postroad run{again}`", "yellow")
    if gone:
        out.heading("Gone without a word")
        _worker_table(out, gone, "ran for")


def _worker_table(out: Output, workers: Sequence[operations.WorkerStatus], ran: str) -> None:
    rows = [(one.kind, one.detail, one.name, age(one.running_for), age(one.silent_for)) for one in workers]
    out.table(("kind", "for", "process", ran, "last seen"), rows)
    for name, draining in {one.name: one.draining for one in workers if one.draining}.items():
        out.say(f"{name} is draining {draining}", "yellow")


def _leases(out: Output, leases: Sequence[operations.Lease], again: str) -> None:
    if not leases:
        return
    out.table(
        ("outbox", "shards", "held by", "for another"),
        [
            (one.outbox, one.shards, one.owner, f"{age(max(0.0, one.seconds_left))}{', but gone' * one.gone}")
            for one in leases
        ],
    )
    for owner in dict.fromkeys(one.owner for one in leases if one.gone and one.seconds_left > 0):
        out.say(f"  postroad release {owner}{again}")
