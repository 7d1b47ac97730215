"""Which database, and which broker, a command is about."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from postroad.app import Postroad
from postroad.brokers import connect_broker
from postroad.brokers.base import Broker
from postroad.cli.application import load
from postroad.cli.output import Output
from postroad.cli.reach import require_database
from postroad.cli.which import HOW, app_argument, app_option, chosen, typed
from postroad.clock import SystemClock
from postroad.errors import ConfigurationError, SchemaMissing
from postroad.redact import redact, remember
from postroad.stores import Store, open_store
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable

F = TypeVar("F", bound=Callable[..., Any])
Command = Callable[..., Awaitable[None]]


@dataclass
class Site:
    store: Store
    outboxes: tuple[OutboxTable, ...]
    again: str
    """What a follow-up command needs to reach the same site: ` --app shop:road`, or nothing."""
    road: Postroad | None = None
    broker_url: str = ""
    _broker: Broker | None = field(default=None, init=False)

    @property
    def broker(self) -> Broker | None:
        """None where only the database is known."""
        if self.road is not None:
            return self.road.broker
        if self._broker is None and self.broker_url:
            self._broker = connect_broker(self.broker_url, clock=SystemClock())
        return self._broker

    def require_broker(self) -> Broker:
        if self.broker is None:
            raise ConfigurationError(
                "This needs the broker. Name the application with --app, or the broker with --broker-url."
            )
        return self.broker

    def require_road(self) -> Postroad:
        if self.road is None:
            raise ConfigurationError(f"This needs the application itself. {HOW}.")
        return self.road

    async def aclose(self) -> None:
        if self.road is not None:
            await close(self.road)
            return
        if self._broker is not None:
            await self._broker.aclose()
        await self.store.aclose()


async def close(road: Postroad) -> None:
    """What was opened, and no more: a broker whose URL is wrong could not even be made."""
    if "broker" in vars(road):
        await road.aclose()
    else:
        await road.store.aclose()


@dataclass(frozen=True)
class Where:
    """The options as given."""

    app: str | None
    database_url: str | None
    broker_url: str | None

    @classmethod
    def given(cls, argument: str | None, app: str | None, database_url: str | None, broker_url: str | None) -> "Where":
        if typed("database_url") and not argument and not typed("app"):
            app = None  # what was typed now counts for more than the environment
        return cls(chosen(argument, app), database_url, broker_url)

    def open(self) -> Site:
        if self.app:
            road = load(self.app)
            again = f" --app {self.app}" if typed("app") or typed("app_argument") else ""
            return Site(road.store, road.outboxes, again, road)
        if self.database_url:
            remember(self.database_url)
            remember(self.broker_url or "")
            store = open_store(self.database_url)
            return Site(store, (DEFAULT_OUTBOX,), self._url_again, broker_url=self.broker_url or "")
        raise ConfigurationError(f"Which application? {HOW}, or name its database with --database-url.")

    @property
    def migrate_again(self) -> str:
        """The same place, for `postroad db migrate`."""
        return f" {self.app}" if self.app else self._url_again

    @property
    def _url_again(self) -> str:
        return f" --database-url {redact(self.database_url or '')}" if typed("database_url") else ""


def require_file(store: Store) -> None:
    """Looking must not create: a mistyped path would leave an empty database file behind."""
    if store.file is not None and not store.file.exists():
        raise SchemaMissing(f"There is no database file {store.file} yet. Run: postroad db migrate")


def on_site(
    *, argument: bool = False, creates: bool = False, asks: bool = True
) -> Callable[[Command], Callable[..., None]]:
    """Turns `async def command(site, out, …)` into what click calls, with the options that name the site.

    `argument`: the application may also stand right behind the command. `creates`: a SQLite file may come
    into being. `asks`: the database must answer before anything else.
    """

    def decorate(command: Command) -> Callable[..., None]:
        @functools.wraps(command)
        def call(
            app: str | None,
            database_url: str | None,
            broker_url: str | None,
            as_json: bool,
            app_argument: str | None = None,
            **values: Any,
        ) -> None:
            where = Where.given(app_argument, app, database_url, broker_url)
            with completing(where.migrate_again):
                asyncio.run(_on(where, creates, asks, lambda site: command(site, Output(as_json), **values)))

        return _options(call, argument)

    return decorate


async def _on(where: Where, creates: bool, asks: bool, act: Callable[[Site], Awaitable[None]]) -> None:
    site = where.open()
    try:
        if not creates:
            require_file(site.store)
        if asks:
            await require_database(site.store)
        await act(site)
    finally:
        await site.aclose()


def _options(function: F, argument: bool) -> F:
    database = click.option(
        "--database-url", envvar="DATABASE_URL", metavar="URL", help="The database, where no APP is given."
    )
    broker = click.option("--broker-url", envvar="BROKER_URL", metavar="URL", help="The broker, where no APP is given.")
    as_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable output with stable keys.")
    function = app_option(database(broker(as_json(function))))
    return app_argument(function) if argument else function


@contextmanager
def completing(again: str) -> Iterator[None]:
    """Completes the command that an error about missing tables recommends."""
    try:
        yield
    except SchemaMissing as error:
        told = str(error).replace("postroad db migrate", f"postroad db migrate{again}")
        raise SchemaMissing(told) from error
