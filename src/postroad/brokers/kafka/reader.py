"""Looking into topics without being a member of any group."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from postroad.brokers.kafka.address import ANSWER_SECONDS, Address
from postroad.brokers.kafka.client import settings, translated
from postroad.errors import BrokerUnavailable

_NO_GROUP: Final = "postroad-reader"
"""librdkafka wants a name, although nothing is ever committed under it."""


class Reader:
    """What it does blocks: call it in a thread."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def all_of(self, topic: str, begin: int = 0) -> Generator[Message, None, None]:
        """A topic of one partition, from this place to what is its last message now."""
        yield from self._records([TopicPartition(topic, 0, begin)], lambda _: False)

    def oldest(self, topic: str, places: Mapping[int, int]) -> datetime | None:
        """When the first message of all was published that stands at or behind these offsets."""
        seen = (record.timestamp()[1] for record in self._firsts(topic, places))
        first = min(seen, default=None)
        return None if first is None else datetime.fromtimestamp(first / 1_000, UTC)

    def at(self, topic: str, numbers: Iterable[int], moment: datetime) -> dict[int, int]:
        """The first offset of each partition that was published then or later; -1: there is none."""
        milliseconds = int(moment.timestamp() * 1_000)
        wanted = [TopicPartition(topic, number, milliseconds) for number in numbers]
        with self._consumer() as consumer:
            return {p.partition: p.offset for p in consumer.offsets_for_times(wanted, timeout=ANSWER_SECONDS)}

    def ends(self, topic: str, numbers: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Where each partition begins, and where it ends."""
        with self._consumer() as consumer:
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_SECONDS)
                for number in numbers
            }

    def committed(self, group: str, topic: str, numbers: Iterable[int]) -> dict[int, int]:
        """Not by the administrator's client: librdkafka (2.16) ends the process when the server that it asks does not
        know where the group lives, as after a restart."""
        with self._consumer(group) as consumer:
            places = consumer.committed([TopicPartition(topic, n) for n in numbers], timeout=ANSWER_SECONDS)
        return {place.partition: place.offset for place in places if place.offset >= 0}

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """For a group without members."""
        places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
        with self._consumer(group) as consumer:
            # First asked, so that it is known where the group lives.
            consumer.committed(places, timeout=ANSWER_SECONDS)
            consumer.commit(offsets=places, asynchronous=False)

    def _firsts(self, topic: str, places: Mapping[int, int]) -> Iterator[Message]:
        wanted = [TopicPartition(topic, number, offset) for number, offset in places.items()]
        return self._records(wanted, lambda _: True)

    def _records(self, places: list[TopicPartition], enough: Callable[[Message], bool]) -> Iterator[Message]:
        """Of each partition from its place to its end, or until there is enough of it."""
        left = {place.partition for place in places}
        with self._consumer() as consumer:
            consumer.assign(places)
            while left:
                record = consumer.poll(ANSWER_SECONDS)
                if record is None:
                    raise self._silence()
                if (error := record.error()) is None and record.partition() in left:
                    yield record
                if (error is not None and error.code() == KafkaError._PARTITION_EOF) or (not error and enough(record)):
                    left.discard(record.partition() or 0)
                elif error is not None:
                    raise translated(error, self._address)

    @contextmanager
    def _consumer(self, group: str = _NO_GROUP) -> Iterator[Consumer]:
        more = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # The end is told when a fetch comes back empty, so the server shall not wait for more.
            "fetch.wait.max.ms": 10,
            # For those who only look, the first that is left is as good as one that was removed.
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
        }
        consumer = Consumer(settings(self._address, more))
        try:
            yield consumer
        except KafkaException as error:
            raise translated(error.args[0], self._address) from None
        finally:
            consumer.close()

    def _silence(self) -> BrokerUnavailable:
        return BrokerUnavailable(f"Kafka at {', '.join(self._address.servers)} does not answer. Is it running?")
