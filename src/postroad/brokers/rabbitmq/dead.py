"""Dead letters: a queue per topic, looked through without taking anything out that is not meant to go."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from postroad.brokers.base import DeadLetter
from postroad.brokers.rabbitmq.channel import NOT_FOUND, Channel, Rejection
from postroad.brokers.rabbitmq.layout import Layout
from postroad.brokers.rabbitmq.letter import Letter, attributes_of, own_headers, properties, published_at
from postroad.brokers.rabbitmq.line import Line
from postroad.brokers.rabbitmq.publisher import QUEUES, Publisher
from postroad.clock import Clock
from postroad.errors import BrokerError, BrokerUnavailable
from postroad.message import parse_rfc3339, rfc3339
from postroad.retry import fitting

_MOST_PREFETCHED: Final = 65_535
_SILENCE: Final = 2.0
"""Seconds without a further message after which somebody else must have the rest."""
_LOOKS: Final = 100
_BETWEEN_LOOKS: Final = 0.01
_LONGEST_REASON: Final = 2_000

Visit = Callable[[DeadLetter], Awaitable[bool]]
"""True: it is dealt with and may leave the queue."""


def buried(
    layout: Layout,
    topic: str,
    subscription: str,
    reason: str,
    attributes: dict[str, str],
    data: bytes,
    *,
    id: str,
    now: datetime,
) -> Letter:
    """The letter that goes to the dead."""
    exchange, key = layout.dead_letter_route(topic)
    told = properties(
        attributes,
        now,
        id=id,
        subscription=subscription,
        reason=fitting(reason, _LONGEST_REASON),
        died=rfc3339(now),
    )
    return Letter(exchange, key, told, data)


class Graveyard:
    """Lives in the connections' thread."""

    def __init__(self, line: Line, publisher: Publisher, layout: Layout, clock: Clock) -> None:
        self._line, self._publisher, self._layout, self._clock = line, publisher, layout, clock
        self._visiting = asyncio.Lock()
        """What one visitor looks at is invisible to another."""

    async def letters(self, topic: str, limit: int, after: str) -> list[DeadLetter]:
        found: list[DeadLetter] = []
        seen = not after

        async def note(letter: DeadLetter) -> bool:
            nonlocal seen
            if seen:
                found.append(letter)
            seen = seen or letter.id == after
            return False

        if limit > 0:
            await self._visit(topic, note, lambda: len(found) >= limit)
        return found

    async def revive(self, topic: str, ids: Sequence[str]) -> int:
        return await self._remove(topic, ids, self._send_back)

    async def discard(self, topic: str, ids: Sequence[str]) -> int:
        async def forget(_: DeadLetter) -> bool:
            return True

        return await self._remove(topic, ids, forget)

    async def _remove(self, topic: str, ids: Sequence[str], deal_with: Visit) -> int:
        wanted, removed = set(ids), 0

        async def visit(letter: DeadLetter) -> bool:
            nonlocal removed
            if letter.id not in wanted:
                return False
            wanted.discard(letter.id)
            done = await deal_with(letter)
            removed += done
            return done

        if wanted:
            await self._visit(topic, visit, lambda: not wanted)
        return removed

    async def _send_back(self, letter: DeadLetter) -> bool:
        """To its subscription alone. If that is gone, the letter stays where it is."""
        queue = self._layout.queue(letter.subscription)
        told = properties(letter.attributes, self._clock.now())
        try:
            await self._publisher.place(Letter(QUEUES, queue, told, letter.data))
        except BrokerUnavailable:
            raise
        except BrokerError:
            return False
        return True

    async def _visit(self, topic: str, visit: Visit, enough: Callable[[], bool]) -> None:
        """From the front, until there is enough. What was not dealt with goes back to its place."""
        queue = self._layout.dead_letter_queue(topic)
        try:
            async with self._visiting:
                async with self._line.briefly() as channel:
                    count = await _ready(channel, queue)
                    removed = await self._walk(channel, queue, topic, count, visit, enough) if count else 0
                if count:
                    await self._until_back(queue, count - removed)
        except Rejection as rejection:
            if rejection.code != NOT_FOUND:
                raise

    async def _walk(
        self, channel: Channel, queue: str, topic: str, count: int, visit: Visit, enough: Callable[[], bool]
    ) -> int:
        """How many were dealt with."""
        arrived: asyncio.Queue[tuple[Any, Any, bytes]] = asyncio.Queue()
        await channel.ask(channel.raw.basic_qos, prefetch_count=min(count, _MOST_PREFETCHED))
        await channel.ask(
            channel.raw.basic_consume,
            queue=queue,
            on_message_callback=lambda _, method, told, body: arrived.put_nowait((method, told, body)),
        )
        removed = 0
        for _ in range(count):
            try:
                async with asyncio.timeout(_SILENCE):
                    method, told, body = await arrived.get()
            except TimeoutError:
                break
            if await visit(self._letter(topic, told, body)):
                channel.raw.basic_ack(method.delivery_tag)
                removed += 1
            if enough():
                break
        return removed

    async def _until_back(self, queue: str, expected: int) -> None:
        """A quorum queue takes back what a channel held only after the channel is closed, and the next visitor
        would find it empty."""
        async with self._line.briefly() as channel:
            for _ in range(_LOOKS):
                if await _ready(channel, queue) >= expected:
                    return
                await asyncio.sleep(_BETWEEN_LOOKS)

    def _letter(self, topic: str, told: Any, body: bytes) -> DeadLetter:
        ours, headers = own_headers(told), told.headers or {}
        # One that the server itself has put here says less about its death.
        first_queue = str(headers.get("x-first-death-queue", ""))
        attributes = attributes_of(told)
        return DeadLetter(
            id=ours.get("id") or _fingerprint(attributes, body),
            topic=topic,
            subscription=ours.get("subscription") or self._layout.subscription_of(first_queue),
            reason=ours.get("reason") or f"dropped by RabbitMQ: {headers.get('x-first-death-reason', 'unknown')}",
            attempts=1,
            died_at=_moment(ours.get("died", "")) or published_at(told) or datetime.fromtimestamp(0, UTC),
            attributes=attributes,
            data=body,
        )


async def _ready(channel: Channel, queue: str) -> int:
    answer = await channel.ask(channel.raw.queue_declare, queue=queue, passive=True)
    return int(answer.method.message_count)


def _fingerprint(attributes: dict[str, str], body: bytes) -> str:
    digest = hashlib.sha256(body)
    for name in sorted(attributes):
        digest.update(f"\n{name}={attributes[name]}".encode(errors="replace"))
    return digest.hexdigest()[:32]


def _moment(text: str) -> datetime | None:
    try:
        return parse_rfc3339(text)
    except ValueError:
        return None
