"""Sending: many keys side by side, of each key one message at a time."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from postroad.brokers.base import Confirmed, Outcome, Refused, Unavailable
from postroad.brokers.rabbitmq.confirms import Confirms, Suspected
from postroad.brokers.rabbitmq.letter import Letter
from postroad.brokers.rabbitmq.line import Line
from postroad.errors import BrokerError, BrokerUnavailable

QUEUES: Final = ""
"""The nameless exchange, which leads to any queue by its name."""


@dataclass(frozen=True, slots=True, eq=False)
class Addressed:
    """One message of a batch. Messages with an equal lane follow one another; None follows nobody."""

    lane: tuple[str, str] | None
    letter: Letter | Refused | Unavailable
    """Or what became of it before it could be one."""


class Publisher:
    """Lives in the connections' thread."""

    def __init__(self, line: Line, timeout: float) -> None:
        self._line, self._timeout = line, timeout
        self._channels: dict[str, Confirms] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def send(self, batch: Sequence[Addressed]) -> list[Outcome]:
        """An outcome for each, within the time limit. Whatever had no answer by then may still have arrived."""
        if self._line.blocked:
            # What is written now would only wait in the server's buffer, to arrive in its own good time.
            return [Unavailable(f"RabbitMQ takes no messages at the moment: {self._line.blocked}")] * len(batch)
        channels: dict[str, Confirms | Unavailable] = {}
        for one in batch:
            if isinstance(one.letter, Letter) and one.letter.exchange not in channels:
                channels[one.letter.exchange] = await self._channel(one.letter.exchange)
        deadline = asyncio.get_running_loop().time() + self._timeout
        dispatch, answers_before = _Dispatch(batch, channels), self._line.answers
        # So that whatever is on its way by then has as much time again to be answered.
        winding_up = asyncio.get_running_loop().call_later(self._timeout / 2, dispatch.wind_up)
        try:
            dispatch.begin()
            async with asyncio.timeout_at(deadline):
                await dispatch.finished
        except TimeoutError:
            if self._line.answers > answers_before:
                # Others were answered: it is a queue of these that does not, and their channel alone is given up.
                self._leave(dispatch.unanswered())
            elif not self._line.blocked:
                # Silence without a reason: this connection is dead, and a new one may not be.
                self._line.abort()
        finally:
            winding_up.cancel()
            dispatch.abandon(f"no confirmation within {self._timeout:g} s")
        outcomes = dispatch.outcomes()
        await self._find_culprits(batch, outcomes, deadline)
        return outcomes

    def had_rejections(self) -> bool:
        """Since it was last asked."""
        rejected = [exchange for exchange, channel in self._channels.items() if channel.rejected]
        for exchange in rejected:
            del self._channels[exchange]
        return bool(rejected)

    async def place(self, letter: Letter) -> None:
        """One message, surely. Raises BrokerUnavailable, or BrokerError when it is refused."""
        (outcome,) = await self.send([Addressed(None, letter)])
        if isinstance(outcome, Unavailable):
            raise BrokerUnavailable(outcome.reason)
        if isinstance(outcome, Refused):
            raise BrokerError(outcome.reason)

    async def _find_culprits(self, batch: Sequence[Addressed], outcomes: list[Outcome], deadline: float) -> None:
        """Sends what is suspected once more, each alone: else the same batch would fail like this for ever. Those that
        had arrived, unanswered, arrive twice."""
        suspected = [position for position, outcome in enumerate(outcomes) if isinstance(outcome, Suspected)]
        channel: Confirms | None = None
        try:
            async with asyncio.timeout_at(deadline):
                for position in suspected:
                    letter = batch[position].letter
                    if isinstance(letter, Letter):
                        channel = channel if channel and channel.usable else await Confirms.open(self._line)
                        outcomes[position] = await channel.confirmed(letter)
        except (BrokerError, TimeoutError):
            pass  # the rest remains what it is: not sent
        finally:
            if channel:
                channel.leave()

    def _leave(self, exchanges: Iterable[str]) -> None:
        for exchange in exchanges:
            if channel := self._channels.pop(exchange, None):
                channel.leave()

    async def _channel(self, exchange: str) -> Confirms | Unavailable:
        """One for each exchange: if the server closes it, the messages of other topics are not concerned."""
        async with self._opening.setdefault(exchange, asyncio.Lock()):
            known = self._channels.get(exchange)
            if known is None or not known.usable:
                try:
                    known = self._channels[exchange] = await Confirms.open(self._line)
                except BrokerError as error:
                    return Unavailable(str(error))
            return known


class _Dispatch:
    """One batch on its way."""

    def __init__(self, batch: Sequence[Addressed], channels: dict[str, Confirms | Unavailable]) -> None:
        self._batch, self._channels = batch, channels
        self._outcomes: list[Outcome | None] = [None] * len(batch)
        self._undecided = len(batch)
        self._lanes: dict[tuple[str, str], deque[int]] = {}
        self._abandoned = self._late = False
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        first = []
        for position, one in enumerate(self._batch):
            if one.lane is not None and one.lane in self._lanes:
                self._lanes[one.lane].append(position)
                continue
            if one.lane is not None:
                self._lanes[one.lane] = deque()
            first.append(position)
        for position in first:
            self._publish(position)
        if not self._batch:
            self.finished.set_result(None)

    def wind_up(self) -> None:
        """Nothing more is begun: a long run of one key must not take so long that its sender gives up on all of it."""
        self._late = True

    def unanswered(self) -> set[str]:
        """The exchanges of what is still undecided."""
        left = (one.letter for one, outcome in zip(self._batch, self._outcomes, strict=True) if outcome is None)
        return {letter.exchange for letter in left if isinstance(letter, Letter)}

    def abandon(self, reason: str) -> None:
        """Answers that come from now on change nothing, and nothing more is published."""
        self._abandoned = True
        self._outcomes = [Unavailable(reason) if outcome is None else outcome for outcome in self._outcomes]

    def outcomes(self) -> list[Outcome]:
        return [outcome for outcome in self._outcomes if outcome is not None]

    def _publish(self, position: int) -> None:
        letter = self._batch[position].letter
        target = self._channels[letter.exchange] if isinstance(letter, Letter) else letter
        if isinstance(letter, Letter) and isinstance(target, Confirms):
            target.publish(letter, position, self._decide)
        elif isinstance(target, Refused | Unavailable):
            self._decide(position, target)

    def _decide(self, position: int, outcome: Outcome) -> None:
        if self._abandoned:
            return
        self._outcomes[position] = outcome
        self._undecided -= 1
        lane = self._batch[position].lane
        if lane is not None and (followers := self._lanes[lane]):
            if not isinstance(outcome, Confirmed):
                # Not refused: the fault is its predecessor's, and must cost these no attempt.
                self._hold_back(followers, "held back by a predecessor of its key that was not taken")
            elif self._late:
                self._hold_back(followers, "not sent yet: the earlier ones of its key have taken long enough")
            else:
                # Not before: a server that turns one away may still take the next.
                self._publish(followers.popleft())
        if not self._undecided and not self.finished.done():
            self.finished.set_result(None)

    def _hold_back(self, followers: "deque[int]", reason: str) -> None:
        for position in followers:
            self._outcomes[position] = Unavailable(reason)
        self._undecided -= len(followers)
        followers.clear()
