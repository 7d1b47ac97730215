"""Kafka, as it comes: consumer groups, an idempotent producer, and nothing on the server but topics.

    kafka://user:password@host:9092,other:9092/?partitions=6&session_timeout=10

`kafkas:` is the same over TLS. What may stand behind the question mark is told in `address.py`.

A topic is a topic, a subscription a consumer group of its name, and `<topic>.dlq` the compacted topic of its dead
letters. A key is always in the same partition, and of each key one message is on its way at a time. Offsets are
committed up to the first message that is not settled: what waits for another try keeps its place, through a crash too.
librdkafka is asked in threads of its own, so the group is not lost while handlers keep the loop busy.
"""

from postroad.brokers.kafka.address import parse
from postroad.brokers.kafka.broker import KafkaBroker
from postroad.clock import Clock

__all__ = ["connect"]


def connect(url: str, *, clock: Clock) -> KafkaBroker:
    """Contacts nobody yet: clients are made when they are needed."""
    return KafkaBroker(parse(url), clock)
