"""Asking Kafka, and what its errors mean to us."""

import asyncio
import atexit
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata

from postroad.brokers.kafka.address import ANSWER_SECONDS, Address
from postroad.errors import BrokerError, BrokerUnavailable

_SELDOM: Final = 30.0
_PAUSE: Final = 0.05
REQUEST_SECONDS: Final = 300.0
"""We ourselves do not wait so long. But librdkafka must not be the one who gives up; see below."""
_ALWAYS_THERE: Final = "__consumer_offsets"
"""A topic of Kafka's own, so that not all topics are told."""
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


FAREWELL: Final = 3.0
"""Seconds that the end of a client may take. Librdkafka (2.16) can wait for ever for threads that spoke to servers that
went away, so clients end in threads that may be left behind."""


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
        # Only of a server that has just answered: what an administrator has asked in vain may end the process when the
        # server comes back (an assertion of librdkafka, seen with 2.8 and 2.16). Metadata may be asked for at any time.
        await self._metadata(_ALWAYS_THERE)
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            asked = question(self._client())
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answers = await asyncio.gather(*map(asyncio.wrap_future, asked.values()), return_exceptions=True)
            except TimeoutError:
                servers = ", ".join(self._address.servers)
                raise BrokerUnavailable(f"Kafka at {servers} does not answer. Is it starting, or overloaded?") from None
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
        return set((await self._metadata()).topics)

    async def partitions(self, topic: str) -> int:
        """How many the topic has; 0: there is no such topic. Asking does not create it."""
        found = await self._found(topic)
        return len(found.partitions) if found else 0

    async def copies(self, topic: str) -> int:
        """On how many servers each of its partitions is; 0: there is no such topic."""
        found = await self._found(topic)
        return min((len(one.replicas) for one in found.partitions.values()), default=0) if found else 0

    async def _found(self, topic: str) -> TopicMetadata | None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            found = (await self._metadata(topic)).topics[topic]
            if found.error is None:
                return found
            if found.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION):
                return None
            if found.error.code() not in _SOON or time.monotonic() > deadline:
                raise self.translated(found.error)
            await asyncio.sleep(_PAUSE)

    async def _metadata(self, *topic: str) -> ClusterMetadata:
        try:
            return await asyncio.to_thread(self._client().list_topics, *topic, timeout=ANSWER_SECONDS)
        except KafkaException as error:
            raise self.translated(error.args[0]) from None

    async def aclose(self) -> None:
        await asyncio.to_thread(self.end)

    def end(self) -> None:
        """Blocks, but not for long."""
        _open.discard(self)
        last, self._admin = [self._admin], None
        let_go(last)

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(settings(self._address, {"allow.auto.create.topics": False}))
            _open.add(self)
        return self._admin

    def translated(self, error: KafkaError) -> BrokerError:
        return translated(error, self._address)


_open: Final[set[Client]] = set()
"""Held here, so that the garbage collector never ends one: it may run in a thread of the very client that it would end,
and librdkafka then ends the process."""


@atexit.register
def _end_all() -> None:
    """Python's own end would wait for them in the main thread."""
    for client in list(_open):
        client.end()


def let_go(last: list[AdminClient | None]) -> None:
    """Nobody else may have what is in this list."""
    ending = threading.Thread(target=last.clear, name="postroad-kafka-end", daemon=True)
    ending.start()
    ending.join(FAREWELL)


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
