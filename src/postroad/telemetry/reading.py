"""The gauges, read when they are asked for. Nothing here costs more because a table has grown."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from postroad.brokers.base import Watched, depth_as_told
from postroad.errors import PostroadError, StoreError, StoreUnavailable
from postroad.gates import GROUP, OUTBOX
from postroad.retry import describe
from postroad.telemetry.canary import watched_topics
from postroad.telemetry.commands import read_commands
from postroad.telemetry.gaps import read_gaps
from postroad.telemetry.meter import Meter

if TYPE_CHECKING:
    from postroad.app import Postroad
    from postroad.relay import Relay
    from postroad.runner import Runner
    from postroad.stores.tables import OutboxTable
    from postroad.subscriber import Subscriber

MOST_COUNTED: Final = 10_000
PATIENCE: Final = 5.0
_FIRST: Final = 1_000
"""Of the oldest that wait; those that are scheduled may stand before all others."""
_ALIVE: Final = 15.0
_HOUR: Final = 3_600.0
_MOST_DEAD: Final = 100


async def read_gauges(road: "Postroad") -> tuple[Meter, Sequence[str]]:
    """All of them, and what stood in the way. What cannot be read has no value: an old one would be a lie."""
    gauges = Meter()
    relays = [relay for runner in road.runners for relay in runner.relays]
    subscribers = [subscriber for runner in road.runners for subscriber in runner.subscribers]
    _read_process(road, gauges, relays, subscribers)
    database = await _tried(lambda: _read_database(road, gauges, bool(relays), subscribers))
    broker = await _tried(lambda: _read_broker(road, gauges, subscribers))
    gauges.set("postroad_database_up", not database)
    gauges.set("postroad_broker_up", not broker)
    others = [await _tried(lambda source=source: source(gauges)) for source in road.sources]  # type: ignore[misc]
    return gauges, [trouble for trouble in (database, broker, *others) if trouble]


async def _tried(read: Callable[[], Awaitable[None]]) -> str:
    """What went wrong; nothing, if nothing did."""
    try:
        async with asyncio.timeout(PATIENCE):
            await read()
    except TimeoutError:
        return f"no answer within {PATIENCE:g} s"
    except PostroadError as error:
        return describe(error)
    return ""


# -- this process --------------------------------------------------------------------------------------


def _read_process(
    road: "Postroad", gauges: Meter, relays: "Sequence[Relay]", subscribers: "Sequence[Subscriber]"
) -> None:
    for relay in relays:
        gauges.add("relay_shards_owned", len(relay.leases.epochs), relay.outbox)
        gauges.add("relay_outages_total", relay.statistics.outages, relay.outbox)
    out = {topic for relay in relays for topic in relay.breaker.open_destinations}
    for topic in {*road.topology.topics, *out} if relays else ():
        gauges.set("relay_breaker_open", topic in out, topic)
    # From the start, at 0: of a counter that appears with its first failures, Prometheus sees no rise.
    for topic in road.topology.topics if relays else ():
        gauges.add("outbox_publish_error_total", 0, topic)
    for subscriber in subscribers:
        _read_subscriber(gauges, subscriber)
        for event_type in road.registry.types(subscriber.group):
            gauges.add("projection_process_error_total", 0, subscriber.group, event_type)
        _read_canaries(road, gauges, subscriber)


def _read_subscriber(gauges: Meter, subscriber: "Subscriber") -> None:
    group, counts, waiting = subscriber.group, subscriber.statistics, subscriber.lanes.waiting
    for verdict, count in (("ack", counts.acked), ("nack", counts.given_back), ("dead", counts.dead)):
        gauges.add("subscription_settled_total", count, group, verdict)
    gauges.add("inbox_duplicates_total", counts.duplicates, group)
    gauges.set("subscriber_lane_depth", sum(map(len, waiting)), group)
    gauges.set("handler_running_seconds", subscriber.running_for, group)
    gauges.set("projection_version_lag", subscriber.lag.take(waiting), group)
    gauges.set("consume_retry_limit", subscriber.options.backoff.attempts, group)


def _read_canaries(road: "Postroad", gauges: Meter, subscriber: "Subscriber") -> None:
    written = dict(subscriber.canaries)
    for topic in road.canary.topics if road.canary else ():
        # One of our own that never came is as bad as one that comes no more.
        if topic in subscriber.topics:
            written.setdefault((topic, road.source), subscriber.began_at)
    for (topic, source), moment in written.items():
        gauges.set("canary_age_seconds", _age(road, moment), topic, subscriber.group, source)


# -- the database --------------------------------------------------------------------------------------


async def _read_database(road: "Postroad", gauges: Meter, relays: bool, subscribers: "Sequence[Subscriber]") -> None:
    await _read_workers(road, gauges, relays)
    await _read_pauses(road, gauges)
    if relays:
        for outbox in road.outboxes:
            await _read_outbox(road, gauges, outbox)
        await _read_snapshots(road, gauges)
        await read_gaps(road, gauges, MOST_COUNTED)
    await _read_missing_canaries(road, gauges, subscribers)
    for group in {subscriber.group for subscriber in subscribers}:
        await _read_inbox(road, gauges, group)
    await read_commands(road, gauges, MOST_COUNTED)


async def _read_missing_canaries(road: "Postroad", gauges: Meter, subscribers: "Sequence[Subscriber]") -> None:
    """Where canaries fly by themselves, only the outbox knows on which topics one should have come."""
    if road.canary is None or road.canary.topics:
        return
    flown = {topic for table in road.outboxes if not table.adopted for topic in await watched_topics(road, table)}
    for subscriber in subscribers:
        for topic in flown.intersection(subscriber.topics):
            route = topic, subscriber.group, road.source
            if gauges.value("canary_age_seconds", *route) is None:
                gauges.set("canary_age_seconds", _age(road, subscriber.began_at), *route)


async def _read_workers(road: "Postroad", gauges: Meter, relays: bool) -> None:
    for outbox in road.outboxes:
        if relays or await _needs_relay(road, outbox):
            gauges.set("relays_alive", 0, outbox.name)
    for group in road.groups:
        gauges.set("workers_alive", 0, group)
    for row in (await road.store.read("workers_alive", ttl=_ALIVE)).rows:
        if row.kind == "relay":
            gauges.add("relays_alive", 1, row.detail)
        elif row.kind == "worker":
            gauges.add("workers_alive", 1, row.detail)


async def _needs_relay(road: "Postroad", outbox: "OutboxTable") -> bool:
    """Whether one has ever been at work there, or something waits for one. A service that only reads has none."""
    store = road.store
    if (await store.read("relay_ever", outbox_name=outbox.name)).rows:
        return True
    return bool((await store.read("outbox_unsent_count", outbox, now=store.clock.now(), most=1)).rows)


async def _read_pauses(road: "Postroad", gauges: Meter) -> None:
    still = {(row.kind, row.name) for row in (await road.store.read("pauses")).rows}
    for outbox in road.outboxes:
        gauges.set("outbox_paused", (OUTBOX, outbox.name) in still, outbox.name)
    for group in road.groups:
        gauges.set("group_paused", (GROUP, group) in still, group)


async def _read_outbox(road: "Postroad", gauges: Meter, outbox: "OutboxTable") -> None:
    store, name = road.store, outbox.name
    new = (await store.read("outbox_due_count", outbox, now=store.clock.now(), most=MOST_COUNTED)).rows
    held = (await store.read("outbox_held_count", outbox, most=MOST_COUNTED)).rows
    events = {row.state: int(row.events) for row in held}
    pending, parked = min(int(new[0].events) + events.get("RETRY", 0), MOST_COUNTED), events.get("FAILED", 0)
    unsent = [*new, *held]
    if not outbox.append_only:
        unsent += (await store.read("outbox_oldest", outbox, now=store.clock.now(), most=_FIRST)).rows
    due = [store.time_out(row.oldest) for row in unsent]
    oldest = min((moment for moment in due if moment), default=None)
    gauges.set("outbox_pending_count", pending, name)
    gauges.set("outbox_max_delivery_attempts", parked, name)
    gauges.set("outbox_oldest_unsent_age", _age(road, oldest), name)
    gauges.add("pending_outbox", pending)
    gauges.add("failed_outbox", parked)
    free = (await store.read("shards_free", outbox_name=name)).rows[0].shards
    gauges.set("outbox_shards_without_owner", int(free), name)
    sent = (await store.read("outbox_sent_count", outbox, seconds=_HOUR, most=MOST_COUNTED)).rows[0].events
    gauges.add("events_per_hour", int(sent))


async def _read_snapshots(road: "Postroad", gauges: Meter) -> None:
    if road.store.one_writer:
        return
    try:
        rows = (await road.store.read("snapshot_holders", seconds=0.0)).rows
    except StoreUnavailable:
        raise
    except StoreError:
        return  # not for this user: the doctor names the right that it lacks
    ages = [float(row.seconds) for row in rows if row.seconds is not None]  # a replication slot has none
    gauges.set("oldest_snapshot_age", max(ages, default=0.0))


async def _read_inbox(road: "Postroad", gauges: Meter, group: str) -> None:
    rows = (await road.store.read("inbox_failed_count", group=group, most=MOST_COUNTED)).rows
    found = {row.state: row for row in rows}
    for state in ("waiting", "failed"):
        gauges.set("consume_failed_count", int(found[state].records) if state in found else 0, group, state)
    highest = max((int(row.highest_retry_count) for row in rows), default=0)
    gauges.set("consume_max_retry_count", highest, group)


# -- the broker ----------------------------------------------------------------------------------------


async def _read_broker(road: "Postroad", gauges: Meter, subscribers: "Sequence[Subscriber]") -> None:
    for subscriber in subscribers:
        for topic in subscriber.topics:
            await _read_subscription(road, gauges, f"{topic}.{subscriber.group}")
    # At once: to find nothing takes Pub/Sub two seconds for each topic.
    topics = {topic for subscriber in subscribers for topic in subscriber.topics}
    await asyncio.gather(*(_read_dead_letters(road, gauges, topic) for topic in topics))
    if not subscribers:
        await road.broker.plan(road.topology)


async def _read_dead_letters(road: "Postroad", gauges: Meter, topic: str) -> None:
    dead = await road.broker.dead_letter_count(topic) if isinstance(road.broker, Watched) else None
    if dead is None:
        dead = len(await road.broker.dead_letters(topic, limit=_MOST_DEAD))
    gauges.set("dlq_message_count", dead, topic)


async def _read_subscription(road: "Postroad", gauges: Meter, subscription: str) -> None:
    depth = await depth_as_told(road.broker, subscription)
    if depth is not None:  # else it is up, and counts nothing
        gauges.set("subscription_num_undelivered_messages", depth.messages, subscription)
        if depth.oldest or depth.messages <= depth.delayed:  # else something waits, and nobody tells since when
            gauges.set("subscription_oldest_unacked_message_age", _age(road, depth.oldest), subscription)
    if isinstance(road.broker, Watched):
        for kind, rate in (await road.broker.rates(subscription)).items():
            gauges.set("subscription_message_rate", rate, subscription, kind)


def _age(road: "Postroad", since: datetime | None) -> float:
    return 0.0 if since is None else max(0.0, (road.clock.now() - since).total_seconds())


def stuck(runners: "Sequence[Runner]", now: float) -> list[str]:
    """Relays that no longer look, although nothing that they wait for can take so long."""
    relays = [relay for runner in runners for relay in runner.relays]
    return [
        f"the relay of {relay.outbox} has not looked for {now - relay.looked_at:.0f} s"
        for relay in relays
        if relay.running and now - relay.looked_at > 3 * relay.options.publish_timeout
    ]
