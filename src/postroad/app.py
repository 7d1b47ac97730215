"""Postroad: the wiring. The only module that knows every stage."""

import os
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from postroad.brokers import connect_broker
from postroad.brokers.base import Broker, Schema, Subscription, Topology
from postroad.clock import Clock, SystemClock
from postroad.codec.upcast import Upcaster, Upcasters
from postroad.drain import drain
from postroad.errors import ConfigurationError, InvalidName
from postroad.events import event_type_of, is_declared, known_topics
from postroad.handlers import Bus, Registry
from postroad.inbox import Inbox, RetryScheduler
from postroad.naming import check_group
from postroad.outbox import Added, Outbox
from postroad.relay import Pruner, Relay, RelayOptions
from postroad.runner import Runner
from postroad.stores import Store, migrations, open_store
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable
from postroad.subscriber import Subscriber, SubscriberOptions

F = TypeVar("F", bound=Callable[..., Any])

DAY = 86_400.0


class Postroad:
    """One service's events: `add` in its transactions, `on` for its handlers, `running` to carry and consume.

    Without URLs it uses DATABASE_URL and BROKER_URL, else a SQLite file and the embedded broker beside it.
    """

    def __init__(
        self,
        source: str,
        database_url: str | None = None,
        broker_url: str | None = None,
        *,
        outboxes: Sequence[OutboxTable] = (DEFAULT_OUTBOX,),
        relay: RelayOptions | None = None,
        subscriber: SubscriberOptions | None = None,
        schemas: Sequence[Schema] = (),
        outbox_retention: float = 7 * DAY,
        inbox_retention: float = 15 * DAY,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
    ) -> None:
        _check_source(source)
        self.source = source
        self.database_url = database_url or os.environ.get("DATABASE_URL") or f"sqlite:///{source}.db"
        self.broker_url = broker_url or os.environ.get("BROKER_URL") or "embedded:postroad-broker.db"
        self.clock: Clock = clock or SystemClock()
        self.randomness = randomness or random.SystemRandom()
        self.outboxes = tuple(outboxes)
        self.relay_options = relay or RelayOptions()
        self.subscriber_options = subscriber or SubscriberOptions()
        self.schemas = tuple(schemas)
        self.registry = Registry()
        self.upcasters = Upcasters()
        self._check_retention(outbox_retention, inbox_retention)
        self.outbox_retention, self.inbox_retention = outbox_retention, inbox_retention
        self.store: Store = open_store(self.database_url, clock=self.clock)

    @cached_property
    def broker(self) -> Broker:
        return connect_broker(self.broker_url, clock=self.clock)

    @cached_property
    def outbox(self) -> Outbox:
        return Outbox(
            self.store,
            self.source,
            self.outboxes,
            max_message_bytes=self.broker.features.max_message_bytes,
            clock=self.clock,
            randomness=self.randomness,
        )

    @cached_property
    def inbox(self) -> Inbox:
        return Inbox(self.store, clock=self.clock, randomness=self.randomness)

    @cached_property
    def bus(self) -> Bus:
        """The handlers of this process, without a broker in between."""
        return Bus(self.inbox, self.registry, self.upcasters, road=self)

    # -- what a service writes -----------------------------------------------------------------------

    def add(
        self,
        target: Any,
        event: object,
        *,
        version: int | None = None,
        idempotency_key: str | None = None,
        correlation_id: str | UUID | None = None,
        delay: float | timedelta | None = None,
        tenant: str | None = None,
        headers: Mapping[str, str] | None = None,
        user_id: str | UUID | None = None,
    ) -> Added:
        """Write the event in the target's open transaction. Never commits; raises when no transaction is open.

        `target` is a SQLAlchemy Session, AsyncSession, Connection or AsyncConnection, or a psycopg, asyncpg, PyMySQL
        or sqlite3 connection. Await the result when a plain connection (not a session) is asynchronous.
        """
        if is_declared(type(target)):
            raise ConfigurationError(
                f"`add` takes the transaction first, then the event: road.add(session, {type(target).__name__}(…))."
            )
        return self.outbox.add(
            target,
            event,
            version=version,
            idempotency_key=idempotency_key,
            correlation_id=correlation_id,
            delay=delay,
            tenant=tenant,
            headers=headers,
            user_id=user_id,
        )

    def on(self, event_class: type, *, group: str, batch: int | None = None, commit_every: int = 1) -> Callable[[F], F]:
        """Register the handler of an event class in a consumer group.

        With `batch` the handler takes a list of events. With `commit_every` it is still called for each event, but
        up to that many share one commit; after a failure they are repeated one by one.
        """
        check_group(group)
        kind = event_type_of(event_class)

        def register(handler: F) -> F:
            self.registry.add(group, kind, handler, batch=batch, commit_every=commit_every)
            return handler

        return register

    def upcast(self, type: str, *, from_version: int) -> Callable[[Upcaster], Upcaster]:
        """Register the step from one schema version of an event type to the next."""

        def register(upcaster: Upcaster) -> Upcaster:
            self.upcasters.register(type, from_version, upcaster)
            return upcaster

        return register

    def session(self) -> AsyncSession:
        """`async with road.session() as session, session.begin():` on the service's own database."""
        return self.store.session()

    # -- running -------------------------------------------------------------------------------------

    async def migrate(self) -> list[migrations.Migration]:
        """Create or update Postroad's tables; what was done, nothing if they are up to date."""
        return await migrations.migrate(self.store, self.outboxes)

    @property
    def groups(self) -> tuple[str, ...]:
        return self.registry.groups

    @property
    def topology(self) -> Topology:
        """Every topic that this service writes or reads, every subscription it reads them through."""
        subscriptions = tuple(
            Subscription(f"{topic}.{group}", topic, ack_deadline=self.subscriber_options.ack_deadline)
            for group in self.groups
            for topic in self.registry.topics(group)
        )
        topics = {*known_topics(), *(subscription.topic for subscription in subscriptions)}
        return Topology(tuple(sorted(topics)), subscriptions, self.schemas)

    def runner(self, *, relay: bool = True, groups: Sequence[str] | None = None) -> Runner:
        """What one process runs: relays of all outboxes, the consumers of some groups, and the housekeeping."""
        wanted = self.groups if groups is None else tuple(groups)
        for group in wanted:
            if group not in self.groups:
                raise ConfigurationError(
                    f"There is no group {group!r}. Registered: {', '.join(self.groups) or 'none'}."
                )
        return Runner(
            self,
            relays=[self._relay(outbox) for outbox in self.outboxes] if relay else [],
            subscribers=[self._subscriber(group) for group in wanted],
            scheduler=RetryScheduler(self.inbox, self.bus) if wanted else None,
            pruners=[Pruner(self.store, outbox, retention=self.outbox_retention) for outbox in self.outboxes],
        )

    @asynccontextmanager
    async def running(self, *, relay: bool = True, groups: Sequence[str] | None = None) -> AsyncIterator["Postroad"]:
        """Relay and consumers in this process, until the block ends; then what is in hand is finished."""
        async with self.runner(relay=relay, groups=groups).started():
            yield self

    async def drain(self, timeout: float = 30.0) -> None:
        """Wait until every event written so far is settled in every group: done, parked or dead.

        Raises TimeoutError, saying what was still on its way.
        """
        await drain(self, timeout)

    async def aclose(self) -> None:
        """Close the database and the broker connections."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self.store.aclose)
            # Only what was used is there to be closed.
            if "broker" in self.__dict__:
                closing.push_async_callback(self.broker.aclose)
            if "inbox" in self.__dict__:
                closing.push_async_callback(self.inbox.aclose)
            if "outbox" in self.__dict__:
                closing.callback(self.outbox.close)
        # So that the next use begins anew, in a second `asyncio.run` for instance.
        for name in ("broker", "outbox", "inbox", "bus"):
            self.__dict__.pop(name, None)

    async def __aenter__(self) -> "Postroad":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _relay(self, outbox: OutboxTable) -> Relay:
        return Relay(
            self.store,
            self.broker,
            outbox,
            options=self.relay_options,
            clock=self.clock,
            randomness=self.randomness,
            wake=self.outbox.wakes[outbox],
        )

    def _subscriber(self, group: str) -> Subscriber:
        return Subscriber(
            self.broker,
            self.inbox,
            self.registry,
            self.upcasters,
            group,
            options=self.subscriber_options,
            clock=self.clock,
            randomness=self.randomness,
            road=self,
        )

    def _check_retention(self, outbox: float, inbox: float) -> None:
        # A message can come again for as long as the outbox or the broker keeps it; the inbox must still know it.
        needed = outbox + Subscription("", "").retention
        if inbox < needed:
            raise ConfigurationError(
                f"inbox_retention is {inbox / DAY:g} days, but a message can return for {needed / DAY:g} "
                "(outbox and broker retention together). Keep inbox rows at least that long."
            )


def _check_source(source: object) -> None:
    if not isinstance(source, str) or ":/" in source:
        # Not quoted: a URL may carry a password.
        told = "a URL" if isinstance(source, str) else f"of type {type(source).__name__}"
        raise ConfigurationError(
            f"The first argument of Postroad is the name of your service, not {told}. "
            'Write Postroad("shop"), or Postroad("shop", database_url, broker_url).'
        )
    try:
        check_group(source)
    except InvalidName as error:
        raise InvalidName("source", source, error.rule) from None
