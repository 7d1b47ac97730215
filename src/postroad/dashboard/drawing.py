"""Pictures as plain numbers; the templates turn them into SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from postroad.operations import Layout, Step

MOST_DRAWN: Final = 500
ROW: Final = 56
INDENT: Final = 28
_CARD: Final = 420
_LANE: Final = 260
_COLUMN: Final = 240
_BOX: Final = 200
_GAP: Final = 62


@dataclass(frozen=True, slots=True)
class Twig:
    step: Step
    x: int
    y: int
    stem: str
    """The path from its cause; empty for a root."""
    dot: float
    """Where on the time line it stands."""
    after: float
    """Seconds since the first."""


@dataclass(frozen=True, slots=True)
class Tree:
    twigs: Sequence[Twig]
    width: int
    height: int
    lane: int
    """Where the time line begins."""
    span: float
    """Seconds from the first to the last."""


def tree(steps: Sequence[Step]) -> Tree:
    grown = _grown(steps[:MOST_DRAWN])
    first = min((step.at for step, _, _ in grown), default=None)
    after = [(step.at - first).total_seconds() if first else 0.0 for step, _, _ in grown]
    span = max(after, default=0.0)
    lane = max((depth for _, depth, _ in grown), default=0) * INDENT + _CARD + 40
    twigs = []
    for place, (step, depth, cause) in enumerate(grown):
        x, y = depth * INDENT, place * ROW
        stem = f"M{grown[cause][1] * INDENT + 14} {cause * ROW + 44} V{y + 22} H{x}" if cause is not None else ""
        dot = lane + (after[place] / span * (_LANE - 20) if span else 0.0) + 6
        twigs.append(Twig(step, x, y, stem, dot, after[place]))
    return Tree(twigs, lane + _LANE, max(ROW, len(grown) * ROW), lane, span)


def _grown(steps: Sequence[Step]) -> list[tuple[Step, int, int | None]]:
    """Each with its depth and the place of its cause; its own effects follow right behind it."""
    known = {step.id for step in steps}
    effects: dict[str, list[Step]] = {}
    for step in steps:
        cause = step.causation_id
        effects.setdefault(cause if cause and cause in known and cause != step.id else "", []).append(step)
    grown: list[tuple[Step, int, int | None]] = []
    # Not recursive: a chain may be longer than Python's stack is deep.
    waiting: list[tuple[Step, int, int | None]] = [(step, 0, None) for step in reversed(effects.pop("", []))]
    while waiting or effects:
        if not waiting:
            # Only a ring is left, which other programs' ids could make: it is cut where it began.
            waiting = [(step, 0, None) for step in effects.pop(next(iter(effects)))]
        step, depth, cause_at = waiting.pop()
        grown.append((step, depth, cause_at))
        waiting += [(one, depth + 1, len(grown) - 1) for one in reversed(effects.pop(step.id, []))]
    return grown


@dataclass(frozen=True, slots=True)
class Box:
    id: str
    title: str
    note: str
    x: int
    y: int
    href: str = ""


@dataclass(frozen=True, slots=True)
class Map:
    boxes: Sequence[Box]
    paths: Sequence[str]
    width: int
    height: int


def topology(found: Layout, backlog: Mapping[str, int | None]) -> Map:
    """Service → topics → groups → handlers. Groups of other services are those that the broker tells of."""
    groups = sorted({(one.group, one.here) for one in found.readers})
    place = _Columns(max(1, len(found.topics), len(groups), len(found.reactions)))
    boxes = [place.box(0, 0, 1, "service", found.service, "this service")]
    for number, (topic, types) in enumerate(found.topics.items()):
        note = ", ".join(types) or "no type here"
        boxes.append(place.box(1, number, len(found.topics), f"topic {topic}", topic, note))
    for number, (group, here) in enumerate(groups):
        note = "elsewhere" if not here else f"{waits:,} waiting" if (waits := backlog.get(group)) else "idle"
        boxes.append(place.box(2, number, len(groups), f"group {group}", group, note, f"/groups/{group}"))
    for number, one in enumerate(found.reactions):
        boxes.append(place.box(3, number, len(found.reactions), f"handler {one}", one.handler, one.type))
    edges = [("service", f"topic {topic}") for topic in found.sends]
    edges += [(f"topic {one.topic}", f"group {one.group}") for one in found.readers]
    edges += [(f"group {one.group}", f"handler {one}") for one in found.reactions]
    by_id = {box.id: box for box in boxes}
    return Map(boxes, [_curve(by_id[a], by_id[b]) for a, b in edges], 3 * _COLUMN + _BOX + 4, place.rows * _GAP)


@dataclass(frozen=True, slots=True)
class _Columns:
    rows: int

    def box(self, column: int, number: int, of: int, id: str, title: str, note: str, href: str = "") -> Box:
        """Each column is centred beside the longest."""
        y = number * _GAP + (self.rows - of) * _GAP // 2
        return Box(id, _cut(title), _cut(note, 30), column * _COLUMN + 2, y + 6, href)


def _curve(a: Box, b: Box) -> str:
    from_x, from_y, to_x, to_y = a.x + _BOX, a.y + 25, b.x, b.y + 25
    middle = (from_x + to_x) // 2
    return f"M{from_x} {from_y} C{middle} {from_y} {middle} {to_y} {to_x} {to_y}"


def _cut(text: str, longest: int = 25) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
