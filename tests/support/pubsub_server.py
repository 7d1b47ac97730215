"""The model of Google's rules as a small gRPC server, in the thread in which the adapter has its connections."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.empty_pb2 import Empty
from google.rpc import error_details_pb2, status_pb2

from postroad.brokers.pubsub.line import connections_thread, raw
from proof.simulator.pubsub import letter
from proof.simulator.pubsub_model import Model

SUBSCRIPTION = "shop.order.events.readers"
PATIENCE = 20.0
PATH = f"projects/my-project/subscriptions/{SUBSCRIPTION}"


class Server:
    """Whatever is done with `model` is done by `do`, in its thread and in one go."""

    def __init__(self) -> None:
        self.model = Model(Random(0), tell=self._tell)
        self._moving = asyncio.Event()
        self._moving.set()
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()

    async def do(self, *acts: Callable[[], object]) -> None:
        async def there() -> None:
            for act in acts:
                act()

        await connections_thread().run(there)

    async def until(self, condition: Callable[[Model], bool]) -> None:
        """It can become true only when the model tells something."""
        async with asyncio.timeout(PATIENCE):
            while not condition(self.model):
                await self._news.wait()
                self._news.clear()

    def _tell(self, _: str) -> None:
        self._loop.call_soon_threadsafe(self._news.set)

    def stall(self) -> None:
        """What is sent now is on its way until `cut`."""
        self._moving.clear()

    def cut(self) -> None:
        """Every stream breaks, and what is on its way is lost."""
        for stream in self.model.streams:
            self.model.end(stream)
            stream.breaks()
        self._moving.set()

    # -- what a client may ask ---------------------------------------------------------------------------

    async def get_subscription(self, request: Any, context: Any) -> Any:
        topic = "projects/my-project/topics/shop.order.events"
        return raw("Subscription")(name=PATH, topic=topic, ack_deadline_seconds=600)

    async def pull(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        stream = self.model.open((await anext(requests)).client_id)
        try:
            while (sent := await stream.on_its_way.get()) is not None:
                await self._moving.wait()
                if stream.ended:
                    break
                yield letter(sent)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the stream has ended")
        finally:
            self.model.end(stream)

    async def acknowledge(self, request: Any, context: Any) -> Any:
        if causes := self.model.acknowledge(request.ack_ids):
            info = Packed()
            info.Pack(error_details_pb2.ErrorInfo(reason="EXACTLY_ONCE_ACKID_FAILURE", metadata=causes))
            told = status_pb2.Status(code=grpc.StatusCode.INVALID_ARGUMENT.value[0], details=[info])
            context.set_trailing_metadata((("grpc-status-details-bin", told.SerializeToString()),))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "")
        return Empty()

    async def modify(self, request: Any, context: Any) -> Any:
        self.model.extend(request.ack_ids, request.ack_deadline_seconds)
        return Empty()

    async def start(self) -> tuple[Any, int]:
        server = grpc.aio.server()
        calls = {
            "GetSubscription": grpc.unary_unary_rpc_method_handler(
                self.get_subscription, raw("GetSubscriptionRequest").FromString, raw("Subscription").SerializeToString
            ),
            "StreamingPull": grpc.stream_stream_rpc_method_handler(
                self.pull, raw("StreamingPullRequest").FromString, raw("StreamingPullResponse").SerializeToString
            ),
            "Acknowledge": grpc.unary_unary_rpc_method_handler(
                self.acknowledge, raw("AcknowledgeRequest").FromString, Empty.SerializeToString
            ),
            "ModifyAckDeadline": grpc.unary_unary_rpc_method_handler(
                self.modify, raw("ModifyAckDeadlineRequest").FromString, Empty.SerializeToString
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("google.pubsub.v1.Subscriber", calls),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, str]]:
    """The server, and its URL."""
    one = Server()
    server, port = await connections_thread().run(one.start)
    try:
        yield one, f"pubsub://my-project?emulator=127.0.0.1:{port}"
    finally:
        await connections_thread().run(server.stop, 0)
