"""Dead letters: a queue per topic, looked through without taking anything out that is not meant to go."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pika.exceptions import AMQPError

from postroad.brokers.base import DeadLetter
from postroad.brokers.rabbitmq.address import MOST_PREFETCHED
from postroad.brokers.rabbitmq.channel import ACCESS_REFUSED, NOT_FOUND, Channel, Rejection, unavailable
from postroad.brokers.rabbitmq.layout import Layout
from postroad.brokers.rabbitmq.letter import Letter, attributes_of, own_headers, properties, published_at
from postroad.brokers.rabbitmq.line import Line
from postroad.brokers.rabbitmq.publisher import QUEUES, Publisher
from postroad.clock import Clock
from postroad.errors import BrokerError, BrokerUnavailable
from postroad.message import parse_rfc3339, rfc3339
from postroad.retry import fitting

_UNLIMITED: Final = 0
_FEW: Final = 50
_MORE: Final = 8
_SILENCE: Final = 2.0
"""Seconds without a further message after which somebody else must have the rest."""
_PATIENCE: Final = 3.0
"""Seconds that we let others look before us; then it is somebody's own program, which stays."""
_LOOKS: Final = 100
_BETWEEN_LOOKS: Final = 0.01
_EMPTY: Final = 5
"""Looks in a row that find nothing and nobody."""
_LONGEST_REASON: Final = 2_000
_FOREIGN: Final = "foreign-"
"""Begins the id of a letter that was not buried by us, and is known by its content."""

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
        seen, known = not after, {after}

        async def note(letter: DeadLetter) -> bool:
            nonlocal seen
            # One that was buried twice, for want of an answer, is one letter; of foreign ones, equal ones are several.
            if seen and (letter.id not in known or letter.id.startswith(_FOREIGN)):
                found.append(letter)
                known.add(letter.id)
            seen = seen or letter.id == after
            return False

        if limit > 0:
            await self._visit(topic, note, lambda: len(found) >= limit, max(limit, _FEW) if after else limit)
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
            await self._visit(topic, visit, lambda: not wanted, _FEW)
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

    async def _visit(self, topic: str, visit: Visit, enough: Callable[[], bool], most: int) -> None:
        """From the front, until there is enough. What was not dealt with goes back to its place.

        At first no more than `most` are fetched, then more and more of them: all could be gigabytes.
        """
        queue, passed = self._layout.dead_letter_queue(topic), 0
        if self._layout.queue_type == "quorum":
            # It puts what it takes back behind what it took back before: in order only if that is everything.
            most = MOST_PREFETCHED
        try:
            async with self._visiting:
                while True:
                    count, walk = await self._turn(queue, topic, most, passed, visit, enough)
                    if count:
                        await self._until_back(queue, count - walk.removed)
                    if enough() or walk.seen < most or count <= most:
                        return
                    passed, most = walk.seen - walk.removed, most * _MORE
        except Rejection as rejection:
            if rejection.code != NOT_FOUND:
                raise
        except AMQPError as error:
            raise unavailable(error) from error

    async def _turn(
        self, queue: str, topic: str, most: int, passed: int, visit: Visit, enough: Callable[[], bool]
    ) -> tuple[int, "_Walk"]:
        """How many letters there were, and what became of those at the front."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE
        while True:
            alone = loop.time() < deadline
            try:
                async with self._line.briefly() as channel:
                    count = await _ready_for_one(channel, queue, deadline)
                    walk = _Walk(channel, min(most, count))
                    if count:
                        await walk.begin(queue, alone=alone)
                        await walk.go(passed, lambda told, body: visit(self._letter(topic, told, body)), enough)
                    return count, walk
            except Rejection as rejection:
                if rejection.code != ACCESS_REFUSED or not alone:
                    raise
                # Another visitor was faster.
                await asyncio.sleep(_BETWEEN_LOOKS)

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


class _Walk:
    """One pass over the letters at the front."""

    def __init__(self, channel: Channel, most: int) -> None:
        self._channel, self._most = channel, most
        self._arrived: asyncio.Queue[tuple[Any, Any, bytes]] = asyncio.Queue()
        self._over = False
        self.seen = self.removed = 0

    async def begin(self, queue: str, *, alone: bool) -> None:
        """`alone`: while we look, nobody else does. Raises Rejection if somebody does already."""
        raw = self._channel.raw
        prefetch = self._most if self._most <= MOST_PREFETCHED else _UNLIMITED
        await self._channel.ask(raw.basic_qos, prefetch_count=prefetch)
        await self._channel.ask(
            raw.basic_consume,
            queue=queue,
            exclusive=alone,
            on_message_callback=self._receive,
        )

    def _receive(self, _: Any, method: Any, told: Any, body: bytes) -> None:
        if not self._over:
            self._arrived.put_nowait((method, told, body))

    async def go(self, passed: int, visit: Callable[[Any, bytes], Awaitable[bool]], enough: Callable[[], bool]) -> None:
        """`passed`: how many at the front have been visited before."""
        while self.seen < self._most and not enough() and (found := await self._next()):
            method, told, body = found
            self.seen += 1
            if self.seen > passed and await visit(told, body):
                self._channel.raw.basic_ack(method.delivery_tag)
                self.removed += 1
        self._over = True  # until the channel is closed, more may come

    async def _next(self) -> tuple[Any, Any, bytes] | None:
        arriving = asyncio.ensure_future(self._arrived.get())
        try:
            closed = self._channel.closed
            await asyncio.wait((arriving, closed), timeout=_SILENCE, return_when=asyncio.FIRST_COMPLETED)
            if arriving.done():
                return arriving.result()
            if closed.done():
                # Else this would look like the end of the list.
                raise closed.result()
            return None
        finally:
            arriving.cancel()


async def _ready_for_one(channel: Channel, queue: str, deadline: float) -> int:
    """How many there are, once nobody else looks: what another looks at is invisible."""
    empty = 0
    while True:
        answer = await channel.ask(channel.raw.queue_declare, queue=queue, passive=True)
        ready, looking = answer.method.message_count, answer.method.consumer_count
        # Whoever has looked is gone a moment before the letters are back: one look does not show an empty queue.
        empty = 0 if ready or looking else empty + 1
        if (ready and not looking) or empty >= _EMPTY or asyncio.get_running_loop().time() >= deadline:
            return int(ready)
        await asyncio.sleep(_BETWEEN_LOOKS)


async def _ready(channel: Channel, queue: str) -> int:
    answer = await channel.ask(channel.raw.queue_declare, queue=queue, passive=True)
    return int(answer.method.message_count)


def _fingerprint(attributes: dict[str, str], body: bytes) -> str:
    digest = hashlib.sha256(body)
    for name in sorted(attributes):
        digest.update(f"\n{name}={attributes[name]}".encode(errors="replace"))
    return _FOREIGN + digest.hexdigest()[:32]


def _moment(text: str) -> datetime | None:
    try:
        return parse_rfc3339(text)
    except ValueError:
        return None
