"""Postroad: the wiring. The only module that knows every stage."""

import os
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Table
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.brokers import connect_broker
from postroad.brokers.base import Broker, Schema, Subscription, Topology
from postroad.clock import Clock, SystemClock
from postroad.codec.upcast import Upcaster, Upcasters
from postroad.commands import CommandBox, Commands, CommandWorker, Executor, Submitted
from postroad.commands.submit import Target, submit
from postroad.drain import drain
from postroad.errors import ConfigurationError, InvalidName, InvalidSetting
from postroad.events import event_type_of, is_declared, known_topics
from postroad.eventstore import DomainEvent, EventStore
from postroad.handlers import Bus, Registry
from postroad.inbox import Inbox, RetryScheduler
from postroad.naming import check_group
from postroad.outbox import Added, Outbox
from postroad.projections import Backfill, Caretaker, Projection, Source
from postroad.relay import Pruner, Relay, RelayOptions
from postroad.runner import Runner
from postroad.settings import Settings, load
from postroad.settings import arguments as settings_arguments
from postroad.settings.load import Source as SettingsSource
from postroad.stores import Store, migrations, open_store
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable
from postroad.subscriber import Subscriber, SubscriberOptions
from postroad.telemetry import Meter
from postroad.telemetry import Source as Gauges
from postroad.telemetry.canary import Canary, CanaryWriter

