"""Sending: many keys side by side, of each key one message at a time, and an outcome from each one's own report."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from postroad.brokers.base import Confirmed, Outcome, Refused, Unavailable
from postroad.brokers.kafka.address import Address
from postroad.brokers.kafka.client import FAREWELL, settings
from postroad.brokers.kafka.record import Letter
from postroad.errors import BrokerError, BrokerUnavailable

_SHORTEST_LOOK, _LONGEST_LOOK = 0.001, 0.02
"""Seconds between two looks for reports, while some are awaited; the longer, the longer none has come."""
_SELDOM: Final = 1.0
_CONFIRMED: Final = Confirmed()
_LAST_REPORTS: Final = 5.0
_IN_VAIN: Final = 3
"""Batches in a row of which nothing arrived, after which a producer is replaced."""
_REFUSALS: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._INVALID_ARG,
    }
)
"""The message's own fault, or that of where it wants to go. All else may pass."""
_OF_THE_BATCH: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_TIMESTAMP,
    }
)
"""Kafka takes or refuses what librdkafka has put together, and tells none of them whose fault it was."""


@dataclass(frozen=True, slots=True, eq=False)
class Addressed:
    """One message of a batch. Messages with an equal lane follow one another; None follows nobody."""

    lane: tuple[str, str] | None
    letter: Letter | Refused | Unavailable
    """Or what became of it before it could be one."""


