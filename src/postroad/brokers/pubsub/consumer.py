"""The wire's end of a subscription: one stream, reopened when it breaks; leases extended; acknowledgements awaited."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any, Final
from uuid import uuid4

import grpc
from google.protobuf.empty_pb2 import Empty

from postroad.brokers.pubsub.letter import published_at, read
from postroad.brokers.pubsub.line import Line, Rejection, raw
from postroad.errors import BrokerError

_HEARTBEAT: Final = 30.0
"""Seconds; a stream on which nothing is said is closed by the server."""
_MOST_IDS: Final = 1_000
"""In one request, which may have 512 KiB."""
_SHORTEST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_LAST_WORDS: Final = 5.0
"""Seconds that verdicts may take at the end: what is not given back by then comes again when its lease is over."""
_TRANSIENT: Final = "TRANSIENT_"

_StreamingPullRequest: Final = raw("StreamingPullRequest")
_AcknowledgeRequest: Final = raw("AcknowledgeRequest")
_ModifyAckDeadlineRequest: Final = raw("ModifyAckDeadlineRequest")

log = logging.getLogger("postroad.pubsub")


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    id: str
    """The message's, the same in each of its deliveries."""
    key: str
    attributes: Mapping[str, str]
    data: bytes = field(repr=False)
    published: datetime


@dataclass(slots=True, eq=False)
class _Lease:
    id: str
    ack_id: str
    """That of the last delivery: an earlier one counts for nothing once a message has been delivered again."""
    number: int
    """In the order of arrival."""
    settled: bool = False


