"""What is watched: how much waits in each queue, how fast it moves, what came back, what is dead, when to worry."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import func, select

from examples.marketplace.broker import is_rabbitmq
from examples.marketplace.consumers import QUEUES
from examples.marketplace.events import TOPIC
from examples.marketplace.schema import outbox_events
from examples.marketplace.shop import Shop
from postroad.errors import BrokerError

EXCHANGE: Final = "order.events.exchange"
DEAD_LETTER_QUEUE: Final = "order.dlq.queue"
DELAY_QUEUE: Final = "order.timeout.delay.queue"
BACKLOG_LIMIT: Final = 1_000
DEAD_LIMIT: Final = 0
_MOST_DEAD: Final = 1_000


@dataclass(frozen=True, slots=True)
class QueueState:
    name: str
    messages: int | None
    """None while the broker does not tell."""
    delayed: int = 0
    publish_rate: float | None = None
    """Messages a second; None where the broker does not measure it."""
    deliver_rate: float | None = None
    ack_rate: float | None = None
    acked: int | None = None
    nacked: int | None = None
    """Delivered again: given back, or held by a consumer that died."""

    @property
    def ack_ratio(self) -> float | None:
        total = (self.acked or 0) + (self.nacked or 0)
        return None if self.acked is None or not total else round(self.acked / total, 4)


@dataclass(frozen=True, slots=True)
class Overview:
    queues: tuple[QueueState, ...]
    dead: int | None
    failed: int
    """Outbox rows that gave up: a person has to look at them."""
    outbox: dict[str, int]

    @property
    def alerts(self) -> list[str]:
        found = []
        for queue in self.queues:
            if queue.messages is None:
                found.append(f"{queue.name}: unknown")
            elif queue.messages - queue.delayed > BACKLOG_LIMIT:
                found.append(f"{queue.name}: {queue.messages} messages wait, more than {BACKLOG_LIMIT}")
        if self.dead is None:
            found.append(f"{DEAD_LETTER_QUEUE}: unknown")
        elif self.dead > DEAD_LIMIT:
            found.append(f"{DEAD_LETTER_QUEUE}: {self.dead} dead letters")
        if self.failed:
            found.append(f"outbox_events: {self.failed} FAILED")
        return found

    def as_json(self) -> dict[str, Any]:
        queues = [{**asdict(queue), "ack_ratio": queue.ack_ratio} for queue in self.queues]
        return {
            "queues": queues,
            "dead": self.dead,
            "failed": self.failed,
            "outbox": self.outbox,
            "alerts": self.alerts,
        }


async def overview(shop: Shop) -> Overview:
    async with shop.road.store.reading() as connection:
        counted = await connection.execute(
            select(outbox_events.c.status, func.count()).group_by(outbox_events.c.status)
        )
        outbox = {str(status): int(count) for status, count in counted}
    return Overview(await _queues(shop), await _dead(shop), outbox.get("FAILED", 0), outbox)


async def _dead(shop: Shop) -> int | None:
    try:
        return len(await shop.road.broker.dead_letters(TOPIC, limit=_MOST_DEAD))
    except BrokerError:
        return None


async def _queues(shop: Shop) -> tuple[QueueState, ...]:
    if not is_rabbitmq(shop.road.broker_url):
        return tuple([await _by_depth(shop, queue.name, queue.group) for queue in QUEUES])
    from postroad.brokers.rabbitmq.address import parse  # needs an extra that the embedded broker does without
    from postroad.brokers.rabbitmq.management import Management

    management = Management(parse(shop.road.broker_url))
    read = [queue.name for queue in QUEUES]
    # These come into being when a message is to be tried again later, or a time-out has waited for its relay.
    others = sorted(await _asked(management.delay_queues, EXCHANGE, *read) or ())
    names = [*read, DELAY_QUEUE, *others, DEAD_LETTER_QUEUE]
    told = await asyncio.gather(*(_asked(management.queue, name) for name in names))
    meant_to_wait = {DELAY_QUEUE, *others}
    return tuple(_measured(name, queue, name in meant_to_wait) for name, queue in zip(names, told, strict=True))


async def _asked(ask: Callable[..., Any], *names: str) -> Any:
    """What is watched is needed most when the broker is away: then it says so."""
    try:
        return await asyncio.to_thread(ask, *names) or {}
    except BrokerError:
        return None


async def _by_depth(shop: Shop, name: str, group: str) -> QueueState:
    try:
        depth = await shop.road.broker.depth(f"{TOPIC}.{group}")
    except BrokerError:
        return QueueState(name, None)
    return QueueState(name, depth.messages, depth.delayed)


def _measured(name: str, told: dict[str, Any] | None, meant_to_wait: bool) -> QueueState:
    if told is None:
        return QueueState(name, None)
    moved = told.get("message_stats", {})
    messages = int(told.get("messages", 0))
    return QueueState(
        name,
        messages,
        messages if meant_to_wait else 0,
        publish_rate=_rate(moved, "publish"),
        deliver_rate=_rate(moved, "deliver_get"),
        ack_rate=_rate(moved, "ack"),
        acked=int(moved.get("ack", 0)),
        nacked=int(moved.get("redeliver", 0)),
    )


def _rate(moved: dict[str, Any], what: str) -> float:
    return float(moved.get(f"{what}_details", {}).get("rate", 0.0))
