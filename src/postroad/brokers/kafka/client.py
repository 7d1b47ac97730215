"""Asking Kafka, and what its errors mean to us."""

import asyncio
import atexit
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from postroad.brokers.kafka.address import ANSWER_SECONDS, Address
from postroad.errors import BrokerError, BrokerUnavailable

_SELDOM: Final = 30.0
_PAUSE: Final = 0.05
_SOON: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""Answers of a server that has just started, or of a topic that was just created."""

K = TypeVar("K")
T = TypeVar("T")


class _Seldom(logging.Filter):
    """librdkafka tells each failed connection of each of its clients. One line of a kind now and then is enough."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = record.getMessage().partition(" ")[0], time.monotonic()
        if now - self._said.get(kind, -_SELDOM) < _SELDOM:
            return False
        self._said[kind] = now
        return True


librdkafka: Final = logging.getLogger("postroad.kafka.librdkafka")
"""Its own lines, which would else go to stderr."""
librdkafka.addFilter(_Seldom())


_open: Final[set[AdminClient]] = set()
"""Held here, so that the garbage collector never ends one: it may run in a thread of the very client that it would end,
and librdkafka then ends the process."""
atexit.register(_open.clear)


class Rejection(BrokerError):
    """Kafka has answered, and the answer is no."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(f"Kafka says: {error.str()}")
        self.code = error.code()


class Client:
    """The administrator's client. It is made when something is asked for the first time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._admin: AdminClient | None = None

    async def ask(self, question: Callable[[AdminClient], Future[T]]) -> T:
        """Raises Rejection, or BrokerUnavailable within seconds."""
        answers = await self.ask_all(lambda admin: {None: question(admin)})
        return answers[None]

    async def ask_all(self, question: Callable[[AdminClient], Mapping[K, Future[T]]]) -> dict[K, T]:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            asked = question(self._client())
            answers = await asyncio.gather(*map(asyncio.wrap_future, asked.values()), return_exceptions=True)
            failed = next((answer for answer in answers if isinstance(answer, BaseException)), None)
            if failed is None:
                return dict(zip(asked, answers, strict=True))  # type: ignore[arg-type]
            error = failed.args[0] if isinstance(failed, KafkaException) else None
            if not isinstance(error, KafkaError):
                raise failed
            if error.code() not in _SOON or time.monotonic() > deadline:
                raise self.translated(error)
            await asyncio.sleep(_PAUSE)

    async def topics(self) -> set[str]:
        try:
            found = await asyncio.to_thread(self._client().list_topics, timeout=ANSWER_SECONDS)
        except KafkaException as error:
            raise self.translated(error.args[0]) from None
        return set(found.topics)

    async def aclose(self) -> None:
        if self._admin is not None:
            _open.discard(self._admin)
            last = [self._admin]
            self._admin = None
            # Whoever lets go of it last waits for its threads.
            await asyncio.to_thread(last.clear)

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(settings(self._address, {}))
            _open.add(self._admin)
        return self._admin

    def translated(self, error: KafkaError) -> BrokerError:
        return translated(error, self._address)


def translated(error: KafkaError, address: Address) -> BrokerError:
    # Codes below zero are librdkafka's own: it has had no answer.
    if error.code() < 0 or error.code() in _SOON or error.code() == KafkaError.REQUEST_TIMED_OUT:
        return BrokerUnavailable(
            f"Kafka at {', '.join(address.servers)} cannot be reached: {_plain(error)}. Is it running, and there?"
        )
    return Rejection(error)


def _plain(error: KafkaError) -> str:
    return error.str().removeprefix("Local: ").removeprefix("Failed while waiting for response from broker: ")


def settings(address: Address, more: Mapping[str, Any]) -> dict[str, Any]:
    return {**address.client(), "logger": librdkafka, **more}