class Consumer:
    """Lives in the connection's thread. A message that is here is told once, however often it is delivered."""

    def __init__(
        self, line: Line, subscription: str, name: str, deadline: int, tell: Callable[[Sequence[Arrival]], None]
    ) -> None:
        self._line, self._path, self._name, self._tell = line, subscription, name, tell
        self._deadline = deadline
        self._leases: dict[str, _Lease] = {}
        self._settled: list[_Lease] = []
        self._has_settled, self._all_settled = asyncio.Event(), asyncio.Event()
        self._all_settled.set()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._client_id = uuid4().hex
        self._numbers = count()
        self._pause = 0.0

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(work()) for work in (self._supervise, self._extend, self._acknowledge)]

    def pause(self) -> None:
        """What is not read stays with the server, or on its way."""
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    # -- the stream --------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        while True:
            trouble = None
            try:
                await self._listen()
            except grpc.aio.AioRpcError as error:
                trouble = self._line.explained(error)
            except BrokerError as error:
                trouble = error
            if trouble is not None and self._pause == _SHORTEST_PAUSE:
                # Streams end every now and then. It is worth a line if the next one does, too, and nothing came.
                log.warning("%s receives nothing at the moment, and tries again: %s", self._name, trouble)
            await asyncio.sleep(self._pause)
            self._pause = min(max(self._pause * 2, _SHORTEST_PAUSE), _LONGEST_PAUSE)

    async def _listen(self) -> None:
        """Until the stream ends."""
        first = _StreamingPullRequest(
            subscription=self._path,
            stream_ack_deadline_seconds=self._deadline,
            # The same on each stream: so the server knows that it is still us who hold what came before.
            client_id=self._client_id,
        )
        call = self._line.pull(first)
        beating: asyncio.Task[None] | None = None
        try:
            await call.write(first)
            beating = asyncio.create_task(_beat(call))
            while (answer := await call.read()) is not grpc.aio.EOF:
                self._pause = 0.0
                self._arrive(answer.received_messages)
                await self._may_read.wait()
        finally:
            if beating is not None:
                beating.cancel()
            call.cancel()

    def _arrive(self, letters: Iterable[Any]) -> None:
        told = []
        for letter in letters:
            message = letter.message
            if known := self._leases.get(message.message_id):
                # Its lease was over, or an acknowledgement was lost: it is still here, and in its place.
                known.ack_id = letter.ack_id
                if known.settled and known not in self._settled:
                    self._queue(known)
                continue
            lease = self._leases[message.message_id] = _Lease(message.message_id, letter.ack_id, next(self._numbers))
            attributes, data, notes = read(message)
            if notes.get("for", self._name) != self._name:
                # Called back from the dead for another subscription; a topic cannot be sent to one alone.
                lease.settled = True
                self._queue(lease)
                continue
            told.append(Arrival(lease.id, message.ordering_key, attributes, data, published_at(message)))
        if told:
            self._tell(told)

    # -- verdicts ----------------------------------------------------------------------------------------

    def settle(self, ids: Iterable[str]) -> None:
        """To be acknowledged."""
        for id in ids:
            if (lease := self._leases.get(id)) and not lease.settled:
                lease.settled = True
                self._queue(lease)

    async def everything_settled(self) -> None:
        """Waits until every verdict has arrived; not for ever, because the server may be away."""
        try:
            async with asyncio.timeout(_LAST_WORDS):
                await self._all_settled.wait()
        except TimeoutError:
            pass

    def _queue(self, lease: _Lease) -> None:
        self._settled.append(lease)
        self._all_settled.clear()
        self._has_settled.set()

    async def _acknowledge(self) -> None:
        """One request at a time, in the order of arrival: an acknowledgement is refused while an earlier one of its key
        is open, and with it that earlier one, if it stands behind it."""
        pause = _SHORTEST_PAUSE
        while True:
            await self._has_settled.wait()
            batch = sorted(self._settled, key=lambda lease: lease.number)[:_MOST_IDS]
            again = await self._acknowledged(batch)
            done = set(batch).difference(again)
            self._settled = [lease for lease in self._settled if lease not in done]
            if again:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                pause = _SHORTEST_PAUSE
            if not self._settled:
                self._has_settled.clear()
                self._all_settled.set()

    async def _acknowledged(self, batch: Sequence[_Lease]) -> list[_Lease]:
        """Those that must be sent again."""
        sent = {lease.ack_id: lease for lease in batch}
        causes: Mapping[str, str] = {}
        try:
            request = _AcknowledgeRequest(subscription=self._path, ack_ids=list(sent))
            await self._line.ask("Subscriber/Acknowledge", request, Empty, about="subscription")
        except Rejection as rejection:
            causes = rejection.causes
            if not causes:
                log.warning("%s could not acknowledge, and these come again: %s", self._name, rejection)
                causes = dict.fromkeys(sent, rejection.details)
        except BrokerError as error:
            log.debug("%s acknowledges again: %s", self._name, error)
            return list(batch)
        again = []
        for ack_id, lease in sent.items():
            cause = causes.get(ack_id, "")
            if cause.startswith(_TRANSIENT) or (cause and lease.ack_id != ack_id):
                again.append(lease)
                continue
            if cause:
                # Its lease was over. If it was not settled elsewhere, it comes again, and the inbox knows it.
                log.debug("%s: message %s was no longer ours to acknowledge: %s", self._name, lease.id, cause)
            self._leases.pop(lease.id, None)
        return again

    # -- leases ------------------------------------------------------------------------------------------

    async def _extend(self) -> None:
        """All at once, so that if we die they all end at once, and come again in order."""
        while True:
            await asyncio.sleep(self._deadline / 4)
            await self._modify(list(self._leases.values()), self._deadline)

    async def _modify(self, leases: Sequence[_Lease], seconds: int) -> None:
        for first in range(0, len(leases), _MOST_IDS):
            ids = [lease.ack_id for lease in leases[first : first + _MOST_IDS]]
            request = _ModifyAckDeadlineRequest(subscription=self._path, ack_ids=ids, ack_deadline_seconds=seconds)
            try:
                await self._line.ask("Subscriber/ModifyAckDeadline", request, Empty, about="subscription")
            except BrokerError as error:
                # In time for another try: a lease lasts four times as long as the pause. What is no longer ours will be
                # told by its acknowledgement.
                log.debug("%s could not change its leases: %s", self._name, error)

    # -- the end -----------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """What is settled is acknowledged, what is not goes back, in order."""
        if not self._tasks:
            return  # it was given up before it began
        stream, extending, acknowledging = self._tasks
        stream.cancel()
        await asyncio.wait([stream])
        try:
            await self.everything_settled()
            await self._modify([lease for lease in self._leases.values() if not lease.settled], 0)
        finally:
            self._leases.clear()
            for task in (extending, acknowledging):
                task.cancel()
            await asyncio.wait([extending, acknowledging])


async def _beat(call: Any) -> None:
    while True:
        await asyncio.sleep(_HEARTBEAT)
        try:
            await call.write(_StreamingPullRequest())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # whoever reads from it hears of it