if TYPE_CHECKING:
    from postroad.consistency import Report
    from postroad.operations.trace import Trace

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

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
        group_options: Mapping[str, SubscriberOptions] | None = None,
        schemas: Sequence[Schema] = (),
        outbox_retention: float = 7 * DAY,
        inbox_retention: float = 15 * DAY,
        canary: Canary | None = None,
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
        self.group_options = dict(group_options or {})
        """Of the groups that do not work like the others."""
        self.schemas = tuple(schemas)
        _check_canary(canary, self.schemas)
        self.registry = Registry()
        self.commands = Commands()
        self.upcasters = Upcasters()
        self.projections: dict[str, Projection] = {}
        self._check_retention(outbox_retention, inbox_retention)
        self.outbox_retention, self.inbox_retention = outbox_retention, inbox_retention
        self.store: Store = open_store(self.database_url, clock=self.clock)
        self.canary = canary
        self.meter: Meter | None = None
        """What relays and subscribers count with, once `Telemetry(road)` asks for it."""
        self.sources: list[Gauges] = []
        """Whoever sets gauges of his own when metrics are asked for."""
        self.runners: set[Runner] = set()
        """Those at work."""

    @classmethod
    def from_settings(cls, settings: "SettingsSource | Settings" = None, **arguments: Any) -> "Postroad":
        """Made from a YAML file, a mapping or, without either, the environment alone.

        An argument of Postroad's own given here counts for more than the environment, and that for more than the file.
        """
        read = settings if isinstance(settings, Settings) else load(settings)
        given = {name: value for name, value in arguments.items() if value is not None}
        if "broker_url" in given:
            read = replace(read, broker_url=given["broker_url"])
        found = settings_arguments(read) | given
        if "source" not in found:
            raise InvalidSetting("source", 'is missing. Say which service this is: source: "catalog".')
        return cls(**found)

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

    @cached_property
    def events(self) -> EventStore:
        """What has happened to each aggregate, for good."""
        return EventStore(self.store, self.outbox, self.upcasters)

    @cached_property
    def executor(self) -> Executor:
        return Executor(
            CommandBox(self.store, randomness=self.randomness),
            self.events,
            self.commands,
            clock=self.clock,
            randomness=self.randomness,
            road=self,
        )

    @cached_property
    def command_worker(self) -> CommandWorker:
        return CommandWorker(self.executor, clock=self.clock)

    # -- what a service writes -----------------------------------------------------------------------

    def add(
        self,
        target: Any,
        event: object,
        *,
        version: int | None = None,
        idempotency_key: str | UUID | None = None,
        correlation_id: str | UUID | None = None,
        delay: float | timedelta | None = None,
        tenant: str | None = None,
        headers: Mapping[str, str] | None = None,
        user_id: str | UUID | None = None,
        also: Sequence[object] = (),
    ) -> Added:
        """Write the event in the target's open transaction. Never commits; raises when no transaction is open.

        `target` is a SQLAlchemy Session, AsyncSession, Connection or AsyncConnection, or a psycopg, asyncpg, PyMySQL
        or sqlite3 connection. Await the result when a plain connection (not a session) is asynchronous.
        `also` is the same fact in other schema versions, for consumers that do not know this one.
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
            also=also,
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

    def projection(
        self,
        name: str,
        table: Table,
        *,
        group: str,
        key: str | None = None,
        version: str = "version",
        deleted: str | None = None,
        source: Source | None = None,
    ) -> Projection:
        """Declare a read model: a table that a consumer group keeps, row by row, and never sets back.

        `key` (if not the primary key), `version` and `deleted` are columns; `source` is where a rebuild gets the
        events from, if not from the broker.
        """
        check_group(group)
        if name in self.projections:
            raise ConfigurationError(f"There are two projections {name!r}. Give one another name.")
        made = Projection(
            name, table, group=group, key=key, version=version, deleted=deleted, source=source, registry=self.registry
        )
        self.projections[name] = made
        return made

    async def backfill(
        self,
        name: str,
        query: Select[Any],
        *,
        key: ColumnElement[Any],
        event: Callable[[Any], object],
        page: int = 200,
        per_second: float | None = None,
    ) -> int:
        """Write a snapshot event for each row of the query, in the order of `key`; how many. What died goes on.

        `event` makes the event of a row: its whole state. The row is locked meanwhile, so that the snapshot's version
        comes before those of all later changes.
        """
        return await Backfill(self, name, query, key=key, event=event, page=page, per_second=per_second).run()

    def upcast(self, type: str, *, from_version: int) -> Callable[[Upcaster], Upcaster]:
        """Register the step from one schema version of an event type to the next."""

        def register(upcaster: Upcaster) -> Upcaster:
            self.upcasters.register(type, from_version, upcaster)
            return upcaster

        return register

    def session(self) -> AsyncSession:
        """`async with road.session() as session, session.begin():` on the service's own database."""
        return self.store.session()

    # -- commands ------------------------------------------------------------------------------------

    def command(self, name: str, *, aggregate: str, key: str | None = None) -> Callable[[C], C]:
        """Declare a class to be a command: `Command.Genesis.Session.Start`, about the aggregate that `key` names."""
        return self.commands.declare(name, aggregate=aggregate, key=key)

    def handles(self, command_class: type, *, state: type | None = None) -> Callable[[F], F]:
        """Register the function that carries out a command and returns its events.

        Beside the command it may ask for `state` (the aggregate's events, folded by the class's `evolve`), `version`,
        `session`, `message` and `road`.
        """
        return self.commands.handles(command_class, state=state)

    async def execute(
        self,
        command: object,
        *,
        session: AsyncSession | None = None,
        command_id: UUID | str | None = None,
        correlation_id: str | UUID | None = None,
        cause: DomainEvent | None = None,
        tenant: str | None = None,
        user_id: str | UUID | None = None,
    ) -> Sequence[DomainEvent]:
        """Carry out a command now; its events, which are committed together with it. The same id, the same answer.

        With `session` it joins that transaction, as it must inside a handler; else it has its own. `cause` is the
        event that it answers, for an answer from outside: what is done inside a handler knows its cause.
        Raises CommandStillProcessing while somebody else carries it out, and whatever its handler raises.
        """
        message = self.executor.envelope(
            command,
            command_id=command_id,
            correlation_id=correlation_id,
            cause=cause.message if cause else None,
            tenant=tenant,
            user_id=user_id,
        )
        if session is not None:
            return await self.executor.join(session, message)
        return await self.executor.execute(message)

    def submit(
        self,
        target: Target,
        command: object,
        *,
        command_id: UUID | str | None = None,
        correlation_id: str | UUID | None = None,
        tenant: str | None = None,
        user_id: str | UUID | None = None,
    ) -> Submitted:
        """Write a command down in the target's open transaction; a worker carries it out after the commit.

        Await the result when the session or connection is asynchronous.
        """
        message = self.executor.envelope(
            command, command_id=command_id, correlation_id=correlation_id, tenant=tenant, user_id=user_id
        )
        return submit(target, self.store, message, self.command_worker.wakeup.set)

    async def trace(self, correlation_id: str | UUID) -> "Trace":
        """Everything that came of one beginning, in order: commands, events, and what became of them here."""
        from postroad.operations.trace import trace  # what people ask stands above this module

        return await trace(self.store, self.outboxes, str(correlation_id))

    async def check(self, *, since: float | timedelta = DAY, grace: float = 300.0) -> "Report":
        """Whether commands, events, outbox and inbox fit together: what was written in the last `since` seconds.

        What is younger than `grace` seconds may still be on its way, and is not missed.
        """
        from postroad.consistency import check  # what people ask stands above this module

        return await check(self, since=since, grace=grace)

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
            Subscription(f"{topic}.{group}", topic, ack_deadline=self._deadline_of(group))
            for group in self.groups
            for topic in self.registry.topics(group)
        )
        topics = {*known_topics(), *(subscription.topic for subscription in subscriptions)}
        return Topology(tuple(sorted(topics)), subscriptions, self.schemas)

    def runner(self, *, relay: bool = True, groups: Sequence[str] | None = None) -> Runner:
        """What one process runs: relays of all outboxes, the consumers of some groups, and the housekeeping.

        Without `groups`, the consumers of all groups and the commands.
        """
        wanted = self.groups if groups is None else tuple(groups)
        for group in wanted:
            if group not in self.groups:
                raise ConfigurationError(
                    f"There is no group {group!r}. Registered: {', '.join(self.groups) or 'none'}."
                )
        for group in self.group_options if wanted else ():
            if group not in self.groups:
                raise ConfigurationError(
                    f"There are settings for group {group!r}, but no handlers. Registered: {', '.join(self.groups)}."
                )
        return Runner(
            self,
            relays=[self._relay(outbox) for outbox in self.outboxes * self.relay_options.relays] if relay else [],
            subscribers=[self._subscriber(group) for group in wanted],
            scheduler=RetryScheduler(self.inbox, self.bus) if wanted else None,
            pruners=[
                *(Pruner(self.store, outbox, retention=self.outbox_retention) for outbox in self.outboxes),
                *([Caretaker(self.store)] if self.projections else []),
            ],
            commands=self.command_worker if groups is None and self.commands.handled else None,
            canary=CanaryWriter(self, self.canary) if relay and self.canary else None,
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
            if "executor" in self.__dict__:
                closing.push_async_callback(self.executor.aclose)
            if "inbox" in self.__dict__:
                closing.push_async_callback(self.inbox.aclose)
            if "outbox" in self.__dict__:
                closing.callback(self.outbox.close)
        # So that the next use begins anew, in a second `asyncio.run` for instance.
        for name in ("broker", "outbox", "inbox", "bus", "events", "executor", "command_worker"):
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
            meter=self.meter,
        )

    def _subscriber(self, group: str) -> Subscriber:
        return Subscriber(
            self.broker,
            self.inbox,
            self.registry,
            self.upcasters,
            group,
            options=self.options_of(group),
            clock=self.clock,
            randomness=self.randomness,
            road=self,
            meter=self.meter,
        )

    def options_of(self, group: str) -> SubscriberOptions:
        return self.group_options.get(group, self.subscriber_options)

    def _deadline_of(self, group: str) -> float:
        return self.options_of(group).ack_deadline or self.broker.features.ack_deadline

    def _check_retention(self, outbox: float, inbox: float) -> None:
        if not outbox > 0:
            raise InvalidSetting("outbox_retention", f"is {outbox:g}: it must be more than 0 seconds.")
        # A message can come again for as long as the outbox or the broker keeps it; the inbox must still know it.
        needed = outbox + Subscription("", "").retention
        if not inbox >= needed:
            raise InvalidSetting(
                "inbox_retention",
                f"is {inbox / DAY:g} days, but a message can return for {needed / DAY:g} "
                "(outbox and broker retention together). Keep inbox rows at least that long.",
            )


def _check_canary(canary: Canary | None, schemas: Sequence[Schema]) -> None:
    for schema in schemas:
        if canary and schema.topic in canary.topics:
            raise InvalidSetting(
                "canary.topics",
                f"names {schema.topic}, where the broker would refuse a canary: it does not fit "
                f"the schema {schema.name!r}. Leave the topic out.",
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
