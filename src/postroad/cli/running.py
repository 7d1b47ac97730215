"""dev, run, relay, worker: the long-running commands. They differ in what they run."""

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import click

from postroad import logs
from postroad.app import Postroad
from postroad.cli.application import load
from postroad.cli.banner import banner, show_counters, tell_handled
from postroad.cli.output import Output
from postroad.cli.reach import require_broker, require_database, tell_deserted_groups, tell_unread_topics
from postroad.cli.signals import Stop
from postroad.cli.site import close, completing, require_file
from postroad.cli.trace import span
from postroad.cli.which import needs_app
from postroad.errors import ConfigurationError
from postroad.telemetry.canary import Canary
from postroad.telemetry.exposition import require_library
from postroad.telemetry.http import address_of
from postroad.telemetry.telemetry import Telemetry

F = TypeVar("F", bound=Callable[..., Any])
log = logging.getLogger("postroad")


@dataclass(frozen=True)
class Plan:
    """What this process runs."""

    migrate: bool = False
    relay: bool = True
    groups: Sequence[str] | None = ()
    """None: every group of the application."""
    tells_each: bool = False
    """A line for each event that was handled."""
    http: str | None = None
    """Where metrics and health are served."""
    canary: timedelta | None = None
    """How often one flies, if the command line says so."""


http_option = click.option(
    "--http",
    metavar="[HOST:]PORT",
    envvar="POSTROAD_HTTP",
    help="Serve /metrics, /livez and /readyz there; without a host, to this machine only.",
)


def _running_options(function: F) -> F:
    for option in (
        http_option,
        click.option(
            "--canary",
            type=span,
            envvar="POSTROAD_CANARY",
            help="How often a canary flies on each topic that this service writes and somebody reads; 0s for never. "
            "Default: as the application says.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Say what was started as JSON."),
        click.option("--log-format", type=click.Choice(logs.FORMATS), default="auto", show_default=True),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
            default="info",
            show_default=True,
        ),
        needs_app,
    ):
        function = option(function)
    return function


@click.command()
@click.option("--quiet", "-q", is_flag=True, help="No line for each handled event.")
@_running_options
def dev(
    app: str, quiet: bool, http: str | None, canary: timedelta | None, log_level: str, log_format: str, as_json: bool
) -> None:
    """Everything in one process, for development.

    Creates or updates the tables, the topics and the subscriptions, then runs the relay and the consumers
    of all groups, and prints a line for each event that was handled. Stop it with Ctrl-C.

    \b
    Examples:
      postroad dev shop:road
      DATABASE_URL=postgresql://localhost/shop postroad dev shop:road
    """
    tells_each = not (quiet or as_json or log_format == "json")
    _serve(
        app,
        Plan(migrate=True, groups=None, tells_each=tells_each, http=http, canary=canary),
        log_level,
        log_format,
        as_json,
    )


@click.command()
@_running_options
def run(app: str, http: str | None, canary: timedelta | None, log_level: str, log_format: str, as_json: bool) -> None:
    """The relay and the consumers of all groups, without touching the tables.

    \b
    Example:
      postroad db migrate shop:road && postroad run shop:road
    """
    _serve(app, Plan(groups=None, http=http, canary=canary), log_level, log_format, as_json)


@click.command()
@_running_options
def relay(app: str, http: str | None, canary: timedelta | None, log_level: str, log_format: str, as_json: bool) -> None:
    """Only the relay: carries events from the outbox to the broker.

    Run as many as you like: they share the work, and take over from one that died.
    """
    _serve(app, Plan(http=http, canary=canary), log_level, log_format, as_json)


@click.command()
@click.option("--group", "groups", multiple=True, help="Only this group; may be repeated. Default: all of them.")
@_running_options
def worker(
    app: str,
    groups: tuple[str, ...],
    http: str | None,
    canary: timedelta | None,
    log_level: str,
    log_format: str,
    as_json: bool,
) -> None:
    """Only the consumers and the commands: runs your handlers.

    \b
    Examples:
      postroad worker shop:road
      postroad worker shop:road --group receipts --group mailing
    """
    _serve(app, Plan(relay=False, groups=groups or None, http=http, canary=canary), log_level, log_format, as_json)


def _serve(app: str, plan: Plan, level: str, form: str, as_json: bool) -> None:
    handler = logs.configure(level, form)
    road = load(app)
    out = Output(as_json)
    with completing(f" {app}"):
        code = asyncio.run(_until_stopped(road, app, plan, out))
    handler.flush()
    if code:
        raise click.exceptions.Exit(code)


async def _until_stopped(road: Postroad, app: str, plan: Plan, out: Output) -> int:
    async with Stop() as stop:
        try:
            await _run(road, app, plan, out, stop)
        except asyncio.CancelledError:
            if stop.exit_code is None:
                raise
            return stop.exit_code
        finally:
            await close(road)
    return 0


async def _run(road: Postroad, app: str, plan: Plan, out: Output, stop: Stop) -> None:
    if not plan.migrate:
        require_file(road.store)
    road.canary = canary_of(road.canary, plan)
    async with AsyncExitStack() as serving:
        if plan.http:
            # Before anything can take long: whoever asks is told that it starts, and until the end that it stops.
            require_library()
            host, port = address_of(plan.http)
            port = await serving.enter_async_context(Telemetry(road).serve(host, port))
            log.info("metrics and health at http://%s:%d", host, port)
        await require_database(road.store)
        await require_broker(road.broker, road.topology)
        await _work(road, app, plan, out, stop)
    if not out.as_json:
        out.say("stopped")


def _keep_what_is_loaded() -> None:
    """Most of what is there by now stays to the end. A garbage collector that walks over it again and again takes a
    fifth of a relay's time, or more."""
    gc.collect()
    gc.freeze()


def canary_of(declared: Canary | None, plan: Plan) -> Canary | None:
    """The command line counts for more than the application. Unasked none flies: consumers that are not Postroad's, and
    queues that take certain types only, have to know of it first."""
    if plan.canary is None:
        return declared
    topics = declared.topics if declared else ()
    return Canary(topics, plan.canary.total_seconds()) if plan.canary else None


async def _work(road: Postroad, app: str, plan: Plan, out: Output, stop: Stop) -> None:
    applied = await road.migrate() if plan.migrate else []
    runner = road.runner(relay=plan.relay, groups=plan.groups)
    if not runner.relays and not runner.subscribers and runner.commands is None:
        raise ConfigurationError(
            f"{app} has no handlers, so there is nothing to consume. Add one with @road.on(YourEvent, group=…)."
        )
    if plan.tells_each:
        tell_handled(out, runner)
    _keep_what_is_loaded()
    async with runner.started():
        stop.ready()
        banner(out, road, app, runner, applied)
        await tell_unread_topics(road)
        await tell_deserted_groups(road)
        await show_counters(out, runner, stop.event)
