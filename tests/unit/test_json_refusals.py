"""What would not arrive as it was given is refused when it is written, by field and rule."""

import dataclasses
import math
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.codec import decode, encode
from postroad.codec.faithful import MAX_DEPTH, path_text
from postroad.errors import ConfigurationError, InvalidPayload, UnreadableMessage
from tests.support.shapes import Bag, Colour, Line, Order, Point, order, type_of

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.decimals()
    | st.datetimes()
    | st.uuids()
    | st.complex_numbers()
    | st.builds(object),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters()) | st.integers(), inner)
        | st.tuples(inner)
        | st.frozensets(st.integers() | st.text(st.characters()))
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("cls", [Line, Point, Bag])
@given(value=anything)
def test_whatever_is_given_is_faithful_or_refused_by_name(cls: type, value: object) -> None:
    broken: Any
    if cls is Bag:
        broken = Bag(value=value)
    elif cls is Point:
        broken = Point(x=value)  # type: ignore[arg-type]
    else:
        broken = Line(sku=value, price=Decimal(1))  # type: ignore[arg-type]
    try:
        data = encode(broken, type_of(cls))
    except InvalidPayload as refusal:
        assert refusal.path.startswith(("value", "x", "sku"))  # noqa: PT017
    else:
        assert decode(data, type_of(cls)) == broken
        assert b"\\u0000" not in data.replace(b"\\\\", b"")


DEEP: list[Any] = []
for _ in range(5_000):
    DEEP = [DEEP]
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


class Text(str):
    pass


class BrokenZone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        raise RuntimeError("no idea where I am")


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        pytest.param(math.nan, "NaN or infinite", id="nan"),
        pytest.param(math.inf, "NaN or infinite", id="inf"),
        pytest.param(-math.inf, "NaN or infinite", id="-inf"),
        pytest.param(Decimal("NaN"), "NaN or infinite", id="decimal-nan"),
        pytest.param(Decimal("sNaN"), "NaN or infinite", id="decimal-snan"),
        pytest.param("a\0b", "NUL character", id="nul"),
        pytest.param("\ud800", "surrogate", id="surrogate"),
        pytest.param("é\udfff", "surrogate", id="surrogate-2"),
        pytest.param(2**63, "64 bits", id="big"),
        pytest.param(-(2**63) - 1, "64 bits", id="small"),
        pytest.param(datetime(2025, 1, 1), "without time zone", id="naive-datetime"),
        pytest.param(time(12), "without time zone", id="naive-time"),
        pytest.param(object(), "type object, which has no JSON form", id="object"),
        pytest.param(1j, "type complex", id="complex"),
        pytest.param(Text("x"), "type Text", id="str-subclass"),
        pytest.param(msgspec.Raw(b"{bad"), "type Raw", id="raw"),
        pytest.param(DEEP, "100 levels", id="deep"),
        pytest.param(CYCLE, "contains itself", id="cycle"),
        pytest.param(uuid4(), "a UUID would arrive as str", id="uuid"),
        pytest.param(b"x", "a bytes would arrive as str", id="bytes"),
        pytest.param({"a"}, "a set would arrive as list", id="set"),
        pytest.param((1, 2), "a tuple would arrive as list", id="tuple"),
        pytest.param(datetime(2025, 1, 1, tzinfo=UTC), "a datetime would arrive as str", id="datetime"),
        pytest.param(Decimal("1.1"), "a Decimal would arrive as str", id="decimal"),
        pytest.param(Point(1), "a Point would arrive as dict", id="dataclass"),
        pytest.param(Colour.RED, "a Colour would arrive as str", id="enum"),
    ],
)
@pytest.mark.parametrize("cls", [Order, Bag])
def test_values_that_cannot_travel_in_an_open_field(value: object, rule: str, cls: type) -> None:
    holder = {"inner": [0, {"deep value": value}]}
    sent = Bag(rest=holder) if cls is Bag else order(rest=holder)
    with pytest.raises(InvalidPayload) as refusal:
        encode(sent, type_of(cls))
    assert refusal.value.path.startswith("rest.inner[1]['deep value']")
    assert rule in refusal.value.rule


