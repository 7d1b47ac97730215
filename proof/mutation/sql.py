"""The mistakes in SQL: on its words, because three dialects are more than one grammar."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"(?P<skip>\s+|--[^\n]*)|(?P<text>'[^']*')|(?P<name>\{\w+\}|:\w+|[A-Za-z_][\w.]*)|(?P<number>\d+)"
    r"|(?P<operator><>|<=|>=|->>|\|\||=>|::|[=<>])|(?P<other>.)",
    re.DOTALL,
)
_COMPARISONS: Final = {"=": "<>", "<>": "=", "<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_TURNED: Final = {"=": "<>", "<>": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CLOCKS: Final = ("NOW", "CLOCK_TIMESTAMP", "UTC_TIMESTAMP", "POSTROAD_NOW", "POSTROAD_IN", ":NOW")
_COUNTED: Final = 1000
_ENDS: Final = (
    "WHERE", "ORDER", "GROUP", "LIMIT", "UNION", "FOR", "THEN", "ELSE", "WHEN", "END", "RETURNING", "ON", "SET", "JOIN",
    "LEFT", "CROSS", "FROM", "HAVING", "AS",
)  # fmt: skip
_BEGINS: Final = ("WHERE", "ON", "WHEN", "HAVING")
_TYPES: Final = ("CHAR", "VARCHAR", "UTC_TIMESTAMP", "DATETIME", "INTERVAL")


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int
    end: int
    depth: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "name" else self.text


@dataclass(frozen=True, slots=True)
class Edit:
    """What stands from `start` to `end`, replaced."""

    operator: str
    start: int
    end: int
    new: str

    def apply(self, sql: str) -> str:
        return sql[: self.start] + self.new + sql[self.end :]


def tokens(sql: str) -> list[Token]:
    found, depth = [], 0
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup or "other"
        depth -= match[0] == ")"
        if kind != "skip":
            found.append(Token(kind, match[0], match.start(), match.end(), depth))
        depth += match[0] == "("
    return found


def edits(sql: str) -> Iterator[Edit]:
    words = tokens(sql)
    assigned = list(_assignments(words))
    own = {_first_equals(words, first, last) for first, last in assigned}
    yield from _drop_conditions(words)
    yield from _drop_assignments(words, assigned)
    yield from _drop_clauses(words)
    yield from _turn_orders(words)
    for place, token in enumerate(words):
        if token.kind == "operator" and token.text in _COMPARISONS and place not in own:
            # Nobody sees whether a moment that passes by the microsecond counts itself.
            wrong = _TURNED if _asks_a_clock(words, place) else _COMPARISONS
            yield Edit("compare", token.start, token.end, wrong[token.text])
        elif token.word == "NOT" and not _defines(words, place):
            yield Edit("not", token.start, token.end, "")
        elif token.word == "OR":
            yield Edit("and/or", token.start, token.end, "AND")
        elif token.kind == "number" and not _says_nothing(words, place):
            # Nobody sees whether something takes a millionth longer.
            number = int(token.text)
            yield Edit("number", token.start, token.end, str(number + 1 if number < _COUNTED else number // _COUNTED))


def _says_nothing(words: Sequence[Token], place: int) -> bool:
    """The precision of a type; and the 1 that is selected where only the row counts."""
    before = words[place - 1].word if place else ""
    return before == "SELECT" or (before == "(" and words[place - 2].word in _TYPES)


def _asks_a_clock(words: Sequence[Token], place: int) -> bool:
    depth = words[place].depth
    both_sides = words[_backward(words, place, depth) : _forward(words, place, depth)]
    return any(token.word in _CLOCKS for token in both_sides)


def _defines(words: Sequence[Token], place: int) -> bool:
    return words[place + 1].word == "MATERIALIZED"


def _first_equals(words: Sequence[Token], first: int, last: int) -> int:
    return next((p for p in range(first, last) if words[p].text == "=" and words[p].depth == words[first].depth), -1)


# -- conditions ---------------------------------------------------------------------------------------------


def _drop_conditions(words: Sequence[Token]) -> Iterator[Edit]:
    """One of several that are joined by AND (or by OR), with the word that joins it."""
    for joint in ("AND", "OR"):
        for place, token in enumerate(words):
            if token.word != joint or _between(words, place):
                continue
            end = _forward(words, place, token.depth)
            yield Edit("drop", token.start, words[end - 1].end, "")
            begin = _backward(words, place, token.depth)
            if words[begin - 1].word != joint:  # the first of the row
                yield Edit("drop", words[begin].start, words[place + 1].start, "")


def _between(words: Sequence[Token], place: int) -> bool:
    return any(token.word == "BETWEEN" for token in words[max(0, place - 4) : place])


def _forward(words: Sequence[Token], place: int, depth: int) -> int:
    place += 1
    while place < len(words):
        token = words[place]
        ends = token.word in _ENDS or token.word in ("AND", "OR", ",")
        if token.depth < depth or (token.depth == depth and ends):
            return place
        place += 1
    return place


def _backward(words: Sequence[Token], place: int, depth: int) -> int:
    while place > 0:
        token = words[place - 1]
        ends = token.word in _BEGINS or token.word in ("AND", "OR", "SELECT", ",")
        if token.depth < depth or (token.depth == depth and ends):
            return place
        place -= 1
    return place


# -- assignments, clauses, orders ---------------------------------------------------------------------------


def _assignments(words: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Those of SET and of ON DUPLICATE KEY UPDATE: from the first word up to the comma or the end."""
    for place, token in enumerate(words):
        starts = token.word == "SET" or (token.word == "UPDATE" and place and words[place - 1].word == "KEY")
        if not starts:
            continue
        first = place + 1
        for here in range(first, len(words) + 1):
            over = here == len(words) or words[here].depth < token.depth
            at_depth = over or words[here].depth == token.depth
            if over or (at_depth and words[here].word in ("WHERE", "FROM", ",", "RETURNING")):
                yield first, here
                first = here + 1
                if over or words[here].text != ",":
                    break


