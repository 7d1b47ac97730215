"""publish: write one event by hand, through the outbox like any other."""

import asyncio
from difflib import get_close_matches

import click

from postroad import events
from postroad.app import Postroad
from postroad.cli.application import load
from postroad.cli.output import Output
from postroad.cli.payload import read_event
from postroad.cli.reach import require_database
from postroad.cli.site import close, completing, require_file
from postroad.cli.which import app_option, chosen
from postroad.errors import ConfigurationError
from postroad.events import EventType
from postroad.operations import is_stored
from postroad.outbox import Added


@click.command()
@click.argument("words", nargs=-1, metavar="[APP] TYPE JSON")
@click.option(
    "--key",
    "--idempotency-key",
    "key",
    help="The same key gives the same event id: repeating writes nothing more.",
)
@click.option("--correlation-id", help="The chain of events it belongs to.")
@click.option("--tenant", help="The tenant it belongs to.")
@click.option("--user-id", help="Who caused it.")
@click.option("--delay", type=float, metavar="SECONDS", help="Deliver it later.")
@app_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output with stable keys.")
def publish(
    words: tuple[str, ...],
    app: str | None,
    key: str | None,
    correlation_id: str | None,
    tenant: str | None,
    user_id: str | None,
    delay: float | None,
    as_json: bool,
) -> None:
    """Write an event of a type your application declares, in a transaction of its own.

    JSON is checked as your code's events are, and a field that the type does not have is refused.
    It may also be @file, or - for standard input.

    \b
    Examples:
      postroad publish shop:road order.placed '{"order_id": "7", "cents": 990}'
      postroad publish shop:road order.placed @order.json --key order-7-placed
    """
    app, type_name, text = _words(words, app)
    road = load(app)
    event = _event(type_name, text)
    options: dict[str, object] = {
        "idempotency_key": key,
        "correlation_id": correlation_id,
        "tenant": tenant,
        "user_id": user_id,
        "delay": delay,
    }
    with completing(f" {app}"):
        added, is_new = asyncio.run(_write(road, event, options))
    out = Output(as_json)
    if as_json:
        out.data({"id": added.id, "type": added.message.type, "topic": added.message.topic, "new": is_new})
    elif is_new:
        out.say(f"{added.message.type} {added.id} is in the outbox", "green")
    else:
        out.say(f"{added.message.type} {added.id} was there already: nothing was written", "yellow")


def _words(words: tuple[str, ...], app: str | None) -> tuple[str, str, str]:
    named = chosen(words[0] if len(words) == 3 else None, app)
    if named is None or len(words) not in (2, 3):
        raise click.UsageError("Write: postroad publish shop:road TYPE JSON. Or name the application with --app.")
    return named, words[-2], words[-1]


def _event(type_name: str, text: str) -> object:
    versions = events.declared(type_name)
    if not versions:
        near = get_close_matches(type_name, events.declared_names(), n=1)
        cure = f"Did you mean {near[0]!r}?" if near else f"Declared: {', '.join(events.declared_names()) or 'none'}."
        raise ConfigurationError(f"The application declares no event type {type_name!r}. {cure}")
    kind: EventType = versions[max(versions)]
    return read_event(text, kind)


async def _write(road: Postroad, event: object, options: dict[str, object]) -> tuple[Added, bool]:
    """What was added, and whether it is new."""
    try:
        require_file(road.store)
        await require_database(road.store)
        async with road.session() as session, session.begin():
            added = road.add(session, event, **options)  # type: ignore[arg-type]
            with road.store.translating():
                # Asked before the session writes it, in the same transaction.
                there = await is_stored(road.store, await session.connection(), road.outboxes, added.id)
            return added, not there
    finally:
        await close(road)
