"""What goes wrong, and when: drawn from the seed at every step that leaves a process."""

from collections import Counter
from collections.abc import Container, Mapping
from random import Random
from typing import Final

UPKEEP: Final = {
    "killed before": 0.15,
    "killed after": 0.15,
    "refused": 1,
    "cut before": 1,
    "cut after": 1,
    "busy": 1.5,
    "frozen": 0.48,
    "strange": 0.32,
}
"""For statements by which a process only gets ready or stays so: were they to fail often, it would do nothing else."""
BEGIN: Final = UPKEEP | {"frozen": 4}
"""Where commands are taken in one transaction and carried out in the next: in between, their lease can be lost."""
STATEMENT: Final = {
    "killed before": 1,
    "killed after": 1,
    "refused": 5.5,
    "cut before": 5.5,
    "cut after": 5.5,
    "busy": 8,
    "frozen": 4,
    "strange": 1.5,
}
"""For those that carry an event on its way."""
WRITING: Final = {fault: weight / 4 for fault, weight in STATEMENT.items()}
"""For those of the writer, who needs several for each event and begins anew when one fails."""
COMMIT: Final = STATEMENT | {"killed before": 2, "killed after": 2.5, "cut before": 8, "cut after": 11}
SEND: Final = {
    "killed before": 2.5,
    "killed after": 4.5,
    "lost": 16,
    "unconfirmed": 19,
    "refused": 13,
    "fails": 6.5,
    "slow": 6.5,
    "frozen": 8,
}
RECEIVE: Final = {"killed after": 1.5, "twice": 40, "late": 16}
VERDICT: Final = {
    "killed before": 1.5,
    "killed after": 2,
    "lost": 19,
    "out of reach": 13,
    "unanswered": 16,
    "frozen": 5,
}
PUBLISH: Final = {"lost": 12, "unconfirmed": 14, "refused": 10, "nacked": 8, "slow": 5}
"""For each message on its way to RabbitMQ; what is lost, or goes unconfirmed, is so with its connection."""
DELIVER: Final = {"late": 12, "cut": 8, "dismissed": 6}
ACKNOWLEDGE: Final = {"lost": 15}
ADAPTER_SEND: Final = {fault: SEND[fault] for fault in ("killed before", "killed after", "fails", "frozen")}
ADAPTER_RECEIVE: Final = {"killed after": RECEIVE["killed after"]}
ADAPTER_VERDICT: Final = {fault: VERDICT[fault] for fault in ("killed before", "killed after", "frozen")}
"""What comes over a process that uses an adapter; the rest happens on the wire."""
PUBSUB_REQUEST: Final = {"lost": 12, "unanswered": 12}
PUBSUB_SERVER: Final = {"stream breaks": 20, "deadline": 10, "all deadlines": 4}
KAFKA_PUBLISH: Final = PUBLISH | {"written to one": 4, "written late": 6, "fatal": 1, "mute": 0.5}
KAFKA_REQUEST: Final = {"lost": 8, "unanswered": 8}
KAFKA_SERVER: Final = {"dismissed": 6, "shared out anew": 10}
HANDLER: Final = {"fails before": 19, "fails after": 19, "killed": 2, "slow": 8}
WORLD: Final = {"broker away": 20, "database away": 12, "clock jumps": 20, "stopped": 12}
RABBIT_WORLD: Final = WORLD | {"broker short of memory": 12}
_TABLES: Final = (STATEMENT, COMMIT, SEND, RECEIVE, VERDICT, PUBLISH, DELIVER, ACKNOWLEDGE, HANDLER, RABBIT_WORLD)
KINDS: Final = frozenset(kind for table in _TABLES for kind in table)

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
        if self.calm:
            return ""
        roll = self._random.random() * 100
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