class Sender:
    """A producer. Its reports are heard by whoever waits for them: a thread of their own would have to wait for
    Python's lock before each single one, five milliseconds while another thread is busy."""

    def __init__(self, address: Address, **more: object) -> None:
        self._producer = Producer(
            settings(
                address,
                {
                    # A repeated request is recognised by its number: no message twice, none before another.
                    "enable.idempotence": True,
                    "acks": "all",
                    "delivery.timeout.ms": int(address.publish_timeout * 1_000),
                    "linger.ms": 1,
                    # As Kafka's own clients do it, so that a key is in the same partition whoever writes.
                    "partitioner": "murmur2_random",
                    "allow.auto.create.topics": False,
                    # A topic that has grown is noticed by us first, before its keys move.
                    "topic.metadata.refresh.interval.ms": -1,
                    "message.max.bytes": 1_048_576,
                    **more,
                },
            )
        )
        self.usable = True
        """Not after an error from which this producer cannot recover."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="postroad-kafka-send", daemon=True)
        self._thread.start()

    def produce(self, letter: Letter, report: Callable[[KafkaError | None], None]) -> None:
        """Raises KafkaException, BufferError or ValueError if it does not even begin."""

        def tell(error: KafkaError | None, _: object) -> None:
            if error is not None:
                self._judge(error)
            report(error)

        try:
            self._producer.produce(
                letter.topic, value=letter.value, key=letter.key, headers=list(letter.headers), on_delivery=tell
            )
        except KafkaException as error:
            self._judge(error.args[0])
            raise

    def listen(self) -> None:
        """To the reports that have come."""
        if not self._closing.is_set():
            self._producer.poll(0)

    def _judge(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.usable = False

    def stop(self) -> None:
        self._closing.set()

    def join(self) -> None:
        self._thread.join(_LAST_REPORTS + FAREWELL)

    def _keep(self) -> None:
        """What librdkafka has to say while nobody waits for anything must not pile up."""
        while not self._closing.wait(_SELDOM):
            self._producer.poll(0)
        # Whoever waits for one of these hears that it did not arrive, as far as we know.
        self._producer.purge()
        self._producer.flush(_LAST_REPORTS)
        del self._producer  # here, because that may take for ever


class Publisher:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._senders: dict[bool, Sender] = {}
        self._in_vain = 0
        self._closed = False

    async def send(self, batch: Sequence[Addressed]) -> list[Outcome]:
        sender = self._sender()
        dispatch = _Dispatch(sender, batch)
        await dispatch.run(self._address.publish_timeout)
        if any(isinstance(one.letter, Letter) for one in batch):
            self._doubt(sender, dispatch.outcomes)
        if suspects := dispatch.suspects:
            # Each alone: else the same batch would be refused for ever, and cost the innocent their attempts.
            alone = _Dispatch(self._sender(alone=True), [batch[position] for position in suspects])
            await alone.run(self._address.publish_timeout)
            for position, outcome in zip(suspects, alone.outcomes, strict=True):
                dispatch.outcomes[position] = outcome
        return dispatch.outcomes

    def _doubt(self, sender: Sender, outcomes: Sequence[Outcome]) -> None:
        """A producer may stay silent for ever after its server was restarted; another one finds it again."""
        in_vain = all(isinstance(outcome, Unavailable) for outcome in outcomes)
        self._in_vain = self._in_vain + 1 if in_vain else 0
        if self._in_vain >= _IN_VAIN:
            self._in_vain, sender.usable = 0, False

    async def place(self, letter: Letter) -> None:
        """One message, surely. Raises BrokerUnavailable, or BrokerError when it is refused."""
        (outcome,) = await self.send([Addressed(None, letter)])
        if isinstance(outcome, Unavailable):
            raise BrokerUnavailable(outcome.reason)
        if isinstance(outcome, Refused):
            raise BrokerError(outcome.reason)

    async def aclose(self) -> None:
        self._closed = True
        for sender in self._senders.values():
            sender.stop()
        for sender in self._senders.values():
            await asyncio.to_thread(sender.join)

    def _sender(self, *, alone: bool = False) -> Sender:
        if self._closed:
            raise BrokerUnavailable("The connection to Kafka is closed. Connect again.")
        sender = self._senders.get(alone)
        if sender is None or not sender.usable:
            if sender is not None:
                sender.stop()
            more: dict[str, Any] = {"batch.num.messages": 1} if alone else {}
            sender = self._senders[alone] = Sender(self._address, **more)
        return sender


class _Dispatch:
    """One batch on its way."""

    def __init__(self, sender: Sender, batch: Sequence[Addressed]) -> None:
        self._sender, self._batch = sender, batch
        self.outcomes: list[Outcome] = [Unavailable("no answer from Kafka")] * len(batch)
        self.suspects: list[int] = []
        self._undecided = len(batch)
        self._followers: dict[tuple[str, str], deque[int]] = {}
        self._over = self._late = False
        self._told: deque[tuple[int, KafkaError | None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()

    async def run(self, patience: float) -> None:
        """Each message has `patience` for itself; what has not begun after half of it does not begin."""
        winding_up = self._loop.call_later(patience / 2, self._wind_up)
        try:
            self._begin()
            self._look()
            # A little more than librdkafka allows itself: its own reports say more.
            async with asyncio.timeout(patience * 1.5 + 1.0):
                await self._finished
        except TimeoutError:
            pass
        finally:
            winding_up.cancel()
            self._over = True

    def _begin(self) -> None:
        first = []
        for position, one in enumerate(self._batch):
            if one.lane is not None and one.lane in self._followers:
                self._followers[one.lane].append(position)
                continue
            if one.lane is not None:
                self._followers[one.lane] = deque()
            first.append(position)
        for position in first:
            self._publish(position)

    def _wind_up(self) -> None:
        """A long run of one key must not take so long that its sender gives up on all of it."""
        self._late = True

    def _publish(self, position: int) -> None:
        letter = self._batch[position].letter
        if not isinstance(letter, Letter):
            self._decide(position, letter)
            return
        try:
            self._sender.produce(letter, partial(self._report, position))
        except KafkaException as error:
            self._decide(position, _outcome(error.args[0]))
        except BufferError:
            self._decide(position, Unavailable("too much is on its way to Kafka already"))
        except (ValueError, TypeError) as error:
            self._decide(position, Refused(f"Kafka's client does not take it: {error}"))

    def _report(self, position: int, error: KafkaError | None) -> None:
        """In the thread of whoever listens to the producer."""
        self._told.append((position, error))

    def _look(self, pause: float = _SHORTEST_LOOK) -> None:
        self._sender.listen()
        pause = _SHORTEST_LOOK if self._told else min(pause * 2, _LONGEST_LOOK)
        while self._told and not self._over:
            position, error = self._told.popleft()
            if error is not None and error.code() in _OF_THE_BATCH:
                self.suspects.append(position)
            self._decide(position, _outcome(error))
        if self._undecided and not self._over:
            self._loop.call_later(pause, self._look, pause)

    def _decide(self, position: int, outcome: Outcome) -> None:
        self.outcomes[position] = outcome
        self._undecided -= 1
        lane = self._batch[position].lane
        if lane is not None and (followers := self._followers[lane]):
            if not isinstance(outcome, Confirmed):
                # Not refused: the fault is its predecessor's, and must cost these no attempt.
                self._hold_back(followers, "held back by a predecessor of its key that was not taken")
            elif self._late:
                self._hold_back(followers, "not sent yet: the earlier ones of its key have taken long enough")
            else:
                # Not before: a server that turns one away may still take the next.
                self._publish(followers.popleft())
        if not self._undecided and not self._finished.done():
            self._finished.set_result(None)

    def _hold_back(self, followers: "deque[int]", reason: str) -> None:
        for position in followers:
            self.outcomes[position] = Unavailable(reason)
        self._undecided -= len(followers)
        followers.clear()


def _outcome(error: KafkaError | None) -> Outcome:
    if error is None:
        return _CONFIRMED
    return Refused(error.str()) if error.code() in _REFUSALS else Unavailable(error.str())
