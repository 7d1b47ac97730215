"""The service under fire: a payment and its event in one transaction, an effect per consumer group; and purses."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Message, Postroad, RelayOptions, SubscriberOptions, event
from postroad.brokers.base import Flow
from postroad.errors import BrokerUnavailable
from postroad.events import event_type_of
from postroad.retry import Backoff
from proof.chaos.purses import SUBSCRIPTION as PURSES
from proof.chaos.purses import TABLES as PURSE_TABLES
from proof.chaos.purses import VIEW, declare_purses

LEASE: Final = 1.0
LEAST_PUBSUB_DEADLINE: Final = 10.0
GROUPS: Final = ("alpha", "beta")


@dataclass(frozen=True)
class Load:
    """How much is written, and handled, at once."""

    most_payments: int = 12
    """of one transfer"""
    keys: int = 400
    backlog: int = 1_000
    """Effects still to come at which the writers wait: what is left when the faults end must be worked off."""
    alpha: int = 1
    """Events per commit: each by itself, as by default …"""
    beta: int = 25
    """… and a group in which several share one …"""
    batch: bool = False
    """… or are handled together."""


USUAL_LOAD: Final = Load()

# No unique constraint on effects: a double one has to show.
_PAYMENT: Final = (
    "CREATE TABLE payment (id VARCHAR(32) PRIMARY KEY, transfer VARCHAR(32) NOT NULL, account VARCHAR(64) NOT NULL)"
)
_EFFECT: Final = (
    "CREATE TABLE effect ({id}, consumer VARCHAR(64) NOT NULL, payment VARCHAR(32) NOT NULL,"
    " account VARCHAR(64) NOT NULL, version BIGINT NOT NULL)"
)
_IDENTITIES: Final = {
    "postgresql": "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "mysql": "id BIGINT AUTO_INCREMENT PRIMARY KEY",
    "sqlite": "id INTEGER PRIMARY KEY AUTOINCREMENT",
}
_INSERT_PAYMENT: Final = text("INSERT INTO payment (id, transfer, account) VALUES (:id, :transfer, :account)")
_INSERT_EFFECT: Final = text(
    "INSERT INTO effect (consumer, payment, account, version) VALUES (:consumer, :payment, :account, :version)"
)


@event("account.credited", topic="bank.account.events", aggregate="account", key="account")
class Credited(msgspec.Struct, frozen=True):
    account: str
    payment: str


SUBSCRIPTIONS: Final = (*(f"{event_type_of(Credited).topic}.{group}" for group in GROUPS), PURSES)
_KNOCKS: Final = 30
_PATIENCE: Final = Backoff(attempts=40, base=0.5, ceiling=1.0)
"""Of the read model: where a broken stream costs the order, a change may come long before what it builds upon."""


def ack_deadline(broker_url: str, lease: float = LEASE) -> float:
    """A killed worker keeps what it held from the others until then: an early one, where that is allowed."""
    return LEAST_PUBSUB_DEADLINE if broker_url.startswith("pubsub:") else 1.5 * lease


def make_road(database_url: str, broker_url: str, load: Load = USUAL_LOAD, lease: float = LEASE) -> Postroad:
    # Few messages at a time, for the same reason as the early deadline.
    subscriber = SubscriberOptions(
        ack_deadline=ack_deadline(broker_url, lease), lock_ttl=lease, flow=Flow(messages=100)
    )
    road = Postroad(
        "bank",
        database_url,
        broker_url,
        relay=RelayOptions(lease=lease, batch=200),
        subscriber=subscriber,
        group_options={VIEW: replace(subscriber, backoff=_PATIENCE)},
    )
    declare_purses(road)
    road.executor.box.lease = lease
    # Where only one can write at a time, commits would take most of the time there is: a few events at once, then.
    per_commit = {"alpha": max(5, load.alpha) if road.store.one_writer else load.alpha, "beta": load.beta}
    for group in GROUPS:
        if load.batch and group == "beta":
            road.on(Credited, group=group, batch=load.beta)(_crediting_many(group))
        else:
            road.on(Credited, group=group, commit_every=per_commit[group])(_crediting(group))
    return road


async def found(road: Postroad) -> None:
    """All tables, topics and subscriptions."""
    await road.migrate()
    async with road.store.transaction() as connection:
        await connection.execute(text(_PAYMENT))
        await connection.execute(text(_EFFECT.format(id=_IDENTITIES[road.store.dialect])))
        for table in PURSE_TABLES:
            await connection.execute(table)
    for knocks in range(_KNOCKS, 0, -1):
        try:
            await road.runner().prepare()
            break
        except BrokerUnavailable:
            # On a busy machine a server that has just been started does not answer everybody at once.
            if knocks == 1:
                raise
            await asyncio.sleep(1.0)


async def pay(road: Postroad, session: AsyncSession, transfer: str, payments: dict[str, str]) -> None:
    """Payments (id → account) and their events, written but not committed."""
    rows = [{"id": id, "transfer": transfer, "account": account} for id, account in payments.items()]
    await session.execute(_INSERT_PAYMENT, rows)
    for id, account in payments.items():
        road.add(session, Credited(account=account, payment=id))
    await session.flush()


def _crediting(group: str) -> Callable[[Credited, AsyncSession, Message], Awaitable[None]]:
    async def credit(event: Credited, session: AsyncSession, message: Message) -> None:
        await session.execute(_INSERT_EFFECT, _effect(group, event, message))

    return credit


def _crediting_many(group: str) -> Callable[[list[Credited], AsyncSession, list[Message]], Awaitable[None]]:
    async def credit(events: list[Credited], session: AsyncSession, messages: list[Message]) -> None:
        rows = [_effect(group, event, message) for event, message in zip(events, messages, strict=True)]
        await session.execute(_INSERT_EFFECT, rows)

    return credit


def _effect(group: str, event: Credited, message: Message) -> dict[str, object]:
    return {"consumer": group, "payment": event.payment, "account": event.account, "version": message.version}
