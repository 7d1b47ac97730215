"""Google's rules for an ordered subscription, as a small server.

The emulator keeps them only while nothing goes wrong: after a broken stream it delivers later messages of a key before
those that were lost with it, and of a key that is given back only the one message returns. Google's service says: while
a message is delivered and neither acknowledged nor over its deadline, no other client gets anything of its key; when it
is over, it comes again, and so does everything of its key behind it, in order.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.empty_pb2 import Empty
from google.rpc import error_details_pb2, status_pb2

from postroad.brokers.pubsub.line import connections_thread, raw

SUBSCRIPTION = "shop.order.events.readers"
PATH = f"projects/my-project/subscriptions/{SUBSCRIPTION}"


@dataclass(eq=False)
class Stored:
    id: str
    key: str
    data: bytes
    stream: "Stream | None" = None
    ack_id: str = ""
    acknowledged: bool = False


@dataclass(eq=False)
class Stream:
    pending: "asyncio.Queue[list[Stored] | None]" = field(default_factory=asyncio.Queue)
    broken: bool = False


class Model:
    """Its methods are called in the connections' thread; `do` goes there."""

    def __init__(self) -> None:
        self.messages: list[Stored] = []
        self.streams: list[Stream] = []
        self.losing = False
        """What is delivered now is written nowhere: it will be lost with the stream."""
        self.refused: list[str] = []
        self._ids = count(1)

    async def do(self, act: Any, *arguments: Any) -> Any:
        async def there() -> Any:
            return act(*arguments)

        return await connections_thread().run(there)

    def publish(self, key: str, *texts: str) -> None:
        self.messages += [Stored(str(next(self._ids)), key, text.encode()) for text in texts]
        self.deliver()

    def deliver(self) -> None:
        live = [stream for stream in self.streams if not stream.broken]
        if not live:
            return
        batch: dict[Stream, list[Stored]] = {}
        for key in dict.fromkeys(message.key for message in self.messages):
            open_ones = [m for m in self.messages if m.key == key and not m.acknowledged]
            holders = {m.stream for m in open_ones if m.stream is not None}
            stream = holders.pop() if holders else live[hash(key) % len(live)]
            if stream.broken:
                continue  # until the deadline of what it holds is over
            for message in open_ones:
                if message.stream is None:
                    message.stream, message.ack_id = stream, f"ack-{next(self._ids)}"
                    batch.setdefault(stream, []).append(message)
        for stream, messages in batch.items():
            if not self.losing:
                stream.pending.put_nowait(messages)

    def cut(self) -> None:
        """Every stream breaks. What it held is held until its deadline."""
        for stream in self.streams:
            stream.broken = True
            stream.pending.put_nowait(None)

    def pass_deadlines(self) -> None:
        """Of everything that is not acknowledged: it comes again, in order."""
        for message in self.messages:
            if not message.acknowledged:
                message.stream = None
        self.deliver()

    def open_ones(self) -> int:
        return sum(not message.acknowledged for message in self.messages)

    # -- what a client may ask ---------------------------------------------------------------------------

    async def get_subscription(self, request: Any, context: Any) -> Any:
        topic = "projects/my-project/topics/shop.order.events"
        return raw("Subscription")(name=PATH, topic=topic, ack_deadline_seconds=600)

    async def pull(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        stream = Stream()
        self.streams.append(stream)
        self.deliver()
        try:
            while (messages := await stream.pending.get()) is not None:
                answer = raw("StreamingPullResponse")()
                for message in messages:
                    if message.stream is stream:
                        received = answer.received_messages.add(ack_id=message.ack_id)
                        received.message.message_id, received.message.data = message.id, message.data
                        received.message.ordering_key = message.key
                yield answer
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the stream has ended")
        finally:
            stream.broken = True

    async def acknowledge(self, request: Any, context: Any) -> Any:
        causes: dict[str, str] = {}
        unordered: set[str] = set()
        for ack_id in request.ack_ids:
            if cause := self._acknowledge(ack_id, unordered):
                causes[ack_id] = cause
        self.deliver()
        if causes:
            self.refused += causes.values()
            info = Packed()
            info.Pack(error_details_pb2.ErrorInfo(reason="EXACTLY_ONCE_ACKID_FAILURE", metadata=causes))
            told = status_pb2.Status(code=grpc.StatusCode.INVALID_ARGUMENT.value[0], details=[info])
            context.set_trailing_metadata((("grpc-status-details-bin", told.SerializeToString()),))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "")
        return Empty()

    def _acknowledge(self, ack_id: str, unordered: set[str]) -> str:
        """`unordered`: the keys of which one was refused in the same request; no other of theirs is taken then."""
        found = [m for m in self.messages if m.ack_id == ack_id and m.stream is not None and not m.acknowledged]
        if not found:
            return "PERMANENT_FAILURE_INVALID_ACK_ID"
        (message,) = found
        of_key = [m for m in self.messages if m.key == message.key and not m.acknowledged]
        if of_key[0] is not message or message.key in unordered:
            unordered.add(message.key)
            return "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
        message.acknowledged, message.stream = True, None
        return ""

    async def modify(self, request: Any, context: Any) -> Any:
        if request.ack_deadline_seconds == 0:
            for message in self.messages:
                if message.ack_id in request.ack_ids:
                    message.stream = None
            self.deliver()
        return Empty()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Model, str]]:
    """The model, and the URL of the server that follows it."""
    model, server = Model(), None

    async def start() -> tuple[Any, int]:
        server = grpc.aio.server()
        calls = {
            "GetSubscription": grpc.unary_unary_rpc_method_handler(
                model.get_subscription, raw("GetSubscriptionRequest").FromString, raw("Subscription").SerializeToString
            ),
            "StreamingPull": grpc.stream_stream_rpc_method_handler(
                model.pull, raw("StreamingPullRequest").FromString, raw("StreamingPullResponse").SerializeToString
            ),
            "Acknowledge": grpc.unary_unary_rpc_method_handler(
                model.acknowledge, raw("AcknowledgeRequest").FromString, Empty.SerializeToString
            ),
            "ModifyAckDeadline": grpc.unary_unary_rpc_method_handler(
                model.modify, raw("ModifyAckDeadlineRequest").FromString, Empty.SerializeToString
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("google.pubsub.v1.Subscriber", calls),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port

    server, port = await connections_thread().run(start)
    try:
        yield model, f"pubsub://my-project?emulator=127.0.0.1:{port}"
    finally:
        await connections_thread().run(server.stop, 0)
