"""Dead letters: a topic for each topic, and a subscription to it in which they are kept and looked at."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.empty_pb2 import Empty

from postroad.brokers.base import Confirmed, DeadLetter, Refused
from postroad.brokers.pubsub.address import Address, short
from postroad.brokers.pubsub.letter import fitting_value, published_at, read, with_notes
from postroad.brokers.pubsub.line import Line, Outage, Rejection, missing, raw
from postroad.brokers.pubsub.publisher import Publisher
from postroad.brokers.pubsub.receiver import PubSubDelivery
from postroad.clock import Clock
from postroad.errors import BrokerUnavailable
from postroad.message import parse_rfc3339, rfc3339

T = TypeVar("T")

_MOST: Final = 1_000
_EMPTY: Final = 2
"""Looks in a row that find nothing: one alone proves little where many servers share the letters."""
_PATIENCE: Final = 2.0
"""Seconds that such a look waits, in the cloud."""
_THEIRS: Final = "CloudPubSubDeadLetterSource"
"""Begins the attributes that Pub/Sub adds to a letter which it has put here by itself."""


def monitor(topic: str) -> str:
    return f"{topic}.dlq-monitor"


@dataclass(slots=True, eq=False)
class _Grave:
    """A letter, and every copy of it: one may have been buried twice, for want of an answer."""

    letter: DeadLetter
    key: str
    ack_ids: list[str]


class Graveyard:
    """Lives in the connection's thread."""

    def __init__(self, line: Line, publisher: Publisher, address: Address, clock: Clock) -> None:
        self._line, self._publisher, self._address, self._clock = line, publisher, address, clock
        self._visiting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By topic. What one visitor looks at is invisible to another."""

    async def bury(self, delivery: PubSubDelivery, reason: str) -> None:
        letter = with_notes(
            delivery.attributes,
            delivery.data,
            # In no order with others: it has left its key.
            "",
            # The same each time it is tried.
            id=f"{delivery.arrival.id}-{delivery.subscription.removeprefix(delivery.topic + '.')}",
            subscription=delivery.subscription,
            reason=fitting_value(reason),
            died=rfc3339(self._clock.now()),
            lane=delivery.key,
        )
        outcome = await self._publisher.place(f"{delivery.topic}.dlq", letter)
        if not isinstance(outcome, Confirmed):
            # It is still in hand, so there is time to put that right.
            raise BrokerUnavailable(f"The dead letter is kept until Pub/Sub takes it: {outcome.reason}")

    async def letters(self, topic: str, limit: int, after: str) -> list[DeadLetter]:
        async def look(graves: list[_Grave]) -> list[DeadLetter]:
            found = [grave.letter for grave in graves]
            places = [place for place, letter in enumerate(found) if letter.id == after]
            first = places[0] + 1 if places else 0
            return found[first : first + max(0, limit)]

        return await self._visit(topic, look)

    async def revive(self, topic: str, ids: Sequence[str]) -> int:
        """To its topic, with a note for whom: a topic cannot be sent to one subscription alone."""
        return await self._remove(topic, ids, self._send_back)

    async def discard(self, topic: str, ids: Sequence[str]) -> int:
        async def forget(_: _Grave) -> bool:
            return True

        return await self._remove(topic, ids, forget)

    async def _remove(self, topic: str, ids: Sequence[str], deal_with: Callable[[_Grave], Awaitable[bool]]) -> int:
        async def remove(graves: list[_Grave]) -> int:
            done = [grave for grave in graves if grave.letter.id in ids and await deal_with(grave)]
            await self._settle(topic, "Acknowledge", _ids(done))
            return len(done)

        return await self._visit(topic, remove) if ids else 0

    async def _send_back(self, grave: _Grave) -> bool:
        letter = grave.letter
        if not letter.subscription:
            return False
        again = with_notes(letter.attributes, letter.data, grave.key, **{"for": letter.subscription})
        outcome = await self._publisher.place(letter.topic, again)
        if isinstance(outcome, Refused):
            return False  # its topic is gone: it stays where it is
        if not isinstance(outcome, Confirmed):
            raise BrokerUnavailable(outcome.reason)
        return True

    async def _visit(self, topic: str, deal_with: Callable[[list[_Grave]], Awaitable[T]]) -> T:
        """All of them, oldest first. What was not dealt with goes back at once."""
        graves: dict[str, _Grave] = {}
        async with self._visiting[topic]:
            try:
                await self._fetch(topic, graves)
                found = sorted(graves.values(), key=lambda grave: (grave.letter.died_at, grave.letter.id))
                return await deal_with(found)
            finally:
                await self._settle(topic, "ModifyAckDeadline", _ids(graves.values()))

    async def _fetch(self, topic: str, graves: dict[str, _Grave]) -> None:
        request = raw("PullRequest")(
            subscription=self._address.subscription(monitor(topic)),
            max_messages=_MOST,
            # The emulator knows at once what it has. In the cloud such an answer would say nothing.
            return_immediately=bool(self._address.emulator),
        )
        empty = 0
        while empty < _EMPTY:
            try:
                answer = await self._line.ask(
                    "Subscriber/Pull", request, raw("PullResponse"), about="subscription", timeout=_PATIENCE
                )
            except Outage as outage:
                # Whoever is turned away has seen nothing, not that there is nothing.
                silent = outage.code is grpc.StatusCode.DEADLINE_EXCEEDED
                if self._address.emulator or not silent or not await self._is_there(topic):
                    raise
                return  # nothing has come in all that time
            except Rejection as rejection:
                if missing(rejection):
                    return
                raise
            empty = 0 if answer.received_messages else empty + 1
            for received in answer.received_messages:
                grave = self._grave(topic, received)
                graves.setdefault(grave.letter.id, grave).ack_ids.append(received.ack_id)

    async def _is_there(self, topic: str) -> bool:
        request = raw("GetSubscriptionRequest")(subscription=self._address.subscription(monitor(topic)))
        await self._line.ask("Subscriber/GetSubscription", request, raw("Subscription"), about="subscription")
        return True

    async def _settle(self, topic: str, how: str, ids: Sequence[str]) -> None:
        """Acknowledge takes them away, ModifyAckDeadline (to nothing) leaves them for the next visitor."""
        path = self._address.subscription(monitor(topic))
        for first in range(0, len(ids), _MOST):
            request = raw(f"{how}Request")(subscription=path, ack_ids=ids[first : first + _MOST])
            await self._line.ask(f"Subscriber/{how}", request, Empty, about="subscription")

    def _grave(self, topic: str, received: Any) -> _Grave:
        message = received.message
        attributes, data, ours = read(message)
        theirs = {
            name.removeprefix(_THEIRS): attributes.pop(name) for name in list(attributes) if name.startswith(_THEIRS)
        }
        attempts = theirs.get("DeliveryCount", "1")
        letter = DeadLetter(
            id=ours.get("id") or message.message_id,
            topic=topic,
            subscription=ours.get("subscription") or short(theirs.get("Subscription", "")),
            reason=ours.get("reason") or f"dropped by Pub/Sub after {attempts} deliveries",
            attempts=int(attempts) if attempts.isdigit() else 1,
            died_at=parse_rfc3339(ours["died"]) if "died" in ours else published_at(message),
            attributes=attributes,
            data=data,
        )
        return _Grave(letter, ours.get("lane", message.ordering_key), [])


def _ids(graves: Iterable[_Grave]) -> list[str]:
    return [id for grave in graves for id in grave.ack_ids]
