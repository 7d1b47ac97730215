"""Stage 3 of 7: the wire. A batch goes in, outcomes come out; deliveries come in, a verdict each.

A broker is one module of this package. It defines `connect(url, *, clock)` and is found by its URL's scheme.
"""

import pkgutil
import re
from difflib import get_close_matches
from importlib import import_module
from typing import Final

from postroad.brokers.base import Broker
from postroad.clock import Clock
from postroad.errors import ConfigurationError, MissingExtra
from postroad.redact import remember

_ALIASES: Final = {
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "rabbitmqs": "rabbitmq",
    "kafkas": "kafka",
    "gcp-pubsub": "pubsub",
}
_NOT_ADAPTERS: Final = frozenset({"base"})


def available_brokers() -> tuple[str, ...]:
    """The adapters in this folder. A new one is found by being there."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if name not in _NOT_ADAPTERS and not name.startswith("_")))


def connect_broker(url: str, *, clock: Clock) -> Broker:
    """The broker at `url`, such as `embedded:road.db` or `amqp://host/`. Nothing is contacted yet."""
    if not isinstance(url, str):
        raise ConfigurationError(
            f"The broker URL is of type {type(url).__name__}, not text. Write it as in embedded:road.db."
        )
    remember(url)
    scheme, colon, _ = url.partition(":")
    adapters = available_brokers()
    name = _ALIASES.get(scheme, scheme)
    if not colon or name not in adapters:
        raise ConfigurationError(_unknown(scheme if colon else "", adapters))
    try:
        broker: Broker = import_module(f"{__name__}.{name}").connect(url, clock=clock)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "postroad":
            raise
        raise MissingExtra(f"The library for {scheme}: ({error.name})", name) from None
    return broker


def _unknown(scheme: str, adapters: tuple[str, ...]) -> str:
    # The URL itself stays out of the text: it may carry a password.
    known = sorted({*adapters, *(alias for alias, name in _ALIASES.items() if name in adapters)})
    readable = re.fullmatch("[A-Za-z][A-Za-z0-9+-]*", scheme)
    cause = f"No broker has the URL scheme {scheme!r}." if readable else "The broker URL has no scheme."
    near = get_close_matches(scheme, known, n=1)
    cure = f"Did you mean {near[0]}:?" if near else "Begin it with a known one."
    return f"{cause} {cure} Known: {', '.join(known)}."
