"""Sending: many keys side by side, of each key one request at a time."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

import grpc

from postroad.brokers.base import Confirmed, Outcome, Refused, Unavailable
from postroad.brokers.pubsub.address import Address
from postroad.brokers.pubsub.letter import MAX_REQUEST_BYTES, write
from postroad.brokers.pubsub.line import Line, Rejection, raw
from postroad.errors import BrokerError
from postroad.message import Message

_MOST_IN_A_REQUEST: Final = 1_000
_ROOM_PER_MESSAGE: Final = 1_024
"""Bytes for lengths and tags of a message's fields, and for the key."""
_AT_ONCE: Final = 64
"""Requests of a batch that are on their way. A relay has up to three batches on theirs, and each request costs more the
more there are."""
_CONFIRMED: Final = Confirmed()
_BEHIND: Final = Unavailable("held back by a predecessor of its key that was not taken")
_NOT_YET: Final = Unavailable("not sent yet: the earlier ones of its key have taken long enough")

_PublishRequest: Final = raw("PublishRequest")
_PublishResponse: Final = raw("PublishResponse")


class Publisher:
    """Lives in the connection's thread."""

    def __init__(self, line: Line, address: Address) -> None:
        self._line, self._address = line, address

    async def send(self, batch: Sequence[Message]) -> list[Outcome]:
        """An outcome for each, within the time limit. Whatever had no answer by then may still have arrived."""
        lanes: dict[tuple[str, str], list[int]] = {}
        for position, message in enumerate(batch):
            lanes.setdefault((message.topic, message.wire_key), []).append(position)
        outcomes: list[Outcome] = [_BEHIND] * len(batch)
        letters = [write(message) for message in batch]
        deadline = asyncio.get_running_loop().time() + self._address.publish_timeout
        waiting = iter(lanes.items())

        async def walk() -> None:
            for (topic, key), positions in waiting:
                take = self._in_order if key else self._in_any_order
                await take(topic, letters, positions, outcomes, deadline)

        # One lane after the other, many side by side. A task for each lane would cost more than its request.
        await asyncio.gather(*(walk() for _ in range(min(_AT_ONCE, len(lanes)))))
        return outcomes

    async def place(self, topic: str, letter: Any) -> Outcome:
        """One letter, whatever its key."""
        return await self._request(topic, [letter], asyncio.get_running_loop().time() + self._address.publish_timeout)

    async def _in_order(
        self, topic: str, letters: list[Any], positions: list[int], outcomes: list[Outcome], deadline: float
    ) -> None:
        """Ends at the first that is not taken."""
        late = deadline - self._address.publish_timeout / 2
        for part in _parts(letters, positions):
            if asyncio.get_running_loop().time() > late:
                # A long run of one key must not take so long that its sender gives up on all of it.
                for position in positions[positions.index(part[0]) :]:
                    outcomes[position] = _NOT_YET
                return
            outcome = await self._taken(topic, letters, part, deadline)
            if isinstance(outcome, Refused) and len(part) > 1:
                # One of them is at fault, and the others pay for it. Alone each has its own answer.
                await self._in_order_one_by_one(topic, letters, positions, part[0], outcomes, deadline)
                return
            if outcome is not _CONFIRMED:
                outcomes[part[0]] = outcome
                return
            for position in part:
                outcomes[position] = outcome

    async def _in_order_one_by_one(
        self, topic: str, letters: list[Any], positions: list[int], first: int, outcomes: list[Outcome], deadline: float
    ) -> None:
        for position in positions[positions.index(first) :]:
            outcomes[position] = await self._taken(topic, letters, [position], deadline)
            if outcomes[position] is not _CONFIRMED:
                return

    async def _in_any_order(
        self, topic: str, letters: list[Any], positions: list[int], outcomes: list[Outcome], deadline: float
    ) -> None:
        """Each for itself: they have no key."""

        async def settle(part: Sequence[int]) -> None:
            outcome = await self._taken(topic, letters, part, deadline)
            if isinstance(outcome, Refused) and len(part) > 1:
                await asyncio.gather(*(settle([position]) for position in part))
                return
            for position in part:
                outcomes[position] = outcome

        await asyncio.gather(*(settle(part) for part in _parts(letters, positions)))

    async def _taken(self, topic: str, letters: list[Any], part: Sequence[int], deadline: float) -> Outcome:
        if isinstance(letters[part[0]], Refused):
            return letters[part[0]]  # type: ignore[no-any-return]
        return await self._request(topic, [letters[position] for position in part], deadline)

    async def _request(self, topic: str, letters: Sequence[Any], deadline: float) -> Outcome:
        request = _PublishRequest(topic=self._address.topic(topic), messages=letters)
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return Unavailable(f"not sent within {self._address.publish_timeout:g} s")
        try:
            await self._line.ask("Publisher/Publish", request, _PublishResponse, about="topic", timeout=left)
        except Rejection as rejection:
            return _judged(topic, rejection)
        except BrokerError as error:
            return Unavailable(str(error))
        return _CONFIRMED


def _judged(topic: str, rejection: Rejection) -> Refused | Unavailable:
    if rejection.code is grpc.StatusCode.NOT_FOUND:
        return Refused(f"topic {topic!r} does not exist. Run: postroad topology apply")
    if rejection.code is grpc.StatusCode.INVALID_ARGUMENT:
        return Refused(rejection.details)
    # A key that may not be used, a policy that is not met: for a person to mend, and no message's own fault.
    return Unavailable(str(rejection))


def _parts(letters: Sequence[Any], positions: Sequence[int]) -> Iterator[list[int]]:
    """As many as fit in a request. What was refused before it could be sent stands alone."""
    part: list[int] = []
    size = 0
    for position in positions:
        letter = letters[position]
        if isinstance(letter, Refused):
            if part:
                yield part
            yield [position]
            part, size = [], 0
            continue
        own = letter.ByteSize() + _ROOM_PER_MESSAGE
        if part and (len(part) == _MOST_IN_A_REQUEST or size + own > MAX_REQUEST_BYTES):
            yield part
            part, size = [], 0
        part.append(position)
        size += own
    if part:
        yield part
