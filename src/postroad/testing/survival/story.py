"""What happened, in words."""

import textwrap
from collections.abc import Sequence

from postroad.testing.survival.calls import Call
from postroad.testing.survival.faults import Fault
from postroad.testing.survival.outcome import Outcome
from postroad.testing.survival.verdict import Finding, Played


def tell(played: Played, findings: Sequence[Finding]) -> str:
    """The first finding in full, the others by their headlines."""
    first, *others = findings
    parts = [wrapped(first.headline), _what_happened(played, first)]
    if first.expected is not None:
        parts.append(_both(played.outcome, first.expected, first.as_what))
    if first.cures:
        parts.append(_to_do(first.cures))
    if others:
        parts.append("Besides:\n" + "\n".join(_item(other.headline) for other in others))
    return "\n\n".join(parts)


def advised(headline: str, cures: Sequence[str]) -> str:
    """Where nothing happened that would have to be told."""
    return f"{wrapped(headline)}\n\n{_to_do(cures)}"


def _to_do(cures: Sequence[str]) -> str:
    return "What to do:\n" + "\n".join(_item(cure) for cure in cures)


def _what_happened(played: Played, finding: Finding) -> str:
    lines = list(_steps(played, finding))
    lines += [wrapped(cause, "  ") for cause in finding.causes]
    return "What happened:\n" + "\n".join(lines)


def _steps(played: Played, finding: Finding) -> list[str]:
    told: list[str] = []
    calls = 0
    for entry in played.log:
        if isinstance(entry, Fault):
            told.append(entry.told)
        elif finding.place and entry.is_for(*finding.place):
            calls += 1
            told.append(_call(entry, calls))
    return [wrapped(text, f"  {number}. ") for number, text in enumerate(told, 1)]


def _call(call: Call, time: int) -> str:
    again = "" if time == 1 else " again"
    if call.committed:
        end = "Its commit went through"
    elif call.failure:
        end = f"It raised {call.failure}"
    else:
        end = "Its commit did not go through"
    return f"{call.who} was called{again} for {call.what}. {end}."


def _both(got: Outcome, expected: Outcome, as_what: str) -> str:
    lines = [f"Expected ({as_what}):\n{_indented(expected)}", f"Got:\n{_indented(got)}"]
    if extra := got.more_than(expected):
        lines.append("Too many: " + ", ".join(map(repr, extra)))
    if missing := expected.more_than(got):
        lines.append("Missing: " + ", ".join(map(repr, missing)))
    return "\n".join(lines)


def _indented(value: object) -> str:
    return textwrap.indent(str(value), "    ")


def _item(text: str) -> str:
    return wrapped(text, "  - ")


def wrapped(text: str, first: str = "") -> str:
    rest = " " * len(first)
    return textwrap.fill(
        text, 110, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
