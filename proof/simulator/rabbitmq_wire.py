"""pika's connection, as far as the adapter knows it: what is sent takes its time, and may never arrive."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from types import SimpleNamespace
from typing import Any, NamedTuple

from pika.exceptions import AMQPConnectionError, ConnectionWrongStateError, StreamLostError

from proof.simulator.process import Process
from proof.simulator.rabbitmq_channel import RawChannel
from proof.simulator.rabbitmq_server import Server


class Route(NamedTuple):
    """From a process to the server: stands for the parameters of a connection."""

    server: Server
    process: Process


class Direction:
    """One way of a connection: what was sent first arrives first, and nothing arrives in a process that is frozen."""

    def __init__(self, route: Route, *, context: Context, inwards: bool) -> None:
        self._route, self._context, self._inwards = route, context, inwards
        self._frames: deque[tuple[float, Callable[..., object], tuple[Any, ...]]] = deque()
        self._latest = 0.0
        self._expected = False
        self._held = False

    def send(self, act: Callable[..., object], *arguments: Any, delay: float = 0.0) -> None:
        loop, process = asyncio.get_running_loop(), self._route.process
        if not self._inwards:
            delay = max(delay, process.frozen_for())
        latency = self._route.server.world.fates.latency()
        self._latest = max(self._latest, loop.time() + latency + delay)
        self._frames.append((self._latest, act, arguments))
        self._expect()

    def hold(self, held: bool) -> None:
        self._held = held
        self._expect()

    def clear(self) -> None:
        self._frames.clear()

    def _expect(self) -> None:
        if self._frames and not self._expected and not self._held:
            self._expected = True
            asyncio.get_running_loop().call_at(self._frames[0][0], self._arrive, context=self._context)

    def _arrive(self) -> None:
        loop, process = asyncio.get_running_loop(), self._route.process
        if self._inwards and (frozen := process.frozen_for()):
            loop.call_later(frozen, self._arrive, context=self._context)
            return
        while self._frames and self._frames[0][0] <= loop.time() and process.alive and not self._held:
            _, act, arguments = self._frames.popleft()
            act(*arguments)
        self._expected = False
        if process.alive:
            self._expect()


class Wire:
    """pika's connection, as far as the adapter knows it."""

    def __init__(
        self,
        route: Route,
        *,
        on_open_callback: Callable[["Wire"], object],
        on_open_error_callback: Callable[["Wire", BaseException], object],
        on_close_callback: Callable[["Wire", BaseException], object],
        custom_ioloop: asyncio.AbstractEventLoop,
    ) -> None:
        self.server, self.process = route
        self.is_open = self.is_closed = self.publishes = False
        self._on_close = [on_close_callback]
        self._on_blocked: Callable[..., object] = lambda *_: None
        self._on_unblocked: Callable[..., object] = lambda *_: None
        self._channels: dict[RawChannel, None] = {}
        self.out = Direction(route, context=Context(), inwards=False)
        self.back = Direction(route, context=self.process.context(), inwards=True)
        self.out.send(self._accept, on_open_callback, on_open_error_callback)

    # -- at the server ------------------------------------------------------------------------------------

    def _accept(self, opened: Callable[["Wire"], object], refused: Callable[["Wire", BaseException], object]) -> None:
        if self.is_closed:
            return
        if self.server.away:
            self.back.send(self._refuse, refused)
            return
        self.server.wires[self] = None
        self.process.at_death[self] = self.cut
        self.process.at_freezing[self] = self._miss_heartbeats
        self.back.send(self._open, opened)

    def cut(self) -> None:
        """Whatever is on its way is lost; what was handed over and not acknowledged is ready again."""
        if self.server.wires.pop(self, self) is self:
            return
        self.process.at_death.pop(self, None)
        self.process.at_freezing.pop(self, None)
        self.out.clear()
        self.back.clear()
        for channel in self._channels:
            channel.release()
        for channel in self._channels:
            channel.hand_over()
        self.back.send(self._lose, StreamLostError("the connection broke"))

    def tell_blocked(self, blocked: bool) -> None:
        self.out.hold(blocked)
        frame = SimpleNamespace(method=SimpleNamespace(reason="low on memory"))
        self.back.send(lambda: (self._on_blocked if blocked else self._on_unblocked)(self, frame))

    def _miss_heartbeats(self, seconds: float) -> None:
        """Of somebody who is frozen: sometimes the server waits for him, sometimes it does not."""
        if self.server.world.random.random() < 0.5:
            asyncio.get_running_loop().call_later(seconds / 2, self.cut)

    # -- at the adapter's side ----------------------------------------------------------------------------

    def channel(self, on_open_callback: Callable[["RawChannel"], object]) -> "RawChannel":
        if not self.is_open:
            raise ConnectionWrongStateError("not open")
        made = RawChannel(self, on_open_callback)
        self._channels[made] = None
        return made

    def forget(self, channel: "RawChannel") -> None:
        self._channels.pop(channel, None)

    def add_on_close_callback(self, callback: Callable[["Wire", BaseException], object]) -> None:
        self._on_close.append(callback)

    def add_on_connection_blocked_callback(self, callback: Callable[..., object]) -> None:
        self._on_blocked = callback

    def add_on_connection_unblocked_callback(self, callback: Callable[..., object]) -> None:
        self._on_unblocked = callback

    def close(self) -> None:
        self.out.send(self.cut)

    def leave(self) -> None:
        if not self.is_closed:
            self.cut()
            self._lose(StreamLostError("given up"))

    def _open(self, opened: Callable[["Wire"], object]) -> None:
        self.is_open = True
        opened(self)

    def _refuse(self, refused: Callable[["Wire", BaseException], object]) -> None:
        self.is_closed = True
        refused(self, AMQPConnectionError("nobody answers"))

    def _lose(self, reason: BaseException) -> None:
        if self.is_closed:
            return
        self.is_open, self.is_closed = False, True
        for channel in tuple(self._channels):
            channel.end(reason)
        for callback in self._on_close:
            callback(self, reason)
