"""What goes wrong, and when: drawn from the seed at every step that leaves a process."""

from collections import Counter
from collections.abc import Container, Mapping
from random import Random
from typing import Final

STATEMENT: Final = {
    "killed before": 1.8,
    "killed after": 1.8,
    "refused": 1.5,
    "cut before": 1.5,
    "cut after": 1.5,
    "busy": 2.2,
    "frozen": 0.8,
    "strange": 0.3,
}
COMMIT: Final = STATEMENT | {"killed before": 4.5, "killed after": 4.5, "cut before": 6.0, "cut after": 6.0}
SEND: Final = {
    "killed before": 16,
    "killed after": 16,
    "lost": 12,
    "unconfirmed": 16,
    "refused": 12,
    "fails": 6,
    "slow": 6,
    "frozen": 6,
}
RECEIVE: Final = {"killed after": 5, "twice": 30, "late": 15}
VERDICT: Final = {"killed before": 6, "killed after": 6, "lost": 15, "out of reach": 10, "unanswered": 12, "frozen": 3}
HANDLER: Final = {"fails before": 15, "fails after": 15, "killed": 8, "slow": 6}
WORLD: Final = {"broker away": 25, "database away": 15, "clock jumps": 25, "stopped": 25}


DIRECTED: Final[tuple[Mapping[str, float], ...]] = (
    {"": 0.1, "frozen": 12, "fails before": 3, "fails after": 3, "killed": 0},
    {"": 0.1, "slow": 6, "stopped": 3, "killed": 0},
    {"": 0.1, "fails": 4, "refused": 2, "lost": 3, "twice": 2},
    {"": 0.4},
    {"": 1.0},
)
"""How much likelier a fault is, and how likely the others are, where deep paths are looked for: with all of them at
once, nobody would ever get there."""


class Fates:
    """A fault has the chance of its weight; 100 is certainty. With `only`, just the faults of these numbers happen."""

    def __init__(
        self, random: Random, *, only: Container[int] | None = None, likelier: Mapping[str, float] | None = None
    ) -> None:
        self._random, self._only, self._likelier = random, only, likelier
        self.calm = False
        self.drawn = 0
        self.happened: Counter[str] = Counter()

    def draw(self, table: Mapping[str, float]) -> str:
        """The fault that happens now, or nothing."""
        roll = self._random.random() * 100
        if self.calm:
            return ""
        for fault, weight in table.items():
            roll -= weight if self._likelier is None else weight * self._likelier.get(fault, self._likelier[""])
            if roll < 0:
                self.drawn += 1
                if self._only is not None and self.drawn not in self._only:
                    return ""
                self.happened[fault] += 1
                return fault
        return ""

    def latency(self) -> float:
        """Mostly none, so that steps of different processes fall together; sometimes long enough to be overtaken."""
        return 0.0 if self._random.random() < 0.7 else self._random.random() * 0.02
