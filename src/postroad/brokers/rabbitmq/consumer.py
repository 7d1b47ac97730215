"""The consumer as the server sees it: kept alive, and begun again when channel or connection are lost."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pika.exceptions import AMQPError

from postroad.brokers.rabbitmq.channel import NOT_FOUND, Channel, Rejection
from postroad.brokers.rabbitmq.letter import attributes_of, own_headers, published_at
from postroad.brokers.rabbitmq.line import Line
from postroad.errors import BrokerError, BrokerUnavailable
from postroad.retry import describe

_SHORTEST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 0.5
_CANCELLED: Final = "RabbitMQ ended it: the queue was deleted or moved"

log = logging.getLogger("postroad.rabbitmq")


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A message that the server has handed over and that is not yet acknowledged."""

    generation: int
    tag: int
    """Valid on the channel it came through, which is what the generation counts."""
    attributes: dict[str, str]
    data: bytes = field(repr=False)
    ticket: str
    left: str
    """Seconds that it still has to wait after it was put off; empty if it was not."""
    published: datetime | None
    redelivered: bool


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Whatever came through this channel or one before it, and is not acknowledged, will come again."""

    generation: int


Event = Arrival | Interrupted | BrokerError


class Consumer:
    """Lives in the connections' thread."""

    def __init__(self, line: Line, queue: str, prefetch: int, tell: Callable[[Event], None]) -> None:
        self._line, self.queue, self._prefetch, self._tell = line, queue, prefetch, tell
        self._channel: Channel | None = None
        self._generation = 0
        self._settled_some = False
        self._keeping: asyncio.Task[None] | None = None

    @property
    def generation(self) -> int:
        """Of the channel that is open; 0 while none is. May be asked from any thread."""
        return self._generation if self._channel is not None and not self._channel.closed.done() else 0

    async def start(self) -> None:
        """Raises if it cannot be done; afterwards it goes on by itself."""
        await self._open()
        self._keeping = asyncio.create_task(self._keep())

    async def aclose(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
        if self._channel is not None:
            await self._channel.aclose()

    def settle(self, verdicts: Sequence[tuple[int, int]]) -> None:
        """Acknowledges by generation and tag. What came through a lost channel comes again in any case."""
        channel = self._channel
        if channel is None:
            return
        try:
            for generation, tag in verdicts:
                if generation == self._generation:
                    channel.raw.basic_ack(tag)
                    self._settled_some = True
        except AMQPError as error:
            log.debug("acknowledgements for %s were lost: %s", self.queue, error)

    async def everything_told(self) -> None:
        """Returns when all that the server had sent so far has been passed on."""
        if self._channel is not None and not self._channel.closed.done():
            try:
                await self._channel.ask(self._channel.raw.basic_qos, prefetch_count=self._prefetch)
            except BrokerError:
                pass  # then nothing is held any more

    async def _open(self) -> None:
        channel = self._channel = await self._line.channel()
        self._generation += 1
        generation = self._generation
        raw = channel.raw

        def receive(_: Any, method: Any, properties: Any, body: bytes) -> None:
            ours = own_headers(properties)
            self._tell(
                Arrival(
                    generation,
                    method.delivery_tag,
                    attributes_of(properties),
                    body,
                    ours.get("ticket", ""),
                    ours.get("left", ""),
                    published_at(properties),
                    bool(method.redelivered),
                )
            )

        try:
            raw.add_on_cancel_callback(lambda _: raw.is_open and raw.close(reply_text=_CANCELLED))
            await channel.ask(raw.basic_qos, prefetch_count=self._prefetch)
            await channel.ask(raw.basic_consume, queue=self.queue, on_message_callback=receive)
        except BaseException:
            await channel.aclose()
            self._tell(Interrupted(generation))  # something may have come all the same
            raise

    async def _keep(self) -> None:
        pause = _SHORTEST_PAUSE
        while True:
            assert self._channel is not None
            reason = await asyncio.shield(self._channel.closed)
            self._tell(Interrupted(self._generation))
            log.warning("receiving from %s was interrupted: %s", self.queue, reason)
            if self._settled_some:
                # Else it may be what is received that breaks it, and that will come again.
                pause, self._settled_some = _SHORTEST_PAUSE, False
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                try:
                    await self._open()
                    break
                except BrokerError as error:
                    self._report(error)
                except Exception as error:
                    # Nobody else would hear of it, and whoever receives would wait for ever.
                    self._tell(BrokerUnavailable(describe(error)))
            log.info("receiving from %s again", self.queue)

    def _report(self, error: BrokerError) -> None:
        if isinstance(error, Rejection):
            # The server is there and says no: time alone will not cure that, so it must be heard.
            gone = f"The queue {self.queue!r} does not exist any more. Run: postroad topology apply"
            self._tell(BrokerUnavailable(gone if error.code == NOT_FOUND else str(error)))
        else:
            log.debug("cannot receive from %s: %s", self.queue, error)
