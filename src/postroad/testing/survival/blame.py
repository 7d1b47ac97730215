"""From another outcome to the handler that made it, as far as a run can tell."""

import re
from collections import Counter
from typing import Any

from postroad.testing.survival.outcome import Outcome
from postroad.testing.survival.verdict import Finding, Place, Played

_KEY = "Give the other side `message.id` as idempotency key: it is the same however often the event comes."
_SESSION = "Or do it through `session`: what is written there is undone together with the commit."
_FOLLOW_UP = (
    "Or write a follow-up event with `road.add(session, …)` and make the call, with that key, in its own handler: "
    "then nothing else is repeated with it."
)
_AT_ONCE = "Write the effect of each event through `session` before the handler returns: its commit settles the event."
_IN_A_TABLE = (
    "What is to be collected first belongs in a table; or take several events in one call: @road.on(…, batch=100)."
)
_COMMIT = "the commit failed"
_BETWEEN = {"worker-stalls": "it lost its lease to another worker", "duplicate": "the event came twice"}


def blame(played: Played, usual: Played) -> Finding:
    if places := played.repeated(usual):
        return _repeated(played, usual, places[0])
    where = played.fault.where if played.fault else ""
    match _kind(played):
        case "late-key":
            return Finding(
                f"The outcome depends on the order between keys: it changes when {where} comes last.",
                causes=[f"Called for it: {_handlers_of_key(played, where)}. Order is kept within one key only."],
                cures=[
                    "Let each handler reach the same end whichever event comes first.",
                    "Or raise TransientError when something is missing: the event is tried again later.",
                    "Or give both events the same aggregate and key: then they stay in order.",
                ],
                expected=usual.outcome,
            )
        case "late-group":
            return Finding(
                f"The outcome depends on which group is faster: it changes when {where} comes last.",
                causes=["Groups do not wait for each other; each has its own place in the topic."],
                cures=[
                    "Let the first write a follow-up event and the second listen to that.",
                    "Or do both in one handler of one group.",
                ],
                expected=usual.outcome,
            )
        case "two-workers":
            return Finding(
                "Two handlers at once overwrote what the other had done.",
                causes=["Events of different keys are handled at once: what one has read, another may change."],
                cures=["Change rows in one statement (SET total = total + :cents), or read them FOR UPDATE."],
                expected=usual.outcome,
            )
    return Finding(
        "The outcome changed, although no handler was called twice.",
        causes=["Something of it was kept in the process that died, or is not in the database yet."],
        cures=[_AT_ONCE, _IN_A_TABLE],
        expected=usual.outcome,
    )


def forgotten(played: Played, usual: Played) -> Finding | None:
    """An event that nobody will bring again, and whose effect is gone with the memory of who had it."""
    rows, outcome = _missing_rows(played, usual), usual.outcome.more_than(played.outcome)
    lost = [place for place in played.handled_before() if _is_named(played.key_of(*place), [*rows, *outcome])]
    if not lost:
        return None
    names = " and ".join(dict.fromkeys(played.name(event_id) for _, event_id in lost))
    group, event_id = lost[0]
    return Finding(
        f"{names} {'was' if len(lost) == 1 else 'were'} acknowledged, but "
        f"{'its effect is' if len(lost) == 1 else 'their effects are'} not there.",
        lost[0],
        [
            f"`{played.handler(group, event_id)}` (group {group}) was done with it before the process died, so it is "
            "not called again. What it had only in memory died with the process.",
            *(f"Missing in the database: {row[0]} {row[1:]!r}." for row in rows),
        ],
        [_AT_ONCE, _IN_A_TABLE],
        expected=None if played.outcome == usual.outcome else usual.outcome,
    )


def _missing_rows(played: Played, usual: Played) -> list[Any]:
    """Of tables that have fewer than usual: elsewhere a time or a generated id may be all that differs."""
    there, here = (Counter(row[0] for row in run.effects.value) for run in (usual, played))
    return [row for row in usual.effects.more_than(played.effects) if here[row[0]] < there[row[0]]]


def _is_named(key: str, rows: list[Any]) -> bool:
    word = re.compile(rf"(?<![\w-]){re.escape(key)}(?![\w-])")
    return any(word.search(repr(row)) for row in rows)


def _repeated(played: Played, usual: Played, place: Place) -> Finding:
    group, event_id = place
    handler = f"Your handler `{played.handler(*place)}` (group {group})"
    extra, missing = played.outcome.more_than(usual.outcome), usual.outcome.more_than(played.outcome)
    if missing and not extra:
        return Finding(
            f"{handler} left its work undone: called again for {played.name(event_id)}, it did nothing.",
            place,
            ["Its first call was rolled back, but what it remembers outside the database was not."],
            ["Keep what it must remember in the database, through `session`; the inbox already keeps duplicates away."],
            expected=usual.outcome,
        )
    times = {2: "twice", 3: "three times"}.get(played.attempts()[place], "several times")
    done = f"did its work {times}" if extra and not missing else "changed the outcome"
    causes, cures = [], [_KEY, _SESSION, _FOLLOW_UP]
    if missing and played.fault and played.fault.takes_memory:
        causes.append("What it had kept in memory died with the process.")
        cures.insert(0, "Keep in the database what must last, through `session`.")
    if missing and _kind(played) == "commit-fails":
        causes.append("Events of other keys may have been handled in between: order is kept within one key only.")
    return Finding(
        f"{handler} {done}: it was called for {played.name(event_id)}, {_BETWEEN.get(_kind(played), _COMMIT)}, "
        "and it was called again. What it did outside the database was not undone.",
        place,
        causes,
        cures,
        expected=usual.outcome,
    )


def blame_scenario(expected: Outcome) -> Finding:
    return Finding(
        "Your scenario did something before its commit that stayed, although the commit failed.",
        causes=["Nobody will ever know of it: its rows and its event are not there."],
        cures=[
            "Do it in the handler of an event that is written in that transaction: then it happens if the commit does.",
            "Or do it after the commit, if it may be lost.",
        ],
        expected=expected,
        as_what="as if it had not come so far",
    )


def _kind(played: Played) -> str:
    return played.fault.kind if played.fault else ""


def _handlers_of_key(played: Played, key: str) -> str:
    names = dict.fromkeys(
        f"`{call.handler}` (group {call.group})"
        for call in played.calls
        if any(message.ordering_key == key for message in call.messages)
    )
    return ", ".join(names) or "no handler"
