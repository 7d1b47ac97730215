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

from postroad.app import Postroad
from postroad.errors import BusinessError, PoisonError, PostroadError, TransientError
from postroad.events import event
from postroad.message import Message
from postroad.relay import RelayOptions
from postroad.retry import Backoff
from postroad.stores.tables import OutboxTable
from postroad.subscriber import SubscriberOptions

__all__ = [
    "Backoff",
    "BusinessError",
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
