"""The faults: where each can strike, and what it is in words."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from postroad.errors import ConfigurationError


class Crash(BaseException):
    """The process is dead: no `except Exception` may save it, nothing more of it may have an effect."""


@dataclass(frozen=True, slots=True)
class Kind:
    point: str
    """What is counted in the undisturbed run: each one is a place where this fault strikes once."""
    counted: str
    told: str
    """What happened, with the place filled in."""


KINDS: Final[Mapping[str, Kind]] = {
    "commit-before": Kind("commit", "before a commit", "The process died just before the commit of {where}."),
    "commit-after": Kind(
        "commit", "after a commit", "The process died just after the commit of {where}, before it heard of its success."
    ),
    "publish-before": Kind("publish", "before a publish", "The relay died just before it sent {where} to the broker."),
    "publish-after": Kind(
        "publish", "after a publish", "The relay died just after it had sent {where}, before the confirmation came."
    ),
    "ack-before": Kind("ack", "before an ack", "The worker died just before it acknowledged {where}."),
    "ack-after": Kind("ack", "after an ack", "The worker died just after it had acknowledged {where}."),
    "ack-lost": Kind("ack", "lost acks", "The acknowledgement of {where} was lost, so the broker delivered it again."),
    "duplicate": Kind("delivery", "duplicates", "The broker delivered {where} twice."),
    "late-key": Kind("key", "late keys", "Everything of {where} arrived after everything of the other keys."),
    "late-group": Kind("group", "late groups", "The group {where} was slow: it began when all others were done."),
    "commit-fails": Kind(
        "work", "failed commits", "The commit of {where} failed and was rolled back, and the process went on."
    ),
    "relay-stalls": Kind(
        "send",
        "stalled relays",
        "The relay stalled past its lease with {where} in hand. Another took over and finished; "
        "then the first went on.",
    ),
    "worker-stalls": Kind(
        "call",
        "stalled workers",
        "The worker stalled past its lease, about to call {where}, and its database connection was closed. "
        "Another took over and finished; then the first went on.",
    ),
    "two-workers": Kind("pair", "two workers at once", "Two workers ran at once."),
}


_KEEP_MEMORY: Final = ("commit-fails", "ack-lost", "duplicate", "late-key", "late-group", "two-workers")


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    number: int
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"

    @property
    def takes_memory(self) -> bool:
        """What comes after it is done by another process."""
        return self.kind not in _KEEP_MEMORY

    @property
    def told(self) -> str:
        return KINDS[self.kind].told.format(where=self.where)


def enumerate_faults(points: Mapping[str, Sequence[str]]) -> list[Fault]:
    """Every fault that can strike at the points of an undisturbed run. One late key of one changes nothing."""
    return [
        Fault(name, number, where)
        for name, kind in KINDS.items()
        if not (kind.point in ("key", "group") and len(points.get(kind.point, ())) < 2)
        for number, where in enumerate(points.get(kind.point, ()), 1)
    ]


def mistake_in(wanted: str) -> str:
    """Of what was asked for by name; empty if there can be such a fault."""
    kind, colon, number = wanted.partition(":")
    if kind not in KINDS:
        near = get_close_matches(kind, KINDS, n=1)
        meant = f" Did you mean {f'{near[0]}{colon}{number}'!r}?" if near else ""
        return f"There is no fault {kind!r}.{meant} There are: {', '.join(KINDS)}."
    if colon and (not number.isdecimal() or int(number) < 1):
        return f"{number!r} is no number. Faults of a kind are counted from 1: {kind}:1."
    return ""


def choose(faults: Sequence[Fault], wanted: str, untried: str = "") -> list[Fault]:
    """Those that were asked for: `commit-before:3`, or all of a kind, `commit-before`."""
    chosen = [fault for fault in faults if wanted in ("", str(fault), fault.kind)]
    if chosen or not wanted:
        return chosen
    there = Counter(fault.kind for fault in faults)
    known = ", ".join(f"{kind}:1 to {kind}:{count}" if count > 1 else f"{kind}:1" for kind, count in there.items())
    raise ConfigurationError(f"There is no fault {wanted!r} in this scenario. There are: {known}. {untried}".rstrip())


def counted(faults: Iterable[Fault]) -> str:
    """`27 faults tried: 9 before a commit, 9 after a commit, …`"""
    counts = Counter(fault.kind for fault in faults)
    parts = ", ".join(f"{count} {_singular(kind, count)}" for kind, count in counts.items())
    total = counts.total()
    return f"{total} fault{'' if total == 1 else 's'} tried: {parts}" if total else "no faults tried"


def _singular(kind: str, count: int) -> str:
    told = KINDS[kind].counted
    return told.removesuffix("s") if count == 1 else told
