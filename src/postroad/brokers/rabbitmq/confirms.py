"""Publishing with an answer: every message gets exactly one."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pika
from pika.exceptions import AMQPError

from postroad.brokers.base import Confirmed, Outcome, Refused, Unavailable
from postroad.brokers.rabbitmq.channel import Channel, Rejection, resolve, unavailable
from postroad.brokers.rabbitmq.letter import Letter
from postroad.brokers.rabbitmq.line import Line
from postroad.errors import BrokerError

Answer = Callable[[int, Outcome], None]
"""Takes the position that was given with the letter."""


class Suspected(Unavailable):
    """The server closed the channel because of one message, and did not say which of several it was."""


@dataclass(slots=True, eq=False)
class _Pending:
    letter: Letter
    position: int
    answer: Answer
    returned: str = ""


class Confirms:
    """A channel in confirm mode. RabbitMQ numbers what is published on it, and confirms by number."""

    def __init__(self, line: Line, channel: Channel) -> None:
        self._line, self._channel = line, channel
        self._last = 0
        self._pending: dict[int, _Pending] = {}
        channel.raw.add_on_return_callback(self._on_return)
        channel.closed.add_done_callback(self._on_close)

    @classmethod
    async def open(cls, line: Line) -> "Confirms":
        channel = await line.channel()
        confirms = cls(line, channel)
        try:
            await channel.ask(channel.raw.confirm_delivery, ack_nack_callback=confirms._on_confirm)
        except BaseException:
            channel.leave()
            raise
        return confirms

    @property
    def usable(self) -> bool:
        return not self._channel.closed.done()

    @property
    def rejected(self) -> bool:
        """The server closed it, because an exchange is missing or may not be used."""
        closed = self._channel.closed
        return closed.done() and not closed.cancelled() and isinstance(closed.result(), Rejection)

    def publish(self, letter: Letter, position: int, answer: Answer) -> None:
        try:
            # Mandatory: what no queue takes comes back, before it is confirmed all the same.
            self._channel.raw.basic_publish(
                letter.exchange, letter.routing_key, letter.body, letter.properties, mandatory=True
            )
        except AMQPError as error:
            answer(position, Unavailable(str(unavailable(error))))
            return
        self._last += 1
        self._pending[self._last] = _Pending(letter, position, answer)

    async def confirmed(self, letter: Letter) -> Outcome:
        """Publishes one letter and waits for its answer."""
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.publish(letter, 0, lambda _, outcome: resolve(answered, outcome))
        return await answered

    def leave(self) -> None:
        """Whatever has no answer yet is not waited for."""
        self._channel.leave()

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        refused = isinstance(method, pika.spec.Basic.Nack)
        for number in self._meant(method.delivery_tag, method.multiple):
            pending = self._pending.pop(number)
            self._line.answers += 1
            if pending.returned:
                pending.answer(pending.position, Refused(pending.returned))
            elif refused:
                # Its queue is full or lost its quorum: not this message's fault, and it may pass later.
                full = Unavailable("RabbitMQ did not take it (nack): a queue is full or has failed")
                pending.answer(pending.position, full)
            else:
                pending.answer(pending.position, Confirmed())

    def _meant(self, number: int, multiple: bool) -> list[int]:
        if not multiple:
            return [number] if number in self._pending else []
        return list(takewhile(lambda earlier: earlier <= number, self._pending))

    def _on_return(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        """The server names no number, but returns in the order of publishing: it is the first of those alike."""
        for pending in self._pending.values():
            letter = pending.letter
            if not pending.returned and (
                (letter.exchange, letter.routing_key, letter.properties.message_id, letter.body)
                == (method.exchange, method.routing_key, properties.message_id, body)
            ):
                target = f"exchange {letter.exchange!r}" if letter.exchange else "any queue"
                pending.returned = f"no queue takes {letter.routing_key!r} from {target} ({method.reply_text})"
                return

    def _on_close(self, closed: "asyncio.Future[BrokerError]") -> None:
        pending, self._pending = self._pending, {}
        if not closed.cancelled():
            outcome = _fate(closed.result(), len(pending))
            for one in pending.values():
                one.answer(one.position, outcome)


def _fate(reason: BrokerError, how_many: int) -> Outcome:
    """Of what had no answer when the channel was closed."""
    if not (isinstance(reason, Rejection) and reason.blames_message):
        return Unavailable(str(reason))
    return Refused(str(reason)) if how_many == 1 else Suspected(str(reason))
