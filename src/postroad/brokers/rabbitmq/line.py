"""One connection to RabbitMQ: made when it is needed, and made again when it was lost."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import AMQPConnectionError, AMQPError, ProbableAccessDeniedError, ProbableAuthenticationError

from postroad.brokers.rabbitmq import frames
from postroad.brokers.rabbitmq.address import CONNECT_SECONDS, Address
from postroad.brokers.rabbitmq.channel import Channel, fail, resolve, unavailable
from postroad.errors import BrokerUnavailable

_CONNECT_SECONDS: Final = CONNECT_SECONDS + 1.0
"""So that pika can say first what took so long."""
_CLOSE_SECONDS: Final = 3.0
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.25
"""Shorter than the pauses of those who ask: else one that asks a moment too soon learns nothing and waits again."""

log = logging.getLogger("postroad.rabbitmq")

if (_client := logging.getLogger("pika")).level == logging.NOTSET:
    # It tells every failed connection three times, with tracebacks; what matters of that is told here.
    _client.setLevel(logging.CRITICAL)


_FRAME: Final = struct.Struct(">BHL")
"""Kind, channel, size."""
_CONTENT: Final = struct.Struct(">HHQ")
"""Class, weight, size of the body."""


class _Gathering(AsyncioConnection):  # type: ignore[misc]  # pika has no types
    """Writes what one turn of the loop has produced in one go: pika alone makes a system call of every frame, three
    for each message. That is a third of the processor time that publishing takes."""

    _gathered: list[bytes] | None = None

    def _send_message(self, channel_number: int, method_frame: Any, content: tuple[Any, bytes]) -> None:
        properties, body = content
        self._output_marshaled_frames(
            [frames.message(channel_number, method_frame, properties, body, self._body_max_length)]
        )

    def _adapter_emit_data(self, data: bytes) -> None:
        if self._gathered is None:
            self._gathered = [data]
            self.ioloop.call_soon(self._write)
        else:
            self._gathered.append(data)

    def _write(self) -> None:
        gathered, self._gathered = self._gathered or [], None
        if self._transport is not None:
            self._transport.write(b"".join(gathered))

    def _read_frame(self) -> tuple[int, Any]:
        try:
            return cast("tuple[int, Any]", super()._read_frame())
        except Exception:
            # A foreign header's value that pika has no type for, such as a time beyond the calendar. It would break the
            # connection, and again each time the message comes again: it comes without its headers instead.
            kind, channel, size = _FRAME.unpack_from(self._frame_buffer)
            if kind != pika.spec.FRAME_HEADER:
                raise
            _, _, body_size = _CONTENT.unpack_from(self._frame_buffer, _FRAME.size)
            end = _FRAME.size + size + pika.spec.FRAME_END_SIZE
            return end, pika.frame.Header(channel, body_size, pika.BasicProperties())

    def leave(self) -> None:
        """At once, without a goodbye, as pika itself does when heartbeats stay away."""
        if not self.is_closed:
            self._terminate_stream(AMQPConnectionError("given up because it had fallen silent"))


class Line:
    """Lives in the connections' thread. Publishing and consuming have one each: when RabbitMQ is short of memory it
    stops reading from whoever publishes, and acknowledgements must get through all the same."""

    def __init__(self, address: Address, purpose: str) -> None:
        self._address, self._purpose = address, purpose
        self._connection: Any = None
        self._connecting: asyncio.Task[Any] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._trouble = ""
        self.blocked = ""
        """Why the server takes no messages at the moment; empty while it does."""
        self.answers = 0
        """How many messages the server has said something about."""

    async def channel(self) -> Channel:
        connection = await self._connected()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            raw = connection.channel(on_open_callback=lambda raw: resolve(answer, raw))
        except AMQPError as error:
            raise unavailable(error) from error
        return await Channel(raw).opened(answer)

    @asynccontextmanager
    async def briefly(self) -> AsyncIterator[Channel]:
        """A channel for a few questions: one that the server rejects costs only that channel."""
        channel = await self.channel()
        try:
            yield channel
        finally:
            await channel.aclose()

    def abort(self) -> None:
        """Leaves a connection that has fallen silent without waiting for it to say goodbye."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave()

    async def aclose(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        connection = self._connection
        if connection is None or connection.is_closed:
            return
        closed = asyncio.Event()
        connection.add_on_close_callback(lambda *_: closed.set())
        try:
            connection.close()
            async with asyncio.timeout(_CLOSE_SECONDS):
                await closed.wait()
        except (AMQPError, TimeoutError):
            self.abort()

    async def _connected(self) -> Any:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._connecting is None:
            loop = asyncio.get_running_loop()
            if loop.time() < self._not_before:
                # Asked again and again, a server that is down would otherwise see a storm of connections.
                raise BrokerUnavailable(self._trouble)
            self._connecting = loop.create_task(self._connect())
            self._connecting.add_done_callback(self._connect_ended)
        # Not awaited directly: if one of those who wait is cancelled, the others still want it.
        connecting = self._connecting
        await asyncio.wait((connecting,))
        if connecting.cancelled():
            raise BrokerUnavailable("The connection to RabbitMQ is closed. Connect again.")
        return connecting.result()

    def _connect_ended(self, task: "asyncio.Task[Any]") -> None:
        self._connecting = None
        if task.cancelled():
            return
        if error := task.exception():
            pause = min(_SHORTEST_PAUSE * 2**self._failures, _LONGEST_PAUSE)
            self._failures = min(self._failures + 1, 16)
            self._not_before = asyncio.get_running_loop().time() + pause
            self._trouble = str(error)
        else:
            self._failures, self._not_before = 0, 0.0

    async def _connect(self) -> Any:
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        connection = _Gathering(
            self._parameters(),
            on_open_callback=lambda made: resolve(opened, made),
            on_open_error_callback=lambda _, error: fail(opened, self._unreachable(error)),
            on_close_callback=self._on_close,
            custom_ioloop=asyncio.get_running_loop(),
        )
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await opened
        except BaseException as error:
            # Neither a cancellation nor a time-out may leave a connection behind that nobody knows.
            opened.cancel()
            connection.leave()
            if isinstance(error, TimeoutError):
                error = BrokerUnavailable(f"{self._address.told} did not answer within {_CONNECT_SECONDS:g} s.")
            raise error from None
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        self.blocked = ""
        self._connection = connection
        return connection

    def _parameters(self) -> pika.ConnectionParameters:
        try:
            return self._address.parameters(self._purpose)
        except OSError as error:
            # Also what ssl says. Somebody may be about to replace the file: that passes, like an outage.
            cafile = self._address.cafile or "the system's"
            raise BrokerUnavailable(f"The certificates to trust ({cafile}) cannot be read: {error}.") from None

    def _unreachable(self, error: BaseException | str) -> BrokerUnavailable:
        where = self._address.told
        if isinstance(error, ProbableAuthenticationError):
            return BrokerUnavailable(f"{where} refused user {self._address.user!r}. Check user and password.")
        if isinstance(error, ProbableAccessDeniedError):
            return BrokerUnavailable(
                f"{where} does not let user {self._address.user!r} into this virtual host. Check the URL's path."
            )
        cause = _root(error)
        text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        return BrokerUnavailable(f"{where} cannot be reached ({text}). Is RabbitMQ running there?")

    def _on_close(self, connection: Any, reason: Exception) -> None:
        if connection is self._connection:
            self._connection = None
            self.blocked = ""
            log.debug("the connection to %s has ended: %s", self._purpose, reason)

    def _on_blocked(self, _: Any, frame: Any) -> None:
        self.blocked = getattr(frame.method, "reason", "") or "it is short of memory or disk"
        log.warning("RabbitMQ takes no messages: %s", self.blocked)

    def _on_unblocked(self, *_: Any) -> None:
        self.blocked = ""
        log.info("RabbitMQ takes messages again")


def _root(error: Any) -> Any:
    """What pika's connector, tries and workflow have wrapped one in the other."""
    while True:
        inner = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), *getattr(error, "args", ())[:1]]
        found = [one for one in inner if isinstance(one, BaseException)]
        if not found:
            return error
        error = found[-1]
