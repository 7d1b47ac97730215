"""What the writers know of each transfer or command: it is theirs, not the database's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class Outcome(Enum):
    KEPT = "kept"
    UNDONE = "undone"
    UNKNOWN = "unknown"
    """The commit failed, before the server got it or after: nobody here can tell."""


Note = Callable[[str, Outcome], None]


@dataclass
class Journal:
    """What the writers know. A transfer that is not in it (its writer was killed) may have happened or not."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def note(self, transfer: str, outcome: Outcome) -> None:
        self.outcomes[transfer] = outcome

    def of(self, outcome: Outcome) -> set[str]:
        return {transfer for transfer, found in self.outcomes.items() if found is outcome}

    @classmethod
    def read(cls, *paths: Path) -> "Journal":
        journal = cls()
        for path in paths:
            # Only whole lines: the writer may have been killed in the middle of one.
            for line in path.read_text().rpartition("\n")[0].splitlines():
                transfer, _, outcome = line.partition(" ")
                journal.note(transfer, Outcome(outcome))
        return journal
