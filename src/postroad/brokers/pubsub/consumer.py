"""The wire's end of a subscription: one stream, reopened when it breaks; leases extended; acknowledgements awaited."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

import grpc
from google.protobuf.empty_pb2 import Empty

from postroad.brokers.base import Flow
from postroad.brokers.pubsub.letter import published_at, read
from postroad.brokers.pubsub.line import Line, Rejection, raw
from postroad.errors import BrokerError
from postroad.retry import describe

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
    key: str
    ack_id: str
    """That of the last delivery: an earlier one counts for nothing once a message has been delivered again."""
    settled: bool = False
    alone: bool = False
    """Its acknowledgement was refused once: it goes in a request of its own from now on, and its lease may end."""


class Consumer:
    """Lives in the connection's thread. A message that is here is told once, however often it is delivered."""

    def __init__(
        self,
        line: Line,
        subscription: str,
        name: str,
        deadline: int,
        most: Flow,
        tell: Callable[[Sequence[Arrival]], None],
    ) -> None:
        self._line, self._path, self._name, self._tell = line, subscription, name, tell
        self._deadline, self._most = deadline, most
        self._leases: dict[str, _Lease] = {}
        self._keys: dict[str, deque[_Lease]] = {}
        """Of each key what cannot be acknowledged yet, in the order of arrival."""
        self._settled: list[_Lease] = []
        """What can."""
        self._has_settled, self._all_settled = asyncio.Event(), asyncio.Event()
        self._all_settled.set()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._tasks: list[asyncio.Task[None]] = []
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
        loop = asyncio.get_running_loop()
        while True:
            began, trouble = loop.time(), ""
            try:
                await self._listen()
            except grpc.aio.AioRpcError as error:
                trouble = str(self._line.explained(error))
            except Exception as error:  # whatever it is: without a stream, nobody would notice that nothing comes
                trouble = describe(error)
            if loop.time() - began > _LONGEST_PAUSE:
                self._pause = 0.0  # it lived: streams end every now and then, and that is no trouble
            if trouble and self._pause == _SHORTEST_PAUSE:
                log.warning("%s receives nothing at the moment, and tries again: %s", self._name, trouble)
            await asyncio.sleep(self._pause)
            self._pause = min(max(self._pause * 2, _SHORTEST_PAUSE), _LONGEST_PAUSE)

    async def _listen(self) -> None:
        """Until the stream ends."""
        first = _StreamingPullRequest(
            subscription=self._path,
            stream_ack_deadline_seconds=self._deadline,
            # Another on each stream: under the same one the server goes on with a key where the last stream ended, also
            # past what was lost with it. As it is, the key waits until that is over its deadline.
            client_id=uuid4().hex,
            # Nobody extends the lease of what is on its way here and not read yet: no more than can be taken.
            max_outstanding_messages=self._most.messages,
            max_outstanding_bytes=self._most.bytes,
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
                continue
            lease = self._hold(_Lease(message.message_id, message.ordering_key, letter.ack_id))
            attributes, data, notes = read(message)
            if notes.get("for", self._name) != self._name:
                # Called back from the dead for another subscription; a topic cannot be sent to one alone.
                self.settle([lease.id])
                continue
            told.append(Arrival(lease.id, message.ordering_key, attributes, data, published_at(message)))
        if told:
            self._tell(told)

    def _hold(self, lease: _Lease) -> _Lease:
        self._leases[lease.id] = lease
        if lease.key:
            self._keys.setdefault(lease.key, deque()).append(lease)
        return lease

    # -- verdicts ----------------------------------------------------------------------------------------

    def settle(self, ids: Iterable[str]) -> None:
        """To be acknowledged, once all before it are that have its key: sooner it would be refused."""
        for id in ids:
            if (lease := self._leases.get(id)) and not lease.settled:
                lease.settled = True
                self._release(lease)
        if self._settled:
            self._all_settled.clear()
            self._has_settled.set()

    def _release(self, lease: _Lease) -> None:
        if not lease.key:
            self._settled.append(lease)
            return
        lane = self._keys.get(lease.key, deque())
        while lane and lane[0].settled:
            self._settled.append(lane.popleft())
        if not lane:
            self._keys.pop(lease.key, None)

    async def everything_settled(self) -> None:
        """Waits until every verdict has arrived; not for ever, because the server may be away."""
        try:
            async with asyncio.timeout(_LAST_WORDS):
                await self._all_settled.wait()
        except TimeoutError:
            pass

    async def _acknowledge(self) -> None:
        """One request at a time: of a key, each is refused while an earlier one is on its way."""
        pause = _SHORTEST_PAUSE
        while True:
            await self._has_settled.wait()
            if await self._acknowledge_some():
                pause = _SHORTEST_PAUSE
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            if not self._settled:
                self._has_settled.clear()
                self._all_settled.set()

    async def _acknowledge_some(self) -> bool:
        """Whether there was an answer."""
        most = next((place for place, lease in enumerate(self._settled[:_MOST_IDS]) if lease.alone), _MOST_IDS)
        batch, self._settled = self._settled[: max(1, most)], self._settled[max(1, most) :]
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
            self._settled = batch + self._settled
            return False
        refused, stale = [], []
        for ack_id, lease in sent.items():
            cause = causes.get(ack_id, "")
            if cause.startswith(_TRANSIENT):
                lease.alone = True
                refused.append(lease)
            elif cause and lease.ack_id != ack_id:
                stale.append(lease)  # it has been delivered again meanwhile, and has another id
            else:
                self._forget(lease, cause)
        # Behind the others: an earlier one of its key may have come again after it, and must go first.
        self._settled = [*stale, *self._settled, *refused]
        if refused:
            await asyncio.sleep(_SHORTEST_PAUSE)
        return True

    def _forget(self, lease: _Lease, cause: str) -> None:
        if cause:
            # Its lease was over. If it was not settled elsewhere, it comes again, and the inbox knows it.
            log.debug("%s: message %s was no longer ours to acknowledge: %s", self._name, lease.id, cause)
        self._leases.pop(lease.id, None)

    # -- leases ------------------------------------------------------------------------------------------

    async def _extend(self) -> None:
        """All at once, so that if we die they all end at once, and come again in order."""
        while True:
            await asyncio.sleep(self._deadline / 4)
            # What is done but refused waits for an earlier one, which may not come again as long as this one is held.
            await self._modify([lease for lease in self._leases.values() if not lease.alone], self._deadline)

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
            await self._modify(list(self._leases.values()), 0)
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
