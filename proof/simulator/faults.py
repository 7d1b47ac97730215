"""What goes wrong, and when: drawn from the seed at every step that leaves a process."""

from collections import Counter
from collections.abc import Container, Mapping
from random import Random
from typing import Final

STATEMENT: Final = {
    "killed before": 1.2,
    "killed after": 1.2,
    "refused": 1.0,
    "cut before": 1.0,
    "cut after": 1.0,
    "busy": 1.5,
    "frozen": 0.6,
}
COMMIT: Final = STATEMENT | {"killed before": 3.0, "killed after": 3.0, "cut before": 4.0, "cut after": 4.0}
SEND: Final = {"killed before": 4, "killed after": 4, "lost": 6, "unconfirmed": 8, "refused": 4, "frozen": 2}
RECEIVE: Final = {"killed after": 2, "twice": 15, "late": 8}
VERDICT: Final = {"killed before": 2, "killed after": 2, "lost": 8, "out of reach": 5, "unanswered": 5, "frozen": 1}
HANDLER: Final = {"fails before": 6, "fails after": 6, "killed": 2, "slow": 3}
WORLD: Final = {"broker away": 15, "database away": 10, "clock jumps": 15, "stopped": 15}


class Fates:
    """A fault has the chance of its weight; 100 is certainty. With `only`, just the faults of these numbers happen."""

    def __init__(self, random: Random, *, only: Container[int] | None = None, severity: float = 2.1) -> None:
        self._random, self._only, self._severity = random, only, severity
        self.calm = False
        self.drawn = 0
        self.happened: Counter[str] = Counter()

    def draw(self, table: Mapping[str, float]) -> str:
        """The fault that happens now, or nothing."""
        roll = self._random.random() * 100
        if self.calm:
            return ""
        for fault, weight in table.items():
            roll -= weight * self._severity
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
