"""Setting a subscription back, and counting what it holds."""

from datetime import datetime
from typing import Any, Final

import grpc
from google.protobuf.empty_pb2 import Empty

from postroad.brokers.base import Depth
from postroad.brokers.pubsub.address import Address
from postroad.brokers.pubsub.emulator import Emulator
from postroad.brokers.pubsub.line import Line, Rejection, missing, raw
from postroad.brokers.pubsub.structure import Structure
from postroad.errors import ConfigurationError, SubscriptionMissing, UnsupportedByBroker

_NO_DEPTH: Final = "Cloud Monitoring estimates it, for status and metrics: add monitoring=yes to the URL."


class Replay:
    """Lives in the connection's thread."""

    def __init__(self, line: Line, structure: Structure, address: Address) -> None:
        self._line, self._structure, self._address = line, structure, address
        self._emulator = Emulator(line) if address.emulator else None

    async def seek(self, subscription: str, to: datetime | str) -> int | None:
        """How many come again; None in the cloud, where nobody counts them."""
        live = await self._live(subscription)
        if isinstance(to, str):
            await self._to_snapshot(subscription, to)
        elif self._emulator:
            await self._emulator.set_back(live, to)
        else:
            request = raw("SeekRequest")(subscription=live.name)
            request.time.FromDatetime(to)
            await self._line.ask("Subscriber/Seek", request, raw("SeekResponse"), about="subscription")
        return (await self._emulator.depth(live)).messages if self._emulator else None

    async def snapshot(self, subscription: str, name: str) -> None:
        """One of that name is replaced."""
        live, path = await self._live(subscription), self._snapshot(subscription, name)
        request = raw("CreateSnapshotRequest")(name=path, subscription=live.name)
        try:
            await self._line.ask("Subscriber/CreateSnapshot", request, raw("Snapshot"), about="name")
        except Rejection as rejection:
            if rejection.code is not grpc.StatusCode.ALREADY_EXISTS:
                raise
            gone = raw("DeleteSnapshotRequest")(snapshot=path)
            await self._line.ask("Subscriber/DeleteSnapshot", gone, Empty, about="snapshot")
            await self._line.ask("Subscriber/CreateSnapshot", request, raw("Snapshot"), about="name")

    async def depth(self, subscription: str) -> Depth:
        if not self._emulator:
            raise UnsupportedByBroker("Pub/Sub", "depth", _NO_DEPTH)
        return await self._emulator.depth(await self._live(subscription))

    async def _to_snapshot(self, subscription: str, name: str) -> None:
        path = self._address.subscription(subscription)
        request = raw("SeekRequest")(subscription=path, snapshot=self._snapshot(subscription, name))
        try:
            await self._line.ask("Subscriber/Seek", request, raw("SeekResponse"), about="subscription")
        except Rejection as rejection:
            if not missing(rejection):
                raise
            raise ConfigurationError(
                f"Subscription {subscription!r} has no snapshot {name!r}. Take one first; they last seven days at most."
            ) from None

    async def _live(self, subscription: str) -> Any:
        live = await self._structure.find(subscription)
        if live is None:
            raise SubscriptionMissing(subscription)
        return live

    def _snapshot(self, subscription: str, name: str) -> str:
        """Snapshots belong to a project, not to a subscription."""
        return self._address.snapshot(f"{subscription}.{name}")
