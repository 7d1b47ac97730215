"""How far each partition has been settled. Its offset is committed only up to the first message that is not."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

UNKNOWN: Final = -1


@dataclass(slots=True, eq=False)
class Partition:
    """One for each time that a partition is assigned: verdicts on what came before that do not count any more.

    Two threads use it; whoever does holds the consumer's lock.
    """

    topic: str
    number: int
    next: int = UNKNOWN
    """The offset that has not come yet."""
    committed: int = UNKNOWN
    alive: bool = True
    _open: "OrderedDict[int, int]" = field(default_factory=OrderedDict)
    """The sizes of the unsettled, by offset. Ordered, because a plain dictionary looks long for its first entry when
    many were removed before it."""

    @property
    def name(self) -> tuple[str, int]:
        return self.topic, self.number

    @property
    def position(self) -> int:
        """All before it is settled."""
        return next(iter(self._open), self.next)

    @property
    def span(self) -> int:
        """What would come again after a crash."""
        return self.next - self.position

    @property
    def settled_beyond(self) -> int:
        return self.span - len(self._open)

    @property
    def sizes(self) -> list[int]:
        return list(self._open.values())

    def take(self, offset: int, size: int) -> bool:
        """False: it has been here."""
        if not self.alive or offset < self.next:
            return False
        self.next = offset + 1
        self._open[offset] = size
        return True

    def settle(self, offset: int) -> int | None:
        """Its size; None if it is not ours any more."""
        return self._open.pop(offset, None) if self.alive else None


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A message that has come from Kafka."""

    partition: Partition
    offset: int
    key: str
    attributes: Mapping[str, str]
    data: bytes
    size: int
    published: datetime | None
    recipient: str
    """The only subscription it is meant for; empty: it is for all."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Partitions have gone to another worker, or were set back."""