@pytest.mark.parametrize(
    ("changes", "path", "rule"),
    [
        ({"cents": "1"}, "cents", "Expected `int`, got `str`"),
        ({"cents": True}, "cents", "Expected `int`, got `bool`"),
        ({"cents": None}, "cents", "Expected `int`, got `null`"),
        ({"cents": 1.5}, "cents", "Expected `int`, got `float`"),
        ({"weight": 2**60 + 1}, "weight", "would arrive as float"),
        ({"note": datetime(2025, 1, 1, tzinfo=UTC)}, "note", "a datetime would arrive as str"),
        ({"note": uuid4()}, "note", "a UUID would arrive as str"),
        ({"colour": "green"}, "colour", "Invalid enum value"),
        ({"order_id": "x"}, "order_id", "Invalid UUID"),
        (
            {"lines": [Line("a", Decimal(1)), Line(2, Decimal(1))]},
            "lines[1].sku",
            "Expected `str`, got `int`",
        ),  # type: ignore[arg-type]
        ({"lines": [Line("a", Decimal("NaN"))]}, "lines[0].price", "NaN or infinite"),
        ({"lines": [Line("a", Decimal(1), frozenset(["\0"]))]}, "lines[0].tags[0]", "NUL"),
        ({"pair": (1,)}, "pair", "length 2"),
        ({"names": {1, "a"}}, "names", "cannot be encoded"),
        ({"counts": {"k": "v"}}, "counts[...]", "Expected `int`, got `str`"),
        ({"counts": {1: 2}}, "counts['1']", "keys must be text, this one is of type int"),
        ({"counts": {"a\0": 2}}, "counts['a\\x00']", "NUL"),
        ({"counts": {"\ud800": 2}}, "counts['\\ud800']", "surrogate"),
        ({"rest": {None: 2}}, "rest.None", "keys must be text"),
        ({"at": datetime(2025, 1, 1)}, "at", "a datetime without time zone"),
        ({"at": datetime(2025, 1, 1, tzinfo=timezone(timedelta(seconds=10)))}, "at", "would arrive changed"),
        ({"at": datetime(2025, 1, 1, tzinfo=BrokenZone())}, "payload", "no idea where I am"),
        ({"opens": time(8)}, "opens", "a time without time zone"),
    ],
)
def test_what_does_not_fit_its_field_is_refused(changes: dict[str, Any], path: str, rule: str) -> None:
    with pytest.raises(InvalidPayload) as refusal:
        encode(order(**changes), type_of(Order))
    assert refusal.value.path == path
    assert rule in refusal.value.rule
    assert str(refusal.value).startswith(f"order.placed: field {path}: ")


def test_attributes_that_are_no_fields_are_refused() -> None:
    point, bag = Point(1), Bag(a=1)
    point.colour = "red"  # type: ignore[attr-defined]
    bag.colour = "red"  # type: ignore[attr-defined]
    for sent in (point, bag):
        with pytest.raises(InvalidPayload, match=r"field colour: is not a field of (Point|Bag) and would be lost"):
            encode(sent, type_of(type(sent)))


def test_a_cached_property_is_no_data() -> None:
    @dataclasses.dataclass
    class Square:
        side: int

        @cached_property
        def area(self) -> int:
            return self.side**2

    square = Square(3)
    assert square.area == 9
    assert encode(square, type_of(Square)) == b'{"side":3}'


def test_a_field_without_value_is_refused() -> None:
    point = Point(1)
    del point.x
    with pytest.raises(InvalidPayload, match=r"payload: cannot be encoded: AttributeError"):
        encode(point, type_of(Point))


def test_classes_that_cannot_be_compared_are_compared_by_field() -> None:
    class Loose(msgspec.Struct, eq=False):
        value: Any

    class Hostile(msgspec.Struct):
        value: Any

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("never compare me")

    for cls in (Loose, Hostile):
        assert encode(cls(value=1), type_of(cls)) == b'{"value":1}'
        with pytest.raises(InvalidPayload, match="field value: a set would arrive as list"):
            encode(cls(value={1}), type_of(cls))


def test_an_event_of_another_class_is_refused() -> None:
    with pytest.raises(InvalidPayload, match="is a Point, not a Line"):
        encode(Point(1), type_of(Line))


def test_a_class_whose_own_check_fails_is_refused() -> None:
    @dataclasses.dataclass
    class Positive:
        value: int

        def __post_init__(self) -> None:
            if self.value < 0:
                raise LookupError("negative")

    broken = Positive(1)
    broken.value = -1
    with pytest.raises(InvalidPayload, match="negative"):
        encode(broken, type_of(Positive))
    with pytest.raises(UnreadableMessage, match="negative"):
        decode(b'{"value":-1}', type_of(Positive))


def test_nesting_up_to_the_limit_travels() -> None:
    value: Any = 0
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert decode(encode(Bag(a=value), type_of(Bag)), type_of(Bag)) == {"a": value}
    with pytest.raises(InvalidPayload, match=r"field a\[0\].*…: is nested more than 100 levels"):
        encode(Bag(a=[value]), type_of(Bag))


def test_field_types_that_cannot_be_read_are_a_configuration_error() -> None:
    class Torn(msgspec.Struct):
        value: "Missing"  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigurationError, match=r"fields of .*Torn cannot be read"):
        encode(Torn(value=1), type_of(Torn))


def test_a_path_shows_what_cannot_be_seen() -> None:
    # Since Unicode 15.1 the zero-width joiner may be part of an identifier.
    assert path_text(["é\u200d", "a b", 2, "price"]) == r"['\xe9\u200d']['a b'][2].price"
