"""Event classes of every kind, for the tests of encoding."""

import dataclasses
import enum
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import msgspec
from hypothesis import strategies as st

from postroad.events import EventType


def type_of(cls: type) -> EventType:
    """A declaration beside the registry, so that each test can have its own class."""
    return EventType("order.placed", "shop.order.events", "order", None, 1, None, cls)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Line(msgspec.Struct):
    sku: str
    price: Decimal
    tags: frozenset[str] = frozenset()


class Order(msgspec.Struct):
    """A field for everything that can travel."""

    order_id: UUID
    cents: int
    weight: float
    note: str | None
    paid: bool
    colour: Colour
    at: datetime
    on: date
    opens: time
    lasts: timedelta
    lines: list[Line]
    seal: bytes
    pair: tuple[int, str]
    names: set[str]
    counts: dict[str, int]
    rest: Any = None


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Bag(dict[str, Any]):
    pass


def order(**changes: Any) -> Order:
    fields: dict[str, Any] = {
        "order_id": uuid4(),
        "cents": 1,
        "weight": 1.5,
        "note": None,
        "paid": True,
        "colour": Colour.RED,
        "at": datetime.now(UTC),
        "on": date(2025, 1, 1),
        "opens": time(8, tzinfo=UTC),
        "lasts": timedelta(seconds=1),
        "lines": [],
        "seal": b"",
        "pair": (1, "x"),
        "names": set(),
        "counts": {},
    }
    return Order(**{**fields, **changes})


zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-3))])
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
ints = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
amounts = st.decimals(allow_nan=False, allow_infinity=False)
moments = st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=zones)
json_values = st.recursive(
    st.none() | st.booleans() | ints | floats | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
)
