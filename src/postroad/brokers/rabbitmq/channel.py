"""pika's channel, whose methods answer by callback, as something that can be awaited."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pika.exceptions import AMQPError, ChannelClosedByBroker, ChannelClosedByClient, ConnectionClosedByBroker

from postroad.errors import BrokerError, BrokerUnavailable

_ANSWER_SECONDS: Final = 10.0
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
PRECONDITION_FAILED: Final = 406
_KEY_REFUSED: Final = "access to topic"

T = TypeVar("T")


class Rejection(BrokerError):
    """The server closed the channel because of what was asked of it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"RabbitMQ says {code}: {text}")
        self.code, self.text = code, text

    @property
    def blames_message(self) -> bool:
        """For its size, or a right that its routing key needs; and not because nothing may be published there."""
        return self.code == PRECONDITION_FAILED or (self.code == ACCESS_REFUSED and _KEY_REFUSED in self.text)


class Channel:
    """Lives in the thread of its connection, like everything it calls."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[BrokerError] = loop.create_future()
        """Done, with the reason, once nothing can be asked of it any more."""
        self._asked: set[asyncio.Future[Any]] = set()
        raw.add_on_close_callback(self._on_close)

    async def ask(self, method: Callable[..., Any], **arguments: Any) -> Any:
        """The server's answer. Raises Rejection if it closed the channel instead, else BrokerUnavailable."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.add(answer)
        try:
            method(callback=lambda frame: resolve(answer, frame), **arguments)
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await answer
        except TimeoutError:
            raise BrokerUnavailable(f"RabbitMQ did not answer within {_ANSWER_SECONDS:g} s.") from None
        except AMQPError as error:
            raise unavailable(error) from error
        finally:
            self._asked.discard(answer)

    async def opened(self, answer: "asyncio.Future[Any]") -> "Channel":
        self._asked.add(answer)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await answer
        except BaseException as error:
            # It may open all the same, and nobody would know of it.
            self.leave()
            if isinstance(error, TimeoutError):
                error = BrokerUnavailable(f"RabbitMQ opened no channel within {_ANSWER_SECONDS:g} s.")
            raise error from None
        finally:
            self._asked.discard(answer)
        return self

    def leave(self) -> None:
        """Closes it without waiting for an answer."""
        try:
            self.raw.close()
        except AMQPError:
            pass  # it is closed, or about to be

    async def aclose(self) -> None:
        """What was received and not acknowledged goes back to its queue."""
        if not self.closed.done():
            try:
                self.raw.close()
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await asyncio.wait((self.closed,))
            except (AMQPError, TimeoutError):
                pass  # it is gone, or goes with its connection

    def _on_close(self, _: Any, reason: Exception) -> None:
        error = rejection(reason)
        resolve(self.closed, error)
        for answer in self._asked:
            fail(answer, error)


def resolve(future: "asyncio.Future[T]", result: T) -> None:
    """Unless nobody waits for it any more."""
    if not future.done():
        future.set_result(result)


def fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def rejection(reason: BaseException) -> BrokerError:
    if isinstance(reason, ChannelClosedByBroker):
        return Rejection(reason.reply_code, reason.reply_text)
    if isinstance(reason, ChannelClosedByClient):
        return BrokerUnavailable(f"{reason.reply_text}.")
    return unavailable(reason)


def unavailable(reason: BaseException) -> BrokerUnavailable:
    if isinstance(reason, ConnectionClosedByBroker):
        return BrokerUnavailable(f"RabbitMQ closed the connection ({reason.reply_code}: {reason.reply_text}).")
    text = str(reason) or type(reason).__name__
    return BrokerUnavailable(f"The connection to RabbitMQ is lost ({text}).")
