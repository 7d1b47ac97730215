"""In place of confluent_kafka's clients: the same calls, and a server that lives here.

Librdkafka's own part is played too: its producer tries again by itself until it gives up, and tells each message's end
when it is asked to; its member tells what became of its partitions and commits when it is polled.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from postroad.brokers.kafka.record import Letter
from proof.simulator.faults import KAFKA_PUBLISH, KAFKA_REQUEST
from proof.simulator.kafka_server import Record, Seat
from proof.simulator.process import Process
from proof.simulator.threads import Event, wait_here
from proof.simulator.time import pass_time

if TYPE_CHECKING:
    from proof.simulator.kafka import KafkaPost

_LOOK = 0.1
_HEARS = 0.4
"""How probably a poll is the one at which a member hears of a new generation, or that it is no member any more."""
_FETCHED = 0.8
"""How probably all there is has been fetched when somebody looks."""
_FAILURES = {
    "refused": KafkaError.MSG_SIZE_TOO_LARGE,
    "nacked": KafkaError.NOT_ENOUGH_REPLICAS,
    "lost": KafkaError._MSG_TIMED_OUT,
    "fatal": KafkaError._FATAL,
    "unconfirmed": KafkaError._MSG_TIMED_OUT,
    "written late": KafkaError._MSG_TIMED_OUT,
    "written to one": KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
_TAKEN_ALL_THE_SAME = ("unconfirmed", "written to one")


class Route(NamedTuple):
    post: "KafkaPost"
    process: Process


class Wire:
    """What all clients have in common."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.post, self.process = settings["route"]
        self.server = self.post.server

    async def ask(self, act: Callable[[], Any]) -> Any:
        """A request, and its answer; the error as librdkafka tells it."""
        fates = self.post.world.fates
        fault = fates.draw(KAFKA_REQUEST)
        await self.process.step_outside(fates.latency())
        if self.post.away or fault == "lost":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        answer = act()
        await self.process.step_outside(fates.latency())
        if fault == "unanswered":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return answer


class Administrator(Wire):
    def list_topics(self, topic: str, timeout: float) -> Any:
        return wait_here(self.ask(lambda: SimpleNamespace(topics={topic: self._told(topic)})))

    def _told(self, topic: str) -> Any:
        numbers = [number for name, number in self.server.logs if name == topic]
        error = None if numbers else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(error=error, partitions=dict.fromkeys(numbers))


class Producer(Wire):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._patience = settings["delivery.timeout.ms"] / 1_000
        self._on_their_way: dict[object, Callable[[int | None], None]] = {}
        self._reports: deque[Callable[[], None]] = deque()
        self._fatal = self._mute = False

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes]],
        on_delivery: Callable[[KafkaError | None, object], None],
    ) -> None:
        if not self.process.alive:
            return
        if self._fatal:
            raise KafkaException(KafkaError(KafkaError._FATAL, "fatal", True))
        message = object()
        self._on_their_way[message] = lambda code: on_delivery(
            None if code is None else KafkaError(code, None, self._fatal), None
        )
        self.process.spawn(self._carry(message, partial(self.post.take, Letter(topic, key, value, headers))))

    async def _carry(self, message: object, write: Callable[[], None]) -> None:
        fates = self.post.world.fates
        fault = fates.draw(KAFKA_PUBLISH)
        await self.process.step_outside(fates.latency())
        given_up = self.process.clock.monotonic() + self._patience
        while self.post.away:
            if self.process.clock.monotonic() >= given_up:
                self._end(message, KafkaError._MSG_TIMED_OUT)
                return
            await pass_time(_LOOK)
        await self.process.step_outside()
        self._mute = self._mute or fault == "mute"
        if message not in self._on_their_way or self._mute:
            return  # purged before it was sent; or as after some restarts of a server, when nobody hears of it again
        if fault == "written late":
            # Under way when its producer was purged, or gave up: nobody calls it back.
            self.post.process.spawn(self._write_late(write))
        elif fault not in _FAILURES or fault in _TAKEN_ALL_THE_SAME:
            write()
        if fault in ("slow", "lost", "unconfirmed"):
            await pass_time(self.post.chance.random() * self._patience)
        await self.process.step_outside(fates.latency())
        self._fatal = self._fatal or fault == "fatal"
        self._end(message, _FAILURES.get(fault))

    async def _write_late(self, write: Callable[[], None]) -> None:
        await pass_time(self.post.chance.random() * self._patience * 2)
        write()

    def _end(self, message: object, code: int | None) -> None:
        if (report := self._on_their_way.pop(message, None)) is not None:
            self._reports.append(partial(report, code))

    def poll(self, timeout: float) -> None:
        while self._reports and self.process.alive and not self.process.frozen_for():
            self._reports.popleft()()

    def purge(self) -> None:
        for message in list(self._on_their_way):
            self._end(message, KafkaError._PURGE_INFLIGHT)

    def flush(self, timeout: float) -> None:
        self.poll(0)


Place = tuple[str, int]


