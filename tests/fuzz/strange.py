"""Values as nobody expects them, drawn by lot: a seed draws the same ones again.

Written by hand and not as Hypothesis strategies, because ten thousand nested values have to be drawn in a few
seconds. Each value knows whether it may travel in a field that takes anything.
"""

import math
import random
import string
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

WORDS = (
    "", " ", "a", "null", "NaN", "true", "0", "-0", "1e999", "\\", '"', "'", "\\u0000", "\\x00", "%s", "%(x)s", ":x",
    "?", "👩‍👩‍👧",
    "{}", "{0}", "$1", "$$", "--", ";", "/*", "'; DROP TABLE postroad_outbox; --", "\t", "\r\n", "\x01", "\x1b[2J",
    "\x7f", "\x85", "\x9b", "\u2028", "\ufeff", "\u200d", "\u202e", "é", "e\u0301", "ß", "İ", "ı", "ﬁ", "日本語", "😀",
    "\U0010ffff", "\ufffe", "\uffff", "\ue000", "a" * 1_000, "é" * 300, "😀" * 200, "__proto__", "constructor", "$ref",
)  # fmt: skip
BROKEN_WORDS = ("\0", "a\0b", "\ud800", "\udfff", "\ud83d", "é\udc00", "\ude00\ud83d", "\0" * 50)
INTS = (0, 1, -1, 2**31, -(2**31) - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
BROKEN_INTS = (2**63, -(2**63) - 1, 2**64, 10**30, -(10**400), 10**5_000)
FLOATS = (0.0, -0.0, 1e308, -1e308, 5e-324, 1.7976931348623157e308, 0.1, 1 / 3, 1e16, 123456789.123456789, 2.0**63)
BROKEN_FLOATS = (math.nan, math.inf, -math.inf)


class NoZone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> None:
        return None


class BrokenZone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        raise RuntimeError("no idea where I am")


class Suit(Enum):
    HEARTS = "♥"


ZONES = (
    UTC,
    timezone(timedelta(hours=5, minutes=45)),
    timezone(timedelta(hours=-23, minutes=-59)),
    timezone(timedelta(hours=23, minutes=59)),
    ZoneInfo("Asia/Kathmandu"),
    ZoneInfo("America/New_York"),
    ZoneInfo("Pacific/Apia"),
)
BROKEN_ZONES = (None, NoZone(), BrokenZone())
# Whole minutes only: no zone with seconds can be written in RFC 3339.
ODD_ZONES = (timezone(timedelta(seconds=1)), timezone(timedelta(microseconds=1)))
AMOUNTS = tuple(map(Decimal, ("0", "-0", "0.00", "1E+10", "1E-30", "99999999999999999999999999.99", "-1.10")))
BROKEN_AMOUNTS = tuple(map(Decimal, ("NaN", "sNaN", "Infinity", "-Infinity")))


class Drawn(NamedTuple):
    value: Any
    faithful: bool
    """Whether a field of type Any can carry it."""


class Strange:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def text(self) -> str:
        """Text that every store can keep."""
        words = [self.chance.choice(WORDS) for _ in range(self.chance.randint(0, 3))]
        if self.chance.random() < 0.5:
            words.append("".join(chr(self._code_point()) for _ in range(self.chance.randint(0, 8))))
        self.chance.shuffle(words)
        return "".join(words)

    def broken_text(self) -> str:
        return self.text() + self.chance.choice(BROKEN_WORDS) + self.text()

    def any_text(self) -> str:
        return self.broken_text() if self.chance.random() < 0.15 else self.text()

    def name(self) -> str:
        return "".join(self.chance.choices(string.ascii_lowercase, k=8))

    def moment(self) -> datetime:
        year = self.chance.choice((2, 1883, 1970, 2000, 2024, 2038, 9998))
        naive = datetime(year, self.chance.randint(1, 12), self.chance.randint(1, 28), self.chance.randint(0, 23), 59)
        return naive.replace(microsecond=self.chance.choice((0, 1, 999_999)), fold=self.chance.randint(0, 1))

    def value(self, depth: int = 0) -> Drawn:
        """Anything at all."""
        kind = self.chance.random()
        if depth < 4 and kind < 0.3:
            return self._container(depth)
        if kind < 0.85:
            return Drawn(self.chance.choice(self._plain())(), True)
        if kind < 0.92:
            return Drawn(self.chance.choice(self._broken())(), False)
        return Drawn(self.chance.choice(self._typed())(), False)

    def faithful_value(self) -> Any:
        while not (drawn := self.value()).faithful:
            pass
        return drawn.value

    def typed(self) -> dict[str, Any]:
        """Fields for `tests.support.shapes.order`, right ones and wrong ones."""
        fields: dict[str, Callable[[], Any]] = {
            "cents": lambda: self.chance.choice(INTS + BROKEN_INTS),
            "weight": lambda: self.chance.choice(FLOATS + BROKEN_FLOATS),
            "note": self.any_text,
            "at": lambda: self.moment().replace(tzinfo=self.chance.choice(ZONES + ODD_ZONES + BROKEN_ZONES)),
            "opens": lambda: time(
                self.chance.randint(0, 23),
                microsecond=self.chance.choice((0, 7)),
                tzinfo=self.chance.choice((*ZONES[:4], *ODD_ZONES, *BROKEN_ZONES)),
            ),
            "on": lambda: self.chance.choice((date.min, date.max, date(2024, 2, 29))),
            "lasts": lambda: self.chance.choice(
                (
                    timedelta(0),
                    timedelta.max,
                    timedelta.min,
                    timedelta(microseconds=-1),
                    timedelta(days=1, microseconds=1),
                )
            ),
            "seal": lambda: self.chance.randbytes(self.chance.choice((0, 1, 2, 3, 300))),
            "pair": lambda: (self.chance.choice(INTS), self.any_text()),
            "names": lambda: {self.any_text() for _ in range(3)},
            "counts": lambda: {self.any_text(): self.chance.choice(INTS + BROKEN_INTS[:1]) for _ in range(3)},
            "rest": lambda: self.value().value,
        }
        chosen = self.chance.sample(sorted(fields), self.chance.randint(1, 4))
        right = {name: fields[name]() for name in chosen}
        if self.chance.random() < 0.1:
            right[self.chance.choice(sorted(fields))] = self.value().value
        return right

    def _container(self, depth: int) -> Drawn:
        parts = [self.value(depth + 1) for _ in range(self.chance.randint(0, 4))]
        faithful = all(part.faithful for part in parts)
        values = [part.value for part in parts]
        shape = self.chance.random()
        if shape < 0.45:
            return Drawn(values, faithful)
        if shape < 0.9:
            names = [self._key() for _ in values]
            whole = all(isinstance(name, str) and storable(name) for name in names)
            # A name that is drawn twice holds only the value drawn last.
            kept = dict(zip(names, parts, strict=True))
            return Drawn(
                {name: part.value for name, part in kept.items()},
                whole and all(part.faithful for part in kept.values()),
            )
        if shape < 0.95:
            deep: list[Any] = values
            for _ in range(layers := self.chance.choice((10, 20, 120, 3_000))):
                deep = [deep]
            return Drawn(deep, faithful and layers <= 20)
        return Drawn(tuple(values), False)

    def _key(self) -> Any:
        if self.chance.random() < 0.04:
            return self.chance.choice((1, None, True, 1.5, b"x", (1,), UUID(int=7), Suit.HEARTS))
        return self.any_text() if self.chance.random() < 0.2 else self.text()

    def _plain(self) -> tuple[Callable[[], Any], ...]:
        return (
            lambda: self.chance.choice((None, True, False)),
            lambda: self.chance.choice(INTS),
            lambda: self.chance.randint(-(2**63), 2**63 - 1),
            lambda: self.chance.choice(FLOATS),
            lambda: self.chance.uniform(-1e9, 1e9),
            self.text,
            self.text,
        )

    def _broken(self) -> tuple[Callable[[], Any], ...]:
        return (
            lambda: self.chance.choice(BROKEN_INTS),
            lambda: self.chance.choice(BROKEN_FLOATS),
            self.broken_text,
            object,
            lambda: 1j,
            lambda: range(3),
            lambda: print,
        )

    def _typed(self) -> tuple[Callable[[], Any], ...]:
        """Values with a JSON form that would come back as something else."""
        return (
            lambda: self.moment().replace(tzinfo=self.chance.choice(ZONES + ODD_ZONES + BROKEN_ZONES)),
            lambda: date(2024, 2, 29),
            lambda: time(12, tzinfo=UTC),
            lambda: timedelta(seconds=1),
            lambda: self.chance.choice(AMOUNTS + BROKEN_AMOUNTS),
            lambda: self.chance.randbytes(5),
            lambda: bytearray(b"x"),
            lambda: UUID(int=self.chance.getrandbits(128)),
            lambda: {1, 2},
            lambda: frozenset({"a"}),
            lambda: Suit.HEARTS,
        )

    def _code_point(self) -> int:
        plane = self.chance.random()
        if plane < 0.5:
            return self.chance.randint(1, 0x7F)
        if plane < 0.8:
            return self.chance.randint(0x80, 0xD7FF)
        return self.chance.choice((self.chance.randint(0xE000, 0xFFFF), self.chance.randint(0x10000, 0x10FFFF)))


def storable(text: str) -> bool:
    try:
        return "\0" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False
