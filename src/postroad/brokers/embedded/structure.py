"""Topics and subscriptions: what is there, what is missing, and how much is waiting."""

import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches

from postroad.brokers.base import Change, Depth, Subscription, Topology
from postroad.brokers.embedded.database import SQL, moment
from postroad.errors import ConfigurationError, SubscriptionMissing, UnsupportedByBroker


@dataclass(frozen=True, slots=True)
class Found:
    """A subscription with the numbers it and its topic have in the file."""

    id: int
    topic: int
    subscription: Subscription


def subscriptions(connection: sqlite3.Connection, now: int) -> list[Subscription]:
    return [Subscription(*row) for row in connection.execute(SQL["subscriptions"]).fetchall()]


def find(connection: sqlite3.Connection, now: int, *, name: str) -> Found:
    row = connection.execute(SQL["subscription"], {"name": name}).fetchone()
    if row is None:
        names = [s.name for s in subscriptions(connection, now)]
        near = get_close_matches(name, names, n=1)
        raise SubscriptionMissing(name, *near)
    return Found(row[0], row[1], Subscription(*row[2:]))


def depth(connection: sqlite3.Connection, now: int, *, name: str, statement: str = "depth") -> Depth:
    names = {"subscription": find(connection, now, name=name).id, "now": now}
    messages, delayed, oldest = connection.execute(SQL[statement], names).fetchone()
    return Depth(messages, delayed, None if oldest is None else moment(oldest))


def plan(connection: sqlite3.Connection, now: int, *, wanted: Topology) -> list[Change]:
    if wanted.schemas:
        raise UnsupportedByBroker("embedded", "schemas", "Leave them out, or use Pub/Sub.")
    topics = {name for (name,) in connection.execute(SQL["topics"]).fetchall()}
    names = dict.fromkeys([*wanted.topics, *(s.topic for s in wanted.subscriptions)])
    changes = [Change("create", "topic", name) for name in names if name not in topics]
    there = {s.name: s for s in subscriptions(connection, now)}
    for subscription in wanted.subscriptions:
        if subscription.name not in there:
            detail = f"of topic {subscription.topic}"
            changes.append(Change("create", "subscription", subscription.name, detail))
        elif differences := _differences(there[subscription.name], subscription):
            changes.append(Change("update", "subscription", subscription.name, ", ".join(differences)))
    return changes


def apply(connection: sqlite3.Connection, now: int, *, wanted: Topology) -> list[Change]:
    changes = plan(connection, now, wanted=wanted)
    subscription = {s.name: s for s in wanted.subscriptions}
    for change in changes:
        match change.kind, change.action:
            case "topic", _:
                connection.execute(SQL["create_topic"], {"name": change.name})
            case _, "create":
                _create(connection, subscription[change.name])
            case _:
                connection.execute(SQL["update_subscription"], asdict(subscription[change.name]))
    return changes


def _create(connection: sqlite3.Connection, subscription: Subscription) -> None:
    first = not connection.execute(SQL["has_subscription"], {"topic": subscription.topic}).fetchall()
    connection.execute(SQL["create_subscription"], asdict(subscription))
    if first:
        # What was published before anybody listened has been kept for this one.
        found = find(connection, 0, name=subscription.name)
        reopen(connection, "reopen_since", {"subscription": found.id, "topic": found.topic, "since": 0})


def drop(connection: sqlite3.Connection, now: int, *, name: str) -> None:
    names = {"subscription": find(connection, now, name=name).id}
    for table in ("deliveries", "receivers", "dead_letters", "snapshots", "subscription"):
        connection.execute(SQL[f"drop_{table}"], names)


def reopen(connection: sqlite3.Connection, query: str, names: dict[str, object]) -> int:
    """Makes messages unsettled again; the number of those that were settled."""
    # What comes again may stand before what is ready now, so every key's head is found anew.
    connection.execute(SQL["demote_all"], names)
    reopened = connection.execute(SQL[query], names).rowcount
    connection.execute(SQL["promote_all"], names)
    return reopened


def _differences(there: Subscription, wanted: Subscription) -> Sequence[str]:
    if there.topic != wanted.topic:
        raise ConfigurationError(
            f"Subscription {there.name!r} belongs to topic {there.topic!r}, not {wanted.topic!r}. "
            "Give the subscription another name."
        )
    return [
        f"{name} {getattr(there, name):g} → {getattr(wanted, name):g}"
        for name in ("ack_deadline", "retention", "max_attempts")
        if getattr(there, name) != getattr(wanted, name)
    ]
