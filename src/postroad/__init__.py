"""Postroad carries events between services, reliably.

The journey of an event, and of this package:

1. `outbox`       it is written in your transaction, beside your rows
2. `relay`        it is carried to the broker, in order per aggregate
3. `brokers`      the wire: embedded, RabbitMQ, Pub/Sub, Kafka
4. `subscriber`   it is received, key by key
5. `inbox`        it is let through once
6. `handlers`     your code runs; its effect and the inbox row commit together
7. `projections`  read models grow from it

At least once on the wire, exactly once in effect in the handler's database. Each stage can be used alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Imported when first asked for: the pytest plugin lives in this package, and a test run that does not use it
# must not wait for all of it.
if TYPE_CHECKING:
    from postroad.app import Postroad
    from postroad.errors import BusinessError, PoisonError, PostroadError, TransientError
    from postroad.events import event
    from postroad.message import Message
    from postroad.relay import RelayOptions
    from postroad.retry import Backoff
    from postroad.stores.tables import OutboxTable
    from postroad.subscriber import SubscriberOptions
    from postroad.telemetry.canary import Canary

__all__ = [
    "Backoff",
    "BusinessError",
    "Canary",
    "Message",
    "OutboxTable",
    "PoisonError",
    "Postroad",
    "PostroadError",
    "RelayOptions",
    "SubscriberOptions",
    "TransientError",
    "event",
]

_HOMES = {
    "app": ("Postroad",),
    "errors": ("BusinessError", "PoisonError", "PostroadError", "TransientError"),
    "events": ("event",),
    "message": ("Message",),
    "relay": ("RelayOptions",),
    "retry": ("Backoff",),
    "stores.tables": ("OutboxTable",),
    "subscriber": ("SubscriberOptions",),
    "telemetry.canary": ("Canary",),
}
_HOME_OF = {name: f"postroad.{home}" for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'postroad' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
