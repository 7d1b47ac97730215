"""One member of a consumer group, in a thread of its own: it stays in the group however long handlers take."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Consumer as Member
from confluent_kafka import Message as Record

from postroad.brokers.kafka.address import ANSWER_SECONDS, Address
from postroad.brokers.kafka.client import settings, translated
from postroad.brokers.kafka.partition import UNKNOWN, Arrival, Gone, Partition
from postroad.brokers.kafka.record import FOR, attributes_of, headers_of, key_of
from postroad.errors import BrokerError, BrokerUnavailable

Event = Arrival | Gone | BrokerError
Tell = Callable[[Event], None]

_TOGETHER: Final = 200
"""Messages that are taken between two looks at everything else."""
_BETWEEN_COMMITS: Final = 0.1
_LOOK: Final = 0.05
"""Seconds after which somebody with an errand is heard at the latest."""
_LOOK_WHILE_FULL: Final = 0.002
_AFTER_A_SURPRISE: Final = 1.0
_FAREWELL: Final = 10.0

log = logging.getLogger("postroad.kafka")


class Consumer:
    def __init__(self, address: Address, subscription: str, topic: str, most_bytes: int, tell: Tell) -> None:
        self._address, self._subscription, self._topic = address, subscription, topic
        self._most_bytes, self._tell = most_bytes, tell
        self._lock = threading.Lock()
        """Of the partitions and the counts."""
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._messages = self._bytes = 0
        self._paused: set[tuple[str, int]] = set()
        self._full = self._closing = False
        self._errands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._next_commit = 0.0
        self._member: Member | None = None
        self._spoilt: KafkaException | None = None
        self._thread = threading.Thread(target=self._run, name="postroad-kafka-receive", daemon=True)

    # -- from any thread ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def settle(self, arrival: Arrival) -> bool:
        """False: its partition has gone to another, who will deliver it again."""
        with self._lock:
            size = arrival.partition.settle(arrival.offset)
            if size is None:
                return False
            self._messages -= 1
            self._bytes -= size
            return True

    def is_ours(self, arrival: Arrival) -> bool:
        return arrival.partition.alive and not self._closing

    def run(self, errand: Callable[[], Any]) -> "Future[Any]":
        """Does it in the member's thread. There alone may the member be spoken to."""
        done: Future[Any] = Future()
        self._errands.append((errand, done))
        if not self._thread.is_alive():
            self._refuse_errands()
        return done

    def stop(self) -> None:
        self._closing = True

    def join(self) -> None:
        """Blocks, but not for ever: where the server is away, the last commit and the farewell may take long."""
        self._thread.join(_FAREWELL)

    # -- errands -----------------------------------------------------------------------------------------

    def identity(self) -> str:
        """By which the server knows this member."""
        return (self._member.memberid() or "") if self._member else ""

    def positions(self) -> dict[int, int]:
        """Of the partitions that are ours, and ahead of what is committed."""
        with self._lock:
            return {p.number: p.position for p in self._partitions.values()}

    def set_back(self, targets: Mapping[int, int]) -> int:
        """To earlier offsets of some partitions. The number of messages that come again."""
        assert self._member is not None
        wanted = {p: targets.get(p.number, p.position) for p in self._partitions.values()}
        back = {p: target for p, target in wanted.items() if target < p.position}
        places = [TopicPartition(p.topic, p.number, target) for p, target in back.items()]
        if not places:
            return 0
        self._member.commit(offsets=places, asynchronous=False)
        with self._lock:
            again = sum(p.position - target + p.settled_beyond for p, target in back.items())
            for old, target in back.items():
                self._retire(old)
                self._partitions[old.name] = Partition(*old.name, next=target, committed=target)
        self._tell(Gone())
        self._move(places)
        return again

    # -- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                self._be_member()
            except Exception as error:  # this thread has nobody else to tell, and must not end unnoticed
                log.exception("the consumer of %s begins again", self._subscription)
                self._tell(BrokerUnavailable(f"The consumer of {self._subscription} failed: {error}. It begins again."))
                time.sleep(_AFTER_A_SURPRISE)
        self._refuse_errands()

    def _be_member(self) -> None:
        member = self._member = Member(self._settings())
        try:
            self._join()
            while not self._closing:
                self._turn()
            self._commit_at_last()
        finally:
            self._retire_all(list(self._partitions))
            self._member = None
            member.close()

    def _join(self) -> None:
        assert self._member is not None
        self._member.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _settings(self) -> dict[str, Any]:
        return settings(
            self._address,
            {
                "group.id": self._subscription,
                # Only partitions that move are taken away: the others go on.
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": int(self._address.session_timeout * 1_000),
                # How soon a member hears that another has come.
                "heartbeat.interval.ms": int(self._address.session_timeout * 100),
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                # Neither earliest nor latest: what retention has taken is told, and decided here.
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
                "queued.min.messages": self._address.ahead,
                "queued.max.messages.kbytes": min(max(1_024, self._most_bytes // 1_024), 1_000_000),
                # A partition that is resumed or set back waits for the fetch that is under way.
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 10,
                "fetch.error.backoff.ms": 100,
                "error_cb": self._on_error,
                "on_commit": self._on_commit,
            },
        )

    def _turn(self) -> None:
        assert self._member is not None
        while self._errands:
            self._run_errand(*self._errands.popleft())
        if self._spoilt is not None:
            spoilt, self._spoilt = self._spoilt, None
            raise spoilt
        self._make_room()
        if time.monotonic() >= self._next_commit:
            self._commit(asynchronous=True)
        wait = _LOOK_WHILE_FULL if self._full else _LOOK
        for _ in range(_TOGETHER):
            # One by one: a list of them could hold some of a partition that was taken away while it was gathered.
            record = self._member.poll(wait)
            if record is None:
                return
            self._take(record)
            wait = 0.0

    def _take(self, record: Record) -> None:
        name = record.topic() or "", record.partition() or 0
        partition = self._partitions.get(name)
        if (error := record.error()) is not None:
            if error.code() == KafkaError._AUTO_OFFSET_RESET and partition is not None:
                self._find_place(partition, record.offset())
            else:
                self._on_error(error)
        elif partition is not None:
            arrival = _arrival(record, partition)
            with self._lock:
                new = partition.take(arrival.offset, arrival.size)
                self._messages += new
                self._bytes += arrival.size * new
            if new:
                self._tell(arrival)

    def _find_place(self, partition: Partition, wanted: int | None) -> None:
        """Kafka has nothing at the place where this group was. It goes on with the earliest there is, never with the
        latest; and if something was lost, that is said."""
        assert self._member is not None
        place = TopicPartition(partition.topic, partition.number)
        first, end = self._member.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
        if wanted is None or wanted < 0:
            log.warning("%s has no place in partition %d and begins at its first message, %d",
                        self._subscription, partition.number, first)  # fmt: skip
        elif wanted < first:
            log.error("%s has lost %d messages of partition %d: Kafka removed them (retention) before they were "
                      "handled. It goes on with the first one left, %d. Let their owner publish them again.",
                      self._subscription, first - wanted, partition.number, first)  # fmt: skip
        else:
            log.error("%s was at message %d of partition %d, which ends at %d: the topic was made anew, or has lost "
                      "messages. It goes on with the first one there, %d.",
                      self._subscription, wanted, partition.number, end, first)  # fmt: skip
        with self._lock:
            partition.next = first
        self._paused.discard(partition.name)
        self._move([TopicPartition(partition.topic, partition.number, first)])

    def _move(self, places: list[TopicPartition]) -> None:
        """Reads on from there. Not by a seek: that is refused where nothing could be read."""
        assert self._member is not None
        try:
            self._member.incremental_unassign(places)
            _begin(self._member, places)
        except KafkaException as error:
            # The next commit would pass over what lies between: a new member begins where it should.
            self._spoilt = error
            raise

    def _commit_at_last(self) -> None:
        try:
            self._commit(asynchronous=False)
        except KafkaException as error:
            log.debug("%s left without a last commit: %s", self._subscription, error)

    def _run_errand(self, errand: Callable[[], Any], done: "Future[Any]") -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(errand())
        except KafkaException as error:
            done.set_exception(translated(error.args[0], self._address))
        except Exception as error:
            done.set_exception(error)

    def _refuse_errands(self) -> None:
        while self._errands:
            _, done = self._errands.popleft()
            if done.set_running_or_notify_cancel():
                done.set_exception(BrokerError(f"The receiver of {self._subscription!r} is closed. Subscribe again."))

    # -- how far to read ---------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Partitions whose first unsettled message is too far back wait for it; all wait while too much is here."""
        assert self._member is not None
        limit = 0.5 if self._full else 1.0
        with self._lock:
            ahead, most_bytes = self._address.ahead, self._most_bytes
            self._full = self._messages >= ahead * limit or self._bytes >= most_bytes * limit
            wanted = {
                p.name
                for p in self._partitions.values()
                if self._full or p.span >= ahead * (0.5 if p.name in self._paused else 1.0)
            }
        if wanted != self._paused:
            self._member.pause([TopicPartition(*name) for name in wanted - self._paused])
            self._member.resume([TopicPartition(*name) for name in self._paused - wanted])
            self._paused = wanted

    # -- committing --------------------------------------------------------------------------------------

    def _commit(self, *, asynchronous: bool) -> None:
        assert self._member is not None
        self._next_commit = time.monotonic() + _BETWEEN_COMMITS
        with self._lock:
            offsets = [_place(p) for p in self._partitions.values() if p.position != p.committed]
            for p in self._partitions.values():
                p.committed = p.position
        if not offsets:
            return
        if asynchronous:
            self._member.commit(offsets=offsets, asynchronous=True)
            return
        try:
            self._member.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            self._commit_again(offsets)
            raise

    def _on_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        if failed := places if error else [place for place in places if place.error]:
            self._commit_again(failed)

    def _commit_again(self, places: Iterable[TopicPartition]) -> None:
        with self._lock:
            for place in places:
                if partition := self._partitions.get((place.topic, place.partition)):
                    partition.committed = UNKNOWN

    # -- the group ---------------------------------------------------------------------------------------

    def _on_assign(self, member: Member, places: list[TopicPartition]) -> None:
        try:
            places = member.committed(places, timeout=ANSWER_SECONDS)
        except KafkaException as error:
            log.debug("%s asks again where it was: %s", self._subscription, error)
        with self._lock:
            for place in places:
                known = max(UNKNOWN, place.offset)
                self._partitions[place.topic, place.partition] = Partition(
                    place.topic, place.partition, next=known, committed=known
                )
        _begin(member, places)

    def _on_revoke(self, member: Member, places: list[TopicPartition]) -> None:
        """What was settled is committed while we may; verdicts that come from now on are not heard: the next owner will
        deliver those messages again."""
        names = {(place.topic, place.partition) for place in places}
        offsets = [_place(p) for p in self._retire_all(names) if p.position != UNKNOWN]
        try:
            if offsets:
                member.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            log.debug("%s gave partitions back without a last commit: %s", self._subscription, error)
        member.incremental_unassign(places)

    def _on_lost(self, member: Member, places: list[TopicPartition]) -> None:
        """The group has gone on without us. What we would commit now is no longer ours to commit."""
        self._retire_all({(place.topic, place.partition) for place in places})
        member.incremental_unassign(places)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            return  # the process was stopped for long; the next poll joins again
        if error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE):
            return  # of one server; if it was the last one, that is told as well
        # Also what a person must mend, such as a topic that was removed: the place in it is kept meanwhile.
        self._tell(BrokerUnavailable(str(translated(error, self._address))))

    def _retire_all(self, names: Iterable[tuple[str, int]]) -> list[Partition]:
        with self._lock:
            retired = [self._partitions[name] for name in list(names) if name in self._partitions]
            for partition in retired:
                self._retire(partition)
        self._tell(Gone())
        return retired

    def _retire(self, partition: Partition) -> None:
        del self._partitions[partition.name]
        self._paused.discard(partition.name)
        partition.alive = False
        sizes = partition.sizes
        self._messages -= len(sizes)
        self._bytes -= sum(sizes)


def _begin(member: Member, places: list[TopicPartition]) -> None:
    member.incremental_assign(places)
    # The client remembers a pause beyond the assignment: a partition that was taken away while it waited, and came
    # back, would be silent for ever.
    member.resume(places)


def _place(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.number, partition.position)


def _arrival(record: Record, partition: Partition) -> Arrival:
    headers, data = headers_of(record), record.value() or b""
    attributes = attributes_of(headers)
    kind, milliseconds = record.timestamp()
    return Arrival(
        partition=partition,
        offset=record.offset() or 0,
        key=key_of(record, attributes),
        attributes=attributes,
        data=data,
        size=len(data) + sum(len(name) + len(value) for name, value in headers.items()),
        published=None if kind == TIMESTAMP_NOT_AVAILABLE else datetime.fromtimestamp(milliseconds / 1_000, UTC),
        recipient=headers.get(FOR, ""),
    )
