"""What Google's emulator lacks: a Pub/Sub with protobuf schemas, that refuses what does not fit them.

It keeps to Google's word on definitions: one message at the top, and no imports.
"""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from postroad.brokers.pubsub.line import connections_thread, raw
from tests.support.protos import compiled, described


class Registry:
    def __init__(self) -> None:
        self.things: dict[str, Any] = {}
        """Topics, subscriptions and schemas, by their paths."""
        self.created: list[Any] = []
        """The requests for schemas."""
        self.taken: list[bytes] = []

    async def get(self, request: Any, context: Any) -> Any:
        (path,) = (value for field, value in request.ListFields() if field.type == field.TYPE_STRING)
        if path not in self.things:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Resource not found (resource={path}).")
        return self.things[path]

    async def create(self, request: Any, context: Any) -> Any:
        self.things[request.name] = request
        return request

    async def create_snapshot(self, request: Any, context: Any) -> Any:
        return raw("Snapshot")(name=request.name)

    async def create_schema(self, request: Any, context: Any) -> Any:
        self.created.append(request)
        with tempfile.TemporaryDirectory() as folder:
            *_, file = described(Path(folder), schema=request.schema.definition).file
        if len(file.message_type) != 1 or file.enum_type or file.dependency:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "one top-level type, and no imports")
        made = raw("Schema")()
        made.CopyFrom(request.schema)
        made.name = f"{request.parent}/schemas/{request.schema_id}"
        self.things[made.name] = made
        return made

    async def publish(self, request: Any, context: Any) -> Any:
        settings = self.things[request.topic].schema_settings
        definition = self.things[settings.schema].definition
        with tempfile.TemporaryDirectory() as folder:
            (file,) = described(Path(folder), schema=definition).file
            cls = compiled(Path(folder), file.message_type[0].name, schema=definition)
        for message in request.messages:
            try:
                cls.FromString(message.data)
            except DecodeError:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Invalid data in message: Message failed schema")
        self.taken += [message.data for message in request.messages]
        return raw("PublishResponse")(message_ids=[str(len(self.taken))] * len(request.messages))

    async def start(self) -> tuple[Any, int]:
        server = grpc.aio.server()
        calls = {
            "Publisher": {
                "GetTopic": (self.get, "GetTopicRequest", "Topic"),
                "CreateTopic": (self.create, "Topic", "Topic"),
                "Publish": (self.publish, "PublishRequest", "PublishResponse"),
            },
            "Subscriber": {
                "GetSubscription": (self.get, "GetSubscriptionRequest", "Subscription"),
                "CreateSubscription": (self.create, "Subscription", "Subscription"),
                # Which the adapter takes of each subscription of an emulator.
                "CreateSnapshot": (self.create_snapshot, "CreateSnapshotRequest", "Snapshot"),
                "DeleteSnapshot": (self.get, "DeleteSnapshotRequest", "Snapshot"),
            },
            "SchemaService": {
                "GetSchema": (self.get, "GetSchemaRequest", "Schema"),
                "CreateSchema": (self.create_schema, "CreateSchemaRequest", "Schema"),
            },
        }
        for service, methods in calls.items():
            handlers = {
                name: grpc.unary_unary_rpc_method_handler(call, raw(asked).FromString, raw(given).SerializeToString)
                for name, (call, asked, given) in methods.items()
            }
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(f"google.pubsub.v1.{service}", handlers),)
            )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Registry, str]]:
    """The registry, and its URL."""
    one = Registry()
    server, port = await connections_thread().run(one.start)
    try:
        yield one, f"pubsub://my-project?emulator=127.0.0.1:{port}"
    finally:
        await connections_thread().run(server.stop, 0)
