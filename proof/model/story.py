"""A trace as a story: one sentence per step, in the words of people who run the system."""

from collections.abc import Callable, Sequence
from typing import Final

from proof.model.state import BURYING, CONFIRMED, GIVING_BACK, REFUSED, Due, Label
from proof.model.world import BUSINESS, FAILURE, World


def event_name(world: World, event: int) -> str:
    """a1, a2 … are the events of the first key, b1 … those of the second."""
    return f"{chr(ord('a') + world.scenario.keys[event])}{len(world.earlier[event]) + 1}"


def group_name(group: int) -> str:
    return ("receipts", "stock", "letters")[group]


def _relay(number: int) -> str:
    return f"relay {chr(ord('A') + number)}"


def _worker(number: int) -> str:
    return f"worker {number + 1}"


# How each particular of a step is spoken: r relay, w worker, e event, l several events, g group, n number, m marks.
SENTENCES: Final[dict[str, tuple[str, str]]] = {
    "begin": ("en", "a writer opens a transaction and writes {0} as version {1} of its key"),
    "commit": ("e", "the transaction of {0} commits: it is NEW in the outbox"),
    "roll back": ("e", "the transaction of {0} is rolled back"),
    "take": ("rnn", "{0} takes shard {1} (epoch {2})"),
    "take over": ("rnnr", "{0} takes over shard {1} (epoch {2}), for the lease of {3} ran out"),
    "notice": ("r", "{0} looks at its leases and learns what it really holds"),
    "hand over": ("rn", "{0} hands back shard {1}, for others to share the work"),
    "read": ("rl", "{0} reads {1}"),
    "confirm": ("re", "{0} sends {1}, the broker takes it and confirms"),
    "refuse": ("re", "{0} sends {1}, the broker refuses it"),
    "outage": ("re", "{0} sends {1}, but cannot reach the broker"),
    "lose confirm": ("re", "{0} sends {1}, the broker takes it, but the confirmation is lost"),
    "break": ("rl", "{0} sends {1}, the connection breaks, and it is still under way"),
    "arrive late": ("e", "{0}, long under way on a broken connection, arrives in the broker"),
    "give up": ("r", "{0} has nothing to mark and starts over"),
    "mark": ("rm", "{0} marks {1}"),
    "lose mark": ("rm", "{0} marks {1}, but its connection breaks and the statement is still under way"),
    "stray": ("rm", "the statement with which {0} marks {1} is carried out at last"),
    "relay crash": ("r", "{0} dies"),
    "retry": ("e", "a person has {0} sent again"),
    "skip": ("e", "a person skips {0}"),
    "prune": ("e", "the pruner removes {0} from the outbox"),
    "receive": ("wl", "{0} receives {1}"),
    "deadline": ("w", "{0} stalls for longer than its ack deadline; what it holds goes back to the queue"),
    "claim": ("we", "{0} opens a transaction, inserts the inbox row of {1} and runs the handler"),
    "commit handled": ("we", "{0} commits: the effect of {1} and its inbox row"),
    "commit unheard": ("we", "{0} commits {1}, but the answer is lost"),
    "commit failed": ("we", "{0} commits {1}, but the database is gone and rolls back"),
    "not fresh": ("we", "{0} finds that {1} is known already or must wait"),
    "duplicate": ("we", "{0} finds {1} settled already: a duplicate"),
    "dead before": ("we", "{0} finds that {1} has failed for good before"),
    "in progress": ("we", "{0} is told that {1} is IN_PROGRESS"),
    "acquire": ("wen", "{0} acquires {1} with a lease (epoch {2}) and runs the handler"),
    "take lease over": ("wenw", "{0} acquires {1} (epoch {2}), for the lease of {3} ran out, and runs the handler"),
    "run without lease": ("we", "{0}, as retry scheduler, runs the handler of {1} without a lease"),
    "commit leased": ("wen", "{0}, believing in epoch {2}, commits the effect of {1} and its success"),
    "lease lost": ("wen", "{0} wants to commit {1} under epoch {2}, which is over: it rolls back"),
    FAILURE: ("we", "the handler of {0} raises for {1}; its transaction is rolled back"),
    BUSINESS: ("we", "the handler of {0} refuses {1} with a business error; its transaction is rolled back"),
    "record failure": ("wenv", "{0} records failure {2} of {1}: {3}"),
    "failure not recorded": ("we", "{0} cannot record its failure of {1}: the record is somebody else's"),
    "ack": ("we", "{0} acknowledges {1}"),
    "bury": ("we", "{0} sends {1} to the dead letters"),
    "lose verdict": ("we", "{0} gives its verdict on {1}, but the broker never hears of it"),
    "give back": ("wl", "{0} gives {1} back for later"),
    "worker crash": ("w", "{0} dies; its transaction is rolled back, its messages go back to the queue"),
    "retry record": ("ge", "a person has {1} tried again in group {0}"),
    "revive": ("ge", "a person sends the dead letter {1} back to group {0}"),
    "discard": ("ge", "a person discards the dead letter {1} of group {0}"),
    "forget": ("ge", "the pruner removes the inbox row of {1} in group {0}"),
}

_MARKED: Final = {CONFIRMED: "SENT", REFUSED: "as refused"}
_VERDICTS: Final = {GIVING_BACK: "it will be tried again", BURYING: "that was the last try"}


def sentence(world: World, label: Label) -> str:
    kinds, text = SENTENCES[str(label[0])]
    spoken = [_spoken(world, kind, value) for kind, value in zip(kinds, label[1:], strict=False)]
    return text.format(*spoken)


def _spoken(world: World, kind: str, value: object) -> str:
    if isinstance(value, tuple):
        return _SEVERAL[kind](world, value)
    if isinstance(value, int):
        return _ONE[kind](world, value)
    return _VERDICTS.get(str(value), "settled with a no")


def _several(world: World, events: Sequence[int]) -> str:
    return " and ".join(event_name(world, event) for event in events)


def _marks(world: World, settled: Sequence[Due]) -> str:
    told = [f"{event_name(world, due.event)} {_MARKED.get(due.outcome, 'as failed')}" for due in settled]
    return " and ".join(told) + f" under epoch {settled[0].epoch}"


_SEVERAL: Final[dict[str, Callable[..., str]]] = {"l": _several, "m": _marks}
_ONE: Final[dict[str, Callable[[World, int], str]]] = {
    "r": lambda world, number: _relay(number),
    "w": lambda world, number: _worker(number),
    "e": event_name,
    "g": lambda world, group: group_name(group),
    "n": lambda world, number: str(number),
}


def story(world: World, trace: Sequence[Label]) -> list[str]:
    return [sentence(world, label) for label in trace]
