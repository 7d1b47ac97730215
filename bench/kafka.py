"""PostgreSQL → Kafka, in all replicas in sync, beside librdkafka by hand: its producer, and a callback per message."""

import time
from collections.abc import Awaitable, Callable

from confluent_kafka import KafkaError, Producer

from bench.common import Figure, Scale, Target, fresh_road, service, side_by_side
from bench.rabbitmq.relaying import run_until_sent
from bench.rabbitmq.wire import KILOBYTE, TOPIC, messages
from bench.rows import refill
from postroad.brokers.base import Topology
from postroad.brokers.kafka.address import parse
from postroad.brokers.kafka.record import Letter, write
from postroad.relay import Relay
from tests.support.kafka import awake, remove_topics


async def measure(scale: Scale, server: str) -> list[Figure]:
    url = awake(service("kafka"))
    events, keys = scale.of(200, 60_000), scale.of(50, 10_000)
    prepared = [letter for letter in map(write, messages(events)) if isinstance(letter, Letter)]
    remove_topics(url, TOPIC)
    async with fresh_road(server, broker_url=url) as road:
        await road.broker.apply(Topology((TOPIC,)))
        relay = Relay(road.store, road.broker)

        async def ours() -> float:
            await refill(road, events, keys=keys, customer=KILOBYTE)
            return await run_until_sent(relay, events)

        rates = await side_by_side(scale.rounds, ours, _by_hand(url, prepared))
    remove_topics(url, TOPIC)
    note = f"1 KB, {keys:,} keys, against an idempotent producer that is given all at once"
    return [Figure("Kafka, relay / confluent-kafka", *rates, "events/s", Target(0.7), note)]


def _by_hand(url: str, letters: list[Letter]) -> Callable[[], Awaitable[float]]:
    async def publish() -> float:
        producer = Producer(parse(url).client() | {"enable.idempotence": True, "linger.ms": 1})
        confirmed = 0

        def on_delivery(error: KafkaError | None, _: object) -> None:
            nonlocal confirmed
            confirmed += error is None

        begun = time.perf_counter()
        for letter in letters:
            producer.produce(
                letter.topic, value=letter.value, key=letter.key, headers=list(letter.headers), on_delivery=on_delivery
            )
            producer.poll(0)
        producer.flush()
        assert confirmed == len(letters)
        return len(letters) / (time.perf_counter() - begun)

    return publish
