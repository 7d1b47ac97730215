"""JSON: what is written reads back as the same event, and unreadable bytes are told by field."""

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.codec import decode, encode
from postroad.errors import InvalidPayload, UnreadableMessage
from postroad.events import event, event_type_of
from tests.support.shapes import (
    Bag,
    Line,
    Order,
    Point,
    amounts,
    floats,
    ints,
    json_values,
    moments,
    texts,
    type_of,
    zones,
)

lines = st.builds(Line, sku=texts, price=amounts, tags=st.frozensets(texts))
orders = st.builds(
    Order,
    order_id=st.uuids(),
    cents=ints,
    weight=floats,
    note=st.none() | texts,
    at=moments,
    opens=st.times(timezones=zones),
    lines=st.lists(lines, max_size=3),
    names=st.sets(texts),
    pair=st.tuples(ints, texts),
    counts=st.dictionaries(texts, ints),
    rest=json_values,
)


@given(orders)
def test_a_struct_arrives_as_it_was_given(order: Order) -> None:
    assert decode(encode(order, type_of(Order)), type_of(Order)) == order


@given(st.builds(Point, x=ints, y=floats))
def test_a_dataclass_arrives_as_it_was_given(point: Point) -> None:
    assert decode(encode(point, type_of(Point)), type_of(Point)) == point


@given(st.dictionaries(texts, json_values))
def test_a_dict_arrives_as_it_was_given(entries: dict[str, Any]) -> None:
    arrived = decode(encode(Bag(entries), type_of(Bag)), type_of(Bag))
    assert arrived == entries
    assert type(arrived) is Bag


def test_amounts_keep_every_digit() -> None:
    line = Line(sku="a", price=Decimal("1.10"))
    assert encode(line, type_of(Line)) == b'{"sku":"a","price":"1.10","tags":[]}'
    arrived = decode(encode(line, type_of(Line)), type_of(Line))
    assert isinstance(arrived, Line)
    assert str(arrived.price) == "1.10"


def test_renamed_fields_are_used_both_ways() -> None:
    class Renamed(msgspec.Struct, rename="camel"):
        order_id: int

    sent = Renamed(order_id=1)
    assert encode(sent, type_of(Renamed)) == b'{"orderId":1}'
    assert decode(b'{"orderId":1}', type_of(Renamed)) == sent
    with pytest.raises(InvalidPayload, match="field orderId: "):
        encode(Renamed(order_id=2**63), type_of(Renamed))


class Pair(NamedTuple):
    left: int
    right: str


def test_a_named_tuple_arrives_as_it_was_given() -> None:
    class Paired(msgspec.Struct):
        pair: Pair

    sent = Paired(Pair(1, "x"))
    assert decode(encode(sent, type_of(Paired)), type_of(Paired)) == sent
    with pytest.raises(InvalidPayload, match=r"field pair\[1\]: contains a NUL"):
        encode(Paired(Pair(1, "\0")), type_of(Paired))


def test_an_unset_field_stays_unset() -> None:
    class Patch(msgspec.Struct):
        name: str | msgspec.UnsetType | None = msgspec.UNSET

    assert encode(Patch(), type_of(Patch)) == b"{}"
    assert encode(Patch(name=None), type_of(Patch)) == b'{"name":null}'


def test_bytes_depend_only_on_the_value() -> None:
    program = (
        "import msgspec\n"
        "from typing import Any\n"
        "from postroad.codec import encode\n"
        "from postroad.events import EventType\n"
        "class E(msgspec.Struct):\n"
        "    names: set[str]\n"
        "    more: dict[str, Any]\n"
        "t = EventType('a.b', 'a.events', 'a', None, 1, None, E)\n"
        "print(encode(E({'x', 'y', 'z', 'w'}, {'b': 1, 'a': 2}), t).decode())\n"
        "print(encode(E({'w', 'z', 'y', 'x'}, {'a': 2, 'b': 1}), t).decode())\n"
    )
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": paths, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert outputs == {'{"names":["w","x","y","z"],"more":{"a":2,"b":1}}\n' * 2}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "field payload: Input data was truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b'{"sku":"a","price":"1"} x', "trailing"),
        (b'{"sku":1,"price":"1"}', "field sku: Expected `str`, got `int`"),
        (b'{"sku":"a"}', "field price: is missing"),
        (b'{"sku":"a","price":"1","tags":["x",2]}', "field tags[1]: Expected `str`, got `int`"),
        (b'{"sku":"a","price":NaN}', "malformed"),
        (b'{"sku":"\xff","price":"1"}', "field payload: cannot be decoded: UnicodeDecodeError"),
        (b'{"sku":"a","price":"1","x":' + b"[" * 100_000, "RecursionError"),
    ],
)
def test_unreadable_bytes_are_told_with_type_version_and_field(data: bytes, told: str) -> None:
    with pytest.raises(UnreadableMessage) as refusal:
        decode(data, type_of(Line))
    assert str(refusal.value).startswith("order.placed v1: ")
    assert told in str(refusal.value)


@given(st.binary() | st.text().map(str.encode))
@pytest.mark.parametrize("cls", [Line, Point, Bag])
def test_no_bytes_raise_anything_else(cls: type, data: bytes) -> None:
    try:
        assert type(decode(data, type_of(cls))) is cls
    except UnreadableMessage as refusal:
        assert str(refusal).startswith("order.placed v1: ")  # noqa: PT017


def test_unknown_and_repeated_fields_of_other_producers_are_tolerated() -> None:
    assert decode(b'{"x":1,"new":[1],"x":2}', type_of(Point)) == Point(2)


def test_declared_events_are_encoded_by_their_declaration() -> None:
    @event("order.coded", topic="shop.order.events", aggregate="order", key="order_id")
    class Coded(msgspec.Struct):
        order_id: str

    sent = Coded("7")
    assert decode(encode(sent, event_type_of(sent)), event_type_of(Coded)) == sent
