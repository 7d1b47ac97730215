"""What can be set about a subscriber, and what it counts."""

from dataclasses import dataclass, field

from postroad.brokers.base import Flow
from postroad.errors import ConfigurationError
from postroad.retry import CONSUMER, Backoff


@dataclass(frozen=True, slots=True)
class SubscriberOptions:
    concurrency: int = 8
    """How many handlers run at once, each for another key."""
    flow: Flow = field(default_factory=Flow)
    ack_deadline: float | None = None
    """Seconds after which a dead worker's messages go to another; extended while it lives. None: the broker's own."""
    backoff: Backoff = CONSUMER
    lock_ttl: float = 10.0
    """The lease of a repeated attempt; renewed while the handler runs. Until it ends, a dead worker keeps its event
    from all others, though the broker hand it out sooner: no longer than the embedded broker's deadline, therefore."""
    grace: float = 8.0
    """Seconds that running handlers have to finish when the subscriber stops."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigurationError(f"Subscriber concurrency is {self.concurrency}. At least 1 is needed.")
        if self.ack_deadline is not None and self.ack_deadline <= 0:
            raise ConfigurationError(f"Subscriber ack_deadline is {self.ack_deadline}. It must be more than 0 seconds.")
        if self.lock_ttl <= 0 or self.grace < 0:
            raise ConfigurationError("Subscriber lock_ttl must be positive, grace must not be negative.")


@dataclass(slots=True)
class Statistics:
    """Counts since the start, for people and dashboards."""

    handled: int = 0
    duplicates: int = 0
    failed: int = 0
    """Attempts that failed, whatever followed."""
    dead: int = 0
    skipped: int = 0
    """Events of the topic that were never meant for this group."""
    acked: int = 0
    given_back: int = 0
