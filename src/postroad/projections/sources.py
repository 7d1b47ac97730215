"""Where a rebuild gets the events from."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from uuid import uuid4

from postroad.brokers.base import Broker, Delivery, Flow, Receiver, Replaying, Subscription, Topology
from postroad.clock import SKEW, Clock
from postroad.errors import BrokerError, BrokerUnavailable, PoisonError, UnsupportedByBroker
from postroad.message import Message
from postroad.naming import check_group
from postroad.stores.base import Store
from postroad.stores.history import Place, pages
from postroad.stores.rows import message_of
from postroad.stores.tables import OutboxTable

_PATIENCE: Final = 1.0
"""Seconds; then the broker is asked again whether there is more: what it counts may not be for us."""
_SILENCE: Final = 60.0
"""Seconds in which nothing has come that is older than the replay: where nobody counts, that is the end. If it was not,
the rebuild lacks rows or versions that the table has, and replaces nothing. Where somebody counts more,
that is an error: it would never come."""
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log = logging.getLogger("postroad")


class Source(Protocol):
    """Everything that had happened when `read` was called, each aggregate's events in order; and then it ends.

    What happens later may come too, or not. What comes that is not the projection's is passed over. One that waits for
    the next event gives None now and then: who is silent for long counts as dead.
    """

    async def size(self) -> int:
        """About how many events, for those who watch; 0 if nobody knows."""

    def read(self) -> AsyncGenerator[Message | None, None]: ...


class OutboxSource:
    """The owner's outbox, where it is in the same database. It holds what its retention has left."""

    def __init__(self, store: Store, outboxes: Sequence[OutboxTable], aggregate: str) -> None:
        self._store, self._outboxes, self._aggregate = store, outboxes, aggregate

    async def size(self) -> int:
        return sum([await self._size(outbox) for outbox in self._outboxes])

    async def _size(self, outbox: OutboxTable) -> int:
        found = await self._store.read("outbox_replay_size", outbox, aggregate_type=self._aggregate)
        return int(found.rows[0].events)

    async def read(self) -> AsyncGenerator[Message, None]:
        for outbox in self._outboxes:
            # Closed before the rebuild goes on, whatever ends it.
            async with aclosing(self._history(outbox)) as messages:
                async for message in messages:
                    if not message.deliver_at or message.deliver_at <= self._store.clock.now():
                        yield message

    async def _history(self, outbox: OutboxTable) -> AsyncGenerator[Message, None]:
        async with aclosing(pages(self._store, "outbox_replay", _place, self._aggregate, outbox)) as found:
            async for rows in found:
                for row in rows:
                    yield message_of(row, row.payload, self._store, outbox)


class BrokerSource:
    """What the broker still keeps, through a subscription of its own: that of the group stays where it is, and so do
    its inbox and its other handlers."""

    def __init__(
        self, broker: Broker, topics: Sequence[str], name: str, *, clock: Clock, since: datetime | None = None
    ) -> None:
        """`name`: the projection's. `since`: not everything, but what was published from then on."""
        if not broker.features.seek or not isinstance(broker, Replaying):
            raise UnsupportedByBroker(
                broker.address.partition(":")[0], "replay", "Give the projection another source of its events."
            )
        self._broker, self._clock, self._since = broker, clock, since or _BEGINNING
        self._prefix = f"{name.replace('_', '-')}-rebuild-"
        # Of this attempt alone: one that was given up, and does not know it yet, must not disturb the next.
        group = check_group(f"{self._prefix}{uuid4().hex[:8]}")
        self._subscriptions = tuple(Subscription(f"{topic}.{group}", topic) for topic in topics)

    async def size(self) -> int:
        """Sets the subscriptions back; the broker counts while it does."""
        await self._leave(self._prefix)
        try:
            await self._broker.apply(Topology(tuple(s.topic for s in self._subscriptions), self._subscriptions))
            return sum([await self._broker.seek(s.name, self._since) or 0 for s in self._subscriptions])
        except BaseException:
            await self._leave()
            raise

    async def read(self) -> AsyncGenerator[Message | None, None]:
        await self.size()
        until = self._clock.now() + SKEW
        try:
            for subscription in self._subscriptions:
                # Closed before its subscription goes.
                async with aclosing(self._replay(subscription, until)) as messages:
                    async for message in messages:
                        yield message
        finally:
            await self._leave()

    async def _replay(self, subscription: Subscription, until: datetime) -> AsyncGenerator[Message | None, None]:
        receiver, quiet = await self._broker.subscribe(subscription.name, Flow()), 0.0
        try:
            while True:
                try:
                    if not await self._is_more(subscription.name, until, quiet):
                        return
                    if quiet >= _SILENCE:
                        raise BrokerError(
                            f"{subscription.name} counts messages that its broker does not hand out. Rebuild again."
                        )
                except BrokerUnavailable as error:
                    # The receiver waits an outage out, and so do we: hours of rebuilding are not worth one slow answer.
                    _log.warning("%s The rebuild goes on when it answers.", error)
                    quiet = 0.0
                asked = self._clock.monotonic()
                deliveries = await self._some(receiver)
                quiet += self._clock.monotonic() - asked
                if not deliveries:
                    yield None
                for delivery in deliveries:
                    # At once: if this rebuild fails, the next one begins anew.
                    await delivery.ack()
                    if message := _read(subscription.topic, delivery):
                        quiet = 0.0 if message.occurred_at <= until else quiet
                        yield message
        finally:
            await receiver.aclose()

    async def _some(self, receiver: Receiver) -> Sequence[Delivery]:
        try:
            return await self._clock.wait_for(receiver.receive(), _PATIENCE)
        except TimeoutError:
            return ()

    async def _is_more(self, subscription: str, until: datetime, quiet: float) -> bool:
        try:
            depth = await self._broker.depth(subscription)
        except UnsupportedByBroker:
            return quiet < _SILENCE
        return depth.messages > depth.delayed and (depth.oldest is None or depth.oldest <= until)

    async def _leave(self, prefix: str = "") -> None:
        """Nobody would read what arrived there, and it would be kept for ever. With `prefix`, also what others left."""
        ours = {subscription.name for subscription in self._subscriptions}
        old = tuple(f"{subscription.topic}.{prefix}" for subscription in self._subscriptions) if prefix else ()
        for there in await self._broker.subscriptions():
            if there.name in ours or there.name.startswith(old):
                await self._broker.drop(there.name)


def _place(row: Any) -> Place:
    return str(row.aggregate_id), row.version


def _read(topic: str, delivery: Delivery) -> Message | None:
    try:
        return Message.from_wire(topic, delivery.attributes, delivery.data)
    except PoisonError as error:
        _log.warning("a message of %s is passed over: %s", topic, error)
        return None
