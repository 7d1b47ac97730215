"""RabbitMQ, as it comes: durable topic exchanges, confirms, and no plugin but the management one.

    amqp://user:password@host:5672/vhost?queue_type=quorum&prefetch=200

`amqps:` (or `rabbitmqs:`) is the same over TLS. What may stand behind the question mark is told in `address.py`.

A topic is an exchange, a subscription a queue bound to it, and `<topic>.dlq` the queue of its dead letters. A message
counts as confirmed when RabbitMQ has it in every queue that wants it; one that no queue wants is refused. Of each key
one message is on its way at a time, many keys side by side.

A retry of a second or more goes through a queue with a time to live and comes back; while it is away, later messages of
its key wait here. The connections live in a thread of their own, so heartbeats go on while handlers keep the loop busy.
"""

from postroad.brokers.rabbitmq.address import parse
from postroad.brokers.rabbitmq.broker import RabbitBroker
from postroad.clock import Clock

__all__ = ["connect"]


def connect(url: str, *, clock: Clock) -> RabbitBroker:
    """Contacts nobody yet: connections are made when they are needed."""
    return RabbitBroker(parse(url), clock)
