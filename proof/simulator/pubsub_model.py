"""Google's rules for an ordered subscription with exactly-once delivery. Nothing here waits: others move it.

The emulator keeps them only while nothing goes wrong: after a broken stream it delivers later messages of a key before
those that were lost with it, and of a key that is given back only the one message returns. What Google says of its
service, and what is modelled here:

- A delivery is open until it is acknowledged, given back, or over its deadline. The end of its stream changes nothing.
- While something of a key is open to a subscriber, whatever else is delivered of the key goes to that same one; before
  another can have the key, nothing more is delivered of it until nothing is open.
- Who has the same client id is the same subscriber: a stream that replaces another goes on where that one was. So what
  is behind a message may come on the new stream although the message was lost with the old one.
- What is given back or over its deadline comes again, and so does everything of its key behind it, in order.
- But also: nothing comes again while it is open. Google does not say which of the two holds for what is behind and
  open: here both can. (Nothing behind can be acknowledged already: that would have been refused.)
- Only the id of the latest delivery acknowledges. Of a key, none is taken before the earlier ones.
- A stream is a gRPC call: what arrives on it arrives in order and without gaps. When it breaks, its end may be missing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random

INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"


@dataclass(eq=False)
class Stored:
    id: str
    key: str
    """Without one it follows nobody, and has one of its own here."""
    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    stream: "Stream | None" = None
    """To which its delivery is open."""
    ack_id: str = ""
    due: float = 0.0
    acknowledged: bool = False


@dataclass(eq=False)
class Stream:
    number: int
    client: str
    on_its_way: "asyncio.Queue[list[tuple[Stored, str]] | None]" = field(default_factory=asyncio.Queue)
    """Messages with the ids of these deliveries; None is the end."""
    ended: bool = False
    """As far as the server knows."""

    def breaks(self, arriving: int = 0) -> None:
        """Of what is on its way, only so much arrives; the server need not hear of it."""
        sent = [self.on_its_way.get_nowait() for _ in range(self.on_its_way.qsize())]
        for answer in [*sent[:arriving], None]:
            self.on_its_way.put_nowait(answer)


class Model:
    def __init__(
        self,
        chance: Random,
        time: Callable[[], float] = lambda: 0.0,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`chance` decides what Google leaves undecided."""
        self.messages: list[Stored] = []
        self.streams: list[Stream] = []
        self.refused: list[str] = []
        self.deadline = 10.0
        self.all_behind = 1.0
        """How probably what is behind comes again although it is open."""
        self._chance, self._time, self._tell = chance, time, tell
        self._ids = count(1)

    def publish(self, key: str, *texts: str) -> None:
        self.take(*(Stored(str(next(self._ids)), key, text.encode()) for text in texts))

    def take(self, *messages: Stored) -> None:
        self.messages += messages
        self.deliver()

    def open(self, client: str) -> Stream:
        stream = Stream(len(self.streams), client)
        self.streams.append(stream)
        self._tell(f"stream {stream.number} begins")
        self.deliver()
        return stream

    def end(self, stream: Stream) -> None:
        """The server hears that it is over. What it holds is held until its deadline."""
        if not stream.ended:
            self._tell(f"stream {stream.number} is known to have ended")
        stream.ended = True

    def deliver(self) -> None:
        answers: dict[Stream, list[tuple[Stored, str]]] = {}
        for key in dict.fromkeys(message.key for message in self.messages):
            waiting = self.unacknowledged(key)
            if (stream := self._stream_for(waiting)) is None:
                continue
            for message in waiting:
                if message.stream is None:
                    message.stream, message.ack_id = stream, f"ack-{next(self._ids)}"
                    message.due = self._time() + self.deadline
                    answers.setdefault(stream, []).append((message, message.ack_id))
                    self._tell(f"{key} {message.data.decode()} is sent on stream {stream.number}")
        for stream, sent in answers.items():
            stream.on_its_way.put_nowait(sent)

    def _stream_for(self, waiting: Iterable[Stored]) -> Stream | None:
        live = [stream for stream in self.streams if not stream.ended]
        for message in waiting:
            if message.stream is not None:
                live = [stream for stream in live if stream.client == message.stream.client]
        if not live:
            return None  # until nothing is open to who was there before
        return self._chance.choice(live)

    def unacknowledged(self, key: str) -> list[Stored]:
        return [message for message in self.messages if message.key == key and not message.acknowledged]

    def open_ones(self) -> int:
        return sum(not message.acknowledged for message in self.messages)

    # -- deadlines and verdicts --------------------------------------------------------------------------

    def pass_deadlines(self) -> None:
        """Of everything that is open."""
        self.expire([message for message in self.messages if message.stream])

    def pass_time(self) -> None:
        self.expire([message for message in self.messages if message.stream and message.due <= self._time()])

    def expire(self, messages: Iterable[Stored]) -> None:
        for message in messages:
            waiting = self.unacknowledged(message.key)
            behind = waiting[waiting.index(message) + 1 :]
            message.stream = None
            self._tell(f"{message.key} {message.data.decode()} is nobody's any more")
            if self._chance.random() < self.all_behind:
                for other in behind:
                    other.stream = None
        self.deliver()

    def extend(self, ack_ids: Iterable[str], seconds: int) -> None:
        known = [message for message in self.messages if message.stream and message.ack_id in ack_ids]
        for message in known:
            message.due = self._time() + seconds
        if seconds == 0:
            self.expire(known)

    def acknowledge(self, ack_ids: Iterable[str]) -> dict[str, str]:
        """Why some were refused."""
        causes: dict[str, str] = {}
        unordered: set[str] = set()
        for ack_id in ack_ids:
            if cause := self._acknowledge(ack_id, unordered):
                causes[ack_id] = cause
                self.refused.append(cause)
                self._tell(f"an acknowledgement is refused: {cause}")
        self.deliver()
        return causes

    def _acknowledge(self, ack_id: str, unordered: set[str]) -> str:
        """`unordered`: the keys of which one was refused in the same request; no other of theirs is taken then."""
        found = [message for message in self.messages if message.stream and message.ack_id == ack_id]
        if not found:
            return INVALID
        (message,) = found
        if self.unacknowledged(message.key)[0] is not message or message.key in unordered:
            unordered.add(message.key)
            return UNORDERED
        message.acknowledged, message.stream = True, None
        self._tell(f"{message.key} {message.data.decode()} is acknowledged")
        return ""
