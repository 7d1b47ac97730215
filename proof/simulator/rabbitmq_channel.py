"""pika's channel, and what the server knows of it.

Names of methods are pika's where the adapter calls them. What the adapter calls is its side of the wire; the rest
happens at the server, some time later, unless the connection has been lost by then.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pika.exceptions import ChannelClosedByBroker, ChannelClosedByClient, ChannelWrongStateError
from pika.spec import Basic
from pika.spec import Queue as QueueMethods

from postroad.message import Message
from proof.simulator.faults import ACKNOWLEDGE, DELIVER, PUBLISH
from proof.simulator.rabbitmq_server import Letter, Queue

if TYPE_CHECKING:
    from proof.simulator.rabbitmq_wire import Wire

_NOT_FOUND, _PRECONDITION_FAILED, _NO_ROUTE = 404, 406, 312
_LATE = 3.0
_TROUBLE_WITHIN = 0.5
"""Seconds after a delivery, so that it comes while somebody is at work on it."""


class RawChannel:
    """pika's channel, and what the server knows of it."""

    def __init__(self, wire: "Wire", opened: Callable[["RawChannel"], object]) -> None:
        self._wire, self._server = wire, wire.server
        self.is_open = False
        self._on_close: list[Callable[..., object]] = []
        self._on_return: Callable[..., object] = lambda *_: None
        self._on_cancel: Callable[..., object] = lambda *_: None
        self._on_confirm: Callable[..., object] = lambda *_: None
        self._on_message: Callable[..., object] = lambda *_: None
        # What the server knows:
        self._served = True
        self._published = 0
        self._confirmed: list[int] = []
        self._slow: set[int] = set()
        self._prefetch = 0
        self._tags = 0
        self._unsettled: dict[int, tuple[Queue, Letter]] = {}
        self._void: set[int] = set()
        self._consumes: Queue | None = None
        self._ask(lambda: self._answer(self._open, opened))

    # -- at the adapter's side ----------------------------------------------------------------------------

    def add_on_close_callback(self, callback: Callable[..., object]) -> None:
        self._on_close.append(callback)

    def add_on_return_callback(self, callback: Callable[..., object]) -> None:
        self._on_return = callback

    def add_on_cancel_callback(self, callback: Callable[..., object]) -> None:
        self._on_cancel = callback

    def confirm_delivery(self, ack_nack_callback: Callable[..., object], callback: Callable[..., object]) -> None:
        self._require_open()
        self._on_confirm = ack_nack_callback
        self._ask(lambda: self._answer(callback, None))

    def basic_publish(self, exchange: str, key: str, body: bytes, properties: Any, mandatory: bool) -> None:
        self._require_open()
        self._wire.publishes = True
        self._ask(self._take, exchange, key, properties, body)
        if self._server.short_of_memory:
            self._wire.tell_blocked(True)

    def basic_qos(self, prefetch_count: int, callback: Callable[..., object]) -> None:
        self._require_open()

        def at_the_server() -> None:
            self._prefetch = prefetch_count
            self._answer(callback, None)

        self._ask(at_the_server)

    def basic_consume(
        self, queue: str, on_message_callback: Callable[..., object], callback: Callable[..., object]
    ) -> None:
        self._require_open()
        self._on_message = on_message_callback
        self._ask(self._consume, queue, callback)

    def basic_ack(self, delivery_tag: int) -> None:
        self._require_open()
        self._ask(self._settle, delivery_tag)

    def exchange_declare(self, exchange: str, callback: Callable[..., object], passive: bool, **_: object) -> None:
        self._require_open()

        def at_the_server() -> None:
            if passive and exchange not in self._server.exchanges:
                self._reject(_NOT_FOUND, f"no exchange {exchange!r}")
                return
            self._server.declare_exchange(exchange)
            self._answer(callback, None)

        self._ask(at_the_server)

    def queue_declare(
        self,
        queue: str,
        callback: Callable[..., object],
        passive: bool,
        arguments: dict[str, Any] | None = None,
        **_: object,
    ) -> None:
        self._require_open()

        def at_the_server() -> None:
            if passive and queue not in self._server.queues:
                self._reject(_NOT_FOUND, f"no queue {queue!r}")
                return
            self._server.declare_queue(queue, arguments or {})
            found = self._server.queues[queue]
            told = QueueMethods.DeclareOk(queue, found.ready, len(found.consumers))
            self._answer(callback, SimpleNamespace(method=told))

        self._ask(at_the_server)

    def close(self, reply_text: str = "") -> None:
        self._require_open()
        self.is_open = False
        self._ask(self._close)

    def end(self, reason: BaseException) -> None:
        self.is_open = False
        self._wire.forget(self)
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            callback(self, reason)

    def _open(self, opened: Callable[["RawChannel"], object]) -> None:
        self.is_open = True
        opened(self)

    def _require_open(self) -> None:
        if not self.is_open:
            raise ChannelWrongStateError("not open")

    def _ask(self, act: Callable[..., object], *arguments: Any) -> None:
        def at_the_server() -> None:
            if self._served and self._wire in self._server.wires:
                act(*arguments)

        self._wire.out.send(at_the_server)

    # -- at the server ------------------------------------------------------------------------------------

    def _answer(self, callback: Callable[..., object], frame: Any) -> None:
        self._wire.back.send(callback, frame)

    def _take(self, exchange: str, key: str, properties: Any, body: bytes) -> None:
        if exchange and exchange not in self._server.exchanges:
            self._reject(_NOT_FOUND, f"no exchange {exchange!r}")
            return
        self._published += 1
        number, fault = self._published, self._fault(PUBLISH, f"publish {exchange or key}")
        if fault == "lost":
            self._wire.cut()
            return
        if fault == "nacked":
            self._wire.back.send(lambda: self._on_confirm(SimpleNamespace(method=Basic.Nack(number))))
            return
        if fault == "refused" or not self._server.route(exchange, key, properties, body):
            told = Basic.Return(_NO_ROUTE, "NO_ROUTE", exchange, key)
            self._wire.back.send(lambda: self._on_return(self, told, properties, body))
        elif exchange:
            self._server.taken.append(Message.from_wire(exchange, properties.headers, body))
        if fault == "unconfirmed":
            self._wire.cut()
        elif fault == "slow":
            self._slow.add(number)
            wait = self._server.world.freeze_seconds()
            asyncio.get_running_loop().call_later(wait, self._confirm_at_last, number)
        else:
            self._confirm(number)

    def _confirm(self, number: int) -> None:
        """Several at once where they come together."""
        if not self._confirmed:
            asyncio.get_running_loop().call_soon(self._confirm_all)
        self._confirmed.append(number)

    def _confirm_all(self) -> None:
        numbers, self._confirmed = self._confirmed, []
        together = not self._slow
        for number in numbers[-1:] if together else numbers:
            told = SimpleNamespace(method=Basic.Ack(number, multiple=together))
            self._answer_if_served(self._on_confirm, told)

    def _confirm_at_last(self, number: int) -> None:
        self._slow.discard(number)
        self._answer_if_served(self._on_confirm, SimpleNamespace(method=Basic.Ack(number)))

    def _answer_if_served(self, callback: Callable[..., object], frame: Any) -> None:
        if self._served:
            self._answer(callback, frame)

    def _consume(self, name: str, callback: Callable[..., object]) -> None:
        if name not in self._server.queues:
            self._reject(_NOT_FOUND, f"no queue {name!r}")
            return
        self._consumes = self._server.queues[name]
        self._consumes.consumers.append(self)
        self._answer(callback, None)
        self._consumes.hand_out()

    @property
    def has_room(self) -> bool:
        return len(self._unsettled) < self._prefetch

    def deliver(self, queue: Queue, letter: Letter) -> None:
        self._tags += 1
        self._unsettled[self._tags] = (queue, letter)
        fault = self._fault(DELIVER, f"deliver from {queue.name}")
        told = Basic.Deliver(delivery_tag=self._tags, redelivered=letter.redelivered)
        message = self, told, letter.properties, letter.body
        self._wire.back.send(lambda: self._on_message(*message), delay=_LATE if fault == "late" else 0.0)
        if fault in ("cut", "dismissed"):
            wait = self._server.world.random.random() * _TROUBLE_WITHIN
            trouble = self._wire.cut if fault == "cut" else queue.fail_over
            asyncio.get_running_loop().call_later(wait, trouble)

    def _settle(self, tag: int) -> None:
        if tag in self._void:
            return
        if tag not in self._unsettled:
            self._reject(_PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        elif self._fault(ACKNOWLEDGE, "acknowledge") == "lost":
            self._wire.cut()
        else:
            queue, _ = self._unsettled.pop(tag)
            queue.settled()

    def dismiss(self, queue: Queue) -> None:
        """The queue has gone elsewhere, and with it what came from there."""
        self._consumes = None
        self._void |= self._unsettled.keys()
        self._return_letters()
        self._answer(lambda _: self._on_cancel(None), None)

    def release(self) -> None:
        """The server forgets the channel. What it held is ready again, as soon as somebody is there to take it."""
        if not self._served:
            return
        self._served = False
        self._return_letters()
        if self._consumes is not None:
            self._consumes.consumers.remove(self)

    def hand_over(self) -> None:
        if self._consumes is not None:
            self._consumes.hand_out()

    def _return_letters(self) -> None:
        held, self._unsettled = self._unsettled, {}
        for queue in {queue: None for queue, _ in held.values()}:
            queue.take_back([letter for origin, letter in held.values() if origin is queue])

    def _close(self) -> None:
        self.release()
        self._answer(self.end, ChannelClosedByClient(200, "Normal shutdown"))
        self.hand_over()

    def _reject(self, code: int, text: str) -> None:
        self.release()
        self._answer(self.end, ChannelClosedByBroker(code, text))
        self.hand_over()

    def _fault(self, table: Mapping[str, float], what: str) -> str:
        world, process = self._server.world, self._wire.process
        fault = world.fates.draw(table)
        if world.trace is not None:
            world.tell(process.name, f"{what} ✗ {fault}" if fault else what)
        return fault
