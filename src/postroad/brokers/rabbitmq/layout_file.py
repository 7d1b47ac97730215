"""A layout whose names are given from outside, read from a TOML file (`?layout=orders.toml`):

delays = [1, 5, 30, 120, 600]                    # the steps in which a message can wait, in seconds

[topics."shop.order.events"]
exchange = "order.events.exchange"
dead_letter_queue = "order.dlq.queue"
dead_letter_key = "order.dlq"

[subscriptions."shop.order.events.inventory"]
queue = "inventory.update.queue"
keys = ["order.created"]
single_active_consumer = false                   # where others declare the queue too, and without this

[delayed.ORDER_TIMEOUT]                          # an event type whose delayed messages have a queue of their own
topic = "shop.order.events"
queue = "order.timeout.delay.queue"
key = "order.timeout.delay"
seconds = 900
"""

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from postroad.brokers.rabbitmq.layout import FixedDelay, Layout, SubscriptionNames, TopicNames
from postroad.errors import ConfigurationError

T = TypeVar("T", TopicNames, SubscriptionNames, FixedDelay)

_TABLES: Final = ("topics", "subscriptions", "delayed")
_STEPS: Final = "delays"


def read_layout(path: str, *, queue_type: str, single_active_consumer: bool) -> Layout:
    if not path:
        return Layout(queue_type, single_active_consumer)
    try:
        told = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"The broker's layout {path} cannot be read: {error}.") from None
    _known(path, "", told, (*_TABLES, _STEPS))
    return Layout(
        queue_type,
        single_active_consumer,
        _steps(path, told[_STEPS]) if _STEPS in told else Layout().steps,
        _table(path, told, "topics", TopicNames),
        _table(path, told, "subscriptions", SubscriptionNames),
        _table(path, told, "delayed", FixedDelay),
    )


def _table(path: str, told: Mapping[str, Any], name: str, kind: type[T]) -> dict[str, T]:
    said = told.get(name, {})
    if not isinstance(said, dict):
        raise ConfigurationError(f"The broker's layout {path}: {name} must be a table.")
    return {one: _read(path, f"{name}.{one}", kind, values) for one, values in said.items()}


def _read(path: str, place: str, kind: type[T], said: Any) -> T:
    if not isinstance(said, dict):
        raise ConfigurationError(f"The broker's layout {path}: {place} must be a table.")
    _known(path, f"{place}.", said, tuple(one.name for one in fields(kind)))
    plain = kind()
    values: dict[str, Any] = {}
    for name, value in said.items():
        wanted = getattr(plain, name)
        values[name] = tuple(value) if isinstance(value, list) else value
        if not _like(value, wanted):
            like = {tuple: "a list of texts", float: "a number above 0"}.get(type(wanted), f"a {type(wanted).__name__}")
            raise ConfigurationError(f"The broker's layout {path}: {place}.{name} is {value!r}. It must be {like}.")
    return kind(**values)


def _steps(path: str, said: Any) -> tuple[float, ...]:
    good = isinstance(said, list) and said and all(_like(one, 1.0) for one in said)
    if not good or sorted(set(said)) != said:
        raise ConfigurationError(f"The broker's layout {path}: {_STEPS} must be numbers above 0 that grow.")
    return tuple(said)


def _like(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
    if isinstance(wanted, float):
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
    return isinstance(value, type(wanted))


def _known(path: str, place: str, said: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in said:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            cure = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
            raise ConfigurationError(f"The broker's layout {path} has an unknown key {place}{name}. {cure}")
