"""What the emulator cannot do, done with what it can: it counts nothing, and sets no ordered subscription to a time.

Both are done by snapshots. Each subscription has one from its beginning, taken when it is created, from which
everything that came since can be read by another subscription beside it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

import grpc
from google.protobuf.empty_pb2 import Empty

from postroad.brokers.base import Depth
from postroad.brokers.pubsub.letter import published_at
from postroad.brokers.pubsub.line import Line, Rejection, missing, raw
from postroad.errors import UnsupportedByBroker

_MOST: Final = 1_000
_LONG: Final = 600
"""Seconds."""


class Emulator:
    """Lives in the connection's thread."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def forget_beginning(self, subscription: str) -> None:
        try:
            await self._drop(_beginning(subscription))
        except Rejection as rejection:
            if not missing(rejection):
                raise

    async def remember_beginning(self, subscription: str) -> None:
        await self.forget_beginning(subscription)  # somebody else may have deleted a subscription of that name
        try:
            await self._take(subscription, _beginning(subscription))
        except Rejection as rejection:
            if rejection.code is not grpc.StatusCode.ALREADY_EXISTS:  # somebody else has just taken it
                raise

    async def depth(self, live: Any) -> Depth:
        here = f"{_snapshots(live.name)}.{uuid4().hex}"
        await self._take(live.name, here)
        async with self._beside(live, here) as other:
            await self._drop(here)
            published = [published_at(one.message) for one in await self._pull_all(other)]
        return Depth(len(published), 0, min(published, default=None))

    async def set_back(self, live: Any, to: datetime) -> None:
        """To its beginning, and from there over what was before that time."""
        here = f"{_snapshots(live.name)}.{uuid4().hex}"
        try:
            async with self._beside(live, _beginning(live.name)) as other:
                before = [one.ack_id for one in await self._pull_all(other) if published_at(one.message) < to]
                for first in range(0, len(before), _MOST):
                    request = raw("AcknowledgeRequest")(subscription=other, ack_ids=before[first : first + _MOST])
                    await self._line.ask("Subscriber/Acknowledge", request, Empty, about="subscription")
                await self._take(other, here)
        except Rejection as rejection:
            if not missing(rejection):
                raise
            raise UnsupportedByBroker(
                "Pub/Sub emulator's", "seek to a time", "It can where the subscription was created by Postroad's apply."
            ) from None
        await self._seek(live.name, here)
        await self._drop(here)

    @asynccontextmanager
    async def _beside(self, live: Any, snapshot: str) -> AsyncIterator[str]:
        """Another subscription of the same kind, for a moment, with what a snapshot holds."""
        other = raw("Subscription")(
            name=f"{live.name}.{uuid4().hex}",
            topic=live.topic,
            ack_deadline_seconds=_LONG,
            enable_message_ordering=live.enable_message_ordering,
        )
        await self._line.ask("Subscriber/CreateSubscription", other, raw("Subscription"), about="name")
        try:
            await self._seek(other.name, snapshot)
            yield other.name
        finally:
            gone = raw("DeleteSubscriptionRequest")(subscription=other.name)
            await self._line.ask("Subscriber/DeleteSubscription", gone, Empty, about="subscription")

    async def _pull_all(self, subscription: str) -> list[Any]:
        request = raw("PullRequest")(subscription=subscription, max_messages=_MOST, return_immediately=True)
        found: list[Any] = []
        while True:
            answer = await self._line.ask("Subscriber/Pull", request, raw("PullResponse"), about="subscription")
            if not answer.received_messages:
                return found
            found += answer.received_messages

    async def _take(self, subscription: str, name: str) -> None:
        request = raw("CreateSnapshotRequest")(name=name, subscription=subscription)
        await self._line.ask("Subscriber/CreateSnapshot", request, raw("Snapshot"), about="name")

    async def _drop(self, snapshot: str) -> None:
        request = raw("DeleteSnapshotRequest")(snapshot=snapshot)
        await self._line.ask("Subscriber/DeleteSnapshot", request, Empty, about="snapshot")

    async def _seek(self, subscription: str, snapshot: str) -> None:
        request = raw("SeekRequest")(subscription=subscription, snapshot=snapshot)
        await self._line.ask("Subscriber/Seek", request, raw("SeekResponse"), about="subscription")


def _snapshots(subscription: str) -> str:
    return subscription.replace("/subscriptions/", "/snapshots/")


def _beginning(subscription: str) -> str:
    return f"{_snapshots(subscription)}.beginning"
