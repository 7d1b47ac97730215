"""What a state of the modelled world is made of: values only, so that two equal worlds are one state.

The words are those of the code: NEW … SKIPPED are the outbox's states, PROCESSING … FAILED the inbox's.
"""

from typing import Final, NamedTuple, TypeVar

UNWRITTEN: Final = "UNWRITTEN"
OPEN: Final = "OPEN"
ROLLED_BACK: Final = "ROLLED_BACK"
NEW: Final = "NEW"
RETRY: Final = "RETRY"
SENT: Final = "SENT"
FAILED: Final = "FAILED"
SKIPPED: Final = "SKIPPED"
PRUNED: Final = "PRUNED"
UNCOMMITTED: Final = (UNWRITTEN, OPEN, ROLLED_BACK)

NOBODY: Final = -1


class Row(NamedTuple):
    """An event in the outbox."""

    version: int
    state: str
    attempts: int


class Lease(NamedTuple):
    """A shard's lease as the database knows it. Any holder's time may run out: see the fault `stall`."""

    token: int
    epoch: int


WAITING: Final = "WAITING"
CONFIRMED: Final = "CONFIRMED"
REFUSED: Final = "REFUSED"
UNAVAILABLE: Final = "UNAVAILABLE"


class Due(NamedTuple):
    """An outbox row in a relay's hands, with the epoch under which it was read and the broker's answer."""

    event: int
    epoch: int
    attempts: int
    outcome: str


Hands = tuple[Due, ...]

OUT: Final = "OUT"
UP: Final = "UP"
DEAD: Final = "DEAD"


class Relay(NamedTuple):
    """A process with a token of its own: its number. One that crashed never comes back; another is started."""

    status: str
    epochs: tuple[int, ...]
    """Per shard, the epoch it believes to hold; 0 for none."""
    hands: Hands


class Mark(NamedTuple):
    """A marking statement whose connection broke: the database may still carry it out, at any time or never."""

    token: int
    settled: Hands


FREE: Final = 0
DELAYED: Final = -1
"""Given back for later, at a broker that lets others pass meanwhile; elsewhere it is FREE and holds its key."""


class Copy(NamedTuple):
    """A message in a subscription's queue. Copies of one event are told apart by their place only."""

    event: int
    holder: int
    """FREE, DELAYED or 1 + the number of a worker."""


PROCESSING: Final = "PROCESSING"
SUCCEEDED: Final = "SUCCEEDED"


class Record(NamedTuple):
    """An inbox row."""

    status: str
    locked_by: int
    """A living worker, or NOBODY: released, or its holder died and the lease will run out."""
    epoch: int
    retry_count: int
    waiting: bool
    """waiting_key is set: later events of the key must wait."""
    again: bool
    """next_retry_at is set."""
    settled: bool
    """processed_at is set."""
    kept: bool
    """The message itself is in the record: the retry scheduler can run it."""

    @property
    def stopped(self) -> bool:
        return self.status == FAILED and not self.again

    @property
    def refused(self) -> bool:
        return self.stopped and self.settled


NO_RECORD: Final = Record("", NOBODY, 0, 0, False, False, False, False)

IDLE: Final = "IDLE"
RECEIVED: Final = "RECEIVED"
CLAIMED: Final = "CLAIMED"
KNOWN: Final = "KNOWN"
LEASED: Final = "LEASED"
FAILING: Final = "FAILING"
REFUSING: Final = "REFUSING"
HANDLED: Final = "HANDLED"
BURYING: Final = "BURYING"
GIVING_BACK: Final = "GIVING_BACK"


class Worker(NamedTuple):
    """One lane of a worker's process. A process that crashed is started again with empty hands."""

    phase: str
    lane: tuple[int, ...]
    """The events in its hands; the first is being worked on."""
    lease: int
    """The inbox epoch of a leased attempt; 0 on the fast path."""
    failures: int
    scheduled: bool
    """Its event comes from the inbox, by the retry scheduler, and not from the broker."""


AT_REST: Final = Worker(IDLE, (), 0, 0, False)


class State(NamedTuple):
    rows: tuple[Row, ...]
    leases: tuple[Lease, ...]
    relays: tuple[Relay, ...]
    wire: tuple[tuple[int, ...], ...]
    """Messages under way on broken connections: they may still arrive, in order, or not."""
    strays: tuple[Mark, ...]
    arrived: int
    """Which events were ever in the broker, as bits."""
    skipped: int
    """Which events a person ever skipped."""
    queues: tuple[tuple[Copy, ...], ...]
    buried: tuple[int, ...]
    """Per group, the dead letters."""
    inbox: tuple[tuple[Record, ...], ...]
    workers: tuple[Worker, ...]
    effects: tuple[tuple[int, ...], ...]
    """Per group and event, how often the handler's effect was committed."""
    stopped: tuple[int, ...]
    """Per group, which events ever failed for good: a later return of theirs is outside the order."""
    faults: int
    """How many faults may still happen."""
    acts: int
    """How often a person may still interfere."""


Label = tuple[object, ...]
"""What a step was: a kind (see story.py) and its particulars."""
Steps = list[tuple[Label, State]]
T = TypeVar("T")


def put(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])
