"""What goes wrong, and when: drawn from the seed at every step that leaves a process."""

from collections import Counter
from collections.abc import Container, Mapping
from random import Random
from typing import Final

UPKEEP: Final = {
    "killed before": 0.3,
    "killed after": 0.3,
    "refused": 0.7,
    "cut before": 0.7,
    "cut after": 0.7,
    "busy": 0.9,
    "frozen": 0.3,
    "strange": 0.2,
}
"""For statements by which a process only gets ready or stays so: were they to fail often, it would do nothing else."""
STATEMENT: Final = {
    "killed before": 2.5,
    "killed after": 2.5,
    "refused": 3.5,
    "cut before": 3.5,
    "cut after": 3.5,
    "busy": 5,
    "frozen": 2.5,
    "strange": 1,
}
"""For those that carry an event on its way."""
WRITING: Final = {fault: weight / 4 for fault, weight in STATEMENT.items()}
"""For those of the writer, who needs several for each event and begins anew when one fails."""
COMMIT: Final = STATEMENT | {"killed before": 3.5, "killed after": 5, "cut before": 5, "cut after": 7}
SEND: Final = {
    "killed before": 5,
    "killed after": 9,
    "lost": 10,
    "unconfirmed": 12,
    "refused": 8,
    "fails": 4,
    "slow": 4,
    "frozen": 5,
}
RECEIVE: Final = {"killed after": 3, "twice": 25, "late": 10}
VERDICT: Final = {"killed before": 3, "killed after": 4, "lost": 12, "out of reach": 8, "unanswered": 10, "frozen": 3}
HANDLER: Final = {"fails before": 12, "fails after": 12, "killed": 4, "slow": 5}
WORLD: Final = {"broker away": 20, "database away": 12, "clock jumps": 20, "stopped": 12}


DIRECTED: Final[tuple[Mapping[str, float], ...]] = (
    {"": 0.1, "frozen": 3, "fails before": 1.5, "fails after": 1.5, "killed": 0},
    {"": 0.1, "slow": 6, "stopped": 3, "killed": 0},
    {"": 0.1, "fails": 4, "refused": 2, "lost": 3, "twice": 2},
    {"": 0.3, "strange": 6},
    {"": 1.0},
    # Little but handlers that fail: so events are tried again, and whoever freezes then loses its lease to another.
    {"": 0.02, "fails before": 1.5, "fails after": 1.0},
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