def _drop_assignments(words: Sequence[Token], assigned: Sequence[tuple[int, int]]) -> Iterator[Edit]:
    for first, last in assigned:
        if last < len(words) and words[last].text == ",":
            yield Edit("set", words[first].start, words[last + 1].start, "")
        elif words[first - 1].text == ",":
            yield Edit("set", words[first - 1].start, words[last - 1].end, "")


def _drop_clauses(words: Sequence[Token]) -> Iterator[Edit]:
    for place, token in enumerate(words):
        pair = (token.word, words[place + 1].word if place + 1 < len(words) else "")
        if pair == ("FOR", "UPDATE"):
            locked = place + 3 < len(words) and words[place + 2].word == "SKIP"
            yield Edit("lock", token.start, words[place + (3 if locked else 1)].end, "")
            if locked:
                yield Edit("lock", words[place + 2].start, words[place + 3].end, "")
        elif pair == ("INSERT", "IGNORE"):
            yield Edit("conflict", words[place + 1].start, words[place + 1].end, "")
        elif pair in (("ON", "CONFLICT"), ("ON", "DUPLICATE")):
            yield Edit("conflict", token.start, words[-1].end, "")


def _turn_orders(words: Sequence[Token]) -> Iterator[Edit]:
    for place, token in enumerate(words):
        if token.word != "BY" or words[place - 1].word != "ORDER":
            continue
        for here in range(place + 1, len(words) + 1):
            over = here == len(words) or words[here].depth < token.depth
            word = "" if over else words[here].word
            if not over and not (words[here].depth == token.depth and word in ("LIMIT", "FOR", ",")):
                continue
            last = words[here - 1]
            if last.word == "DESC":
                yield Edit("order", last.start, last.end, "")
            else:
                yield Edit("order", last.end, last.end, " DESC")
            if over or word != ",":
                break