class Member(Wire):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._group = self.server.groups[settings["group.id"]]
        self._seat: Seat | None = None
        self._read: dict[Place, int] = {}
        """What is assigned, and where reading goes on."""
        self._fetched: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._told: deque[Callable[[], None]] = deque()
        self._wake = Event()
        self._generation = 0
        """The latest that it knows."""
        self._complained = self._closed = False

    # -- the group ---------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        (self._topic,) = topics
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost
        self.server.readers.append(self._wake.set)
        self.process.spawn(self._join())

    async def _join(self) -> None:
        await self.process.step_outside(self.post.chance.random() * _LOOK)
        while self.post.away:
            await pass_time(_LOOK)
        await self.process.step_outside()
        if self._closed:
            return
        self._seat = Seat(self.process, self._hear)
        self._group.join(self._seat, self.process.clock.monotonic())

    def _hear(self, what: str, numbers: list[int]) -> None:
        self._told.append(partial(self._obey, what, numbers))
        self._wake.set()

    def _obey(self, what: str, numbers: list[int]) -> None:
        self._generation = self._group.generation
        if what == "assign":
            self._on_assign(self, self._places(numbers))
        elif held := [number for number in numbers if (self._topic, number) in self._read]:
            seat = self._seat
            self._on_revoke(self, self._places(held))
            assert seat is not None
            self._group.give_back(seat, held)

    def _places(self, numbers: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in numbers]

    def _notice(self) -> None:
        """That the group has gone on; perhaps without it. Then it joins again."""
        if self._seat is None or self.post.chance.random() >= _HEARS:
            return
        self._generation = self._group.generation
        if self._seat.taken:
            self._told.clear()
            self._seat = None
            if held := [number for _, number in self._read]:
                self._on_lost(self, self._places(held))
            self.process.spawn(self._join())

    def memberid(self) -> str:
        return self._seat.id if self._seat else ""

    def close(self) -> None:
        self._closed = True
        if not self.process.alive:
            return  # and nobody says so
        if self._wake.set in self.server.readers:
            self.server.readers.remove(self._wake.set)
        if self._seat is not None:
            self._seat.silent = True
            if self._read:
                self._on_revoke(self, self._places([number for _, number in self._read]))
            try:
                wait_here(self.ask(partial(self._group.leave, self._seat)))
            except KafkaException:
                pass  # it will be missed

    # -- reading -----------------------------------------------------------------------------------------

    def poll(self, timeout: float) -> Record | None:
        wait_here(self.process.step_outside())
        self._catch_up()
        if (record := self._next()) is None and timeout:
            self._wake.clear()
            self._wake.wait(timeout)
            wait_here(self.process.step_outside())
            self._catch_up()
            record = self._next()
        return record

    def _catch_up(self) -> None:
        self._notice()
        while self._told:
            self._told.popleft()()
        if self.post.away and not self._complained:
            self.settings["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN))
        self._complained = self.post.away

    def _next(self) -> Record | None:
        chance = self.post.chance
        if not self.post.away:
            for place, offset in self._read.items():
                if offset < 0:
                    self._read[place] = self._group.committed[place[1]]
                if chance.random() < _FETCHED:
                    self._fetched[place] = len(self.server.logs[place])
        there = [
            place
            for place, offset in self._read.items()
            if place not in self._paused and 0 <= offset < self._fetched.get(place, 0)
        ]
        if not there:
            return None
        place = chance.choice(there)
        self._read[place] += 1
        record: Record = self.server.logs[place][self._read[place] - 1]
        return record

    def incremental_assign(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            if (place.topic, place.partition) in self._read:
                raise KafkaException(KafkaError(KafkaError._CONFLICT))
            self._read[place.topic, place.partition] = place.offset

    def incremental_unassign(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            if (place.topic, place.partition) not in self._read:
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
            del self._read[place.topic, place.partition]
            self._fetched.pop((place.topic, place.partition), None)

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self._paused |= {(place.topic, place.partition) for place in places}

    def resume(self, places: Iterable[TopicPartition]) -> None:
        self._paused -= {(place.topic, place.partition) for place in places}

    # -- offsets -----------------------------------------------------------------------------------------

    def committed(self, places: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        offsets = self._group.committed
        return wait_here(self.ask(lambda: [TopicPartition(p.topic, p.partition, offsets[p.partition]) for p in places]))

    def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        work = self._commit(offsets, self._generation)
        if not asynchronous:
            if (error := wait_here(work)) is not None:
                raise KafkaException(error)
            return

        async def send() -> None:
            answer = await work
            self._told.append(lambda: self.settings["on_commit"](answer, offsets))
            self._wake.set()

        self.process.spawn(send())

    async def _commit(self, places: Sequence[TopicPartition], generation: int) -> KafkaError | None:
        offsets, seat = {place.partition: place.offset for place in places}, self._seat
        try:
            code = await self.ask(partial(self._group.commit, seat, generation, offsets))
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            return failure
        return None if code is None else KafkaError(code)
