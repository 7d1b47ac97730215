"""Google Cloud Pub/Sub, and its emulator.

    pubsub://PROJECT
    pubsub://PROJECT?emulator=127.0.0.1:8085

A topic is a topic, a subscription a subscription; topic `<topic>.dlq` and its subscription `<topic>.dlq-monitor` hold
the dead letters. The ordering key is the aggregate's id: for each key one request at a time is on its way, many keys
side by side.

A retry waits here, its lease extended, and later messages of its key wait behind it. The connection lives in a thread
of its own, so leases are extended while handlers keep the loop busy.
"""

from postroad.brokers.pubsub.address import parse
from postroad.brokers.pubsub.broker import PubSubBroker
from postroad.clock import Clock

__all__ = ["connect"]


def connect(url: str, *, clock: Clock) -> PubSubBroker:
    """Contacts nobody yet."""
    return PubSubBroker(parse(url), clock)
