"""Declaring events: which classes, which keys, one declaration per version."""

import dataclasses
import enum
import uuid
from typing import Any

import msgspec
import pydantic
import pytest

from postroad.errors import ConfigurationError, InvalidName, InvalidPayload
from postroad.events import EventType, aggregate_id_of, declared, event, event_type_of, known_topics

WHERE: dict[str, Any] = {"topic": "shop.order.events", "aggregate": "order"}


def key_of(instance: object) -> str | None:
    return aggregate_id_of(instance, event_type_of(instance))


def test_a_struct_is_declared_and_stays_what_it_was() -> None:
    @event("order.placed", topic="shop.order.events", aggregate="order", key="order_id", schema_version=2)
    class OrderPlaced(msgspec.Struct, frozen=True):
        order_id: str

    assert OrderPlaced(order_id="7").order_id == "7"
    expected = EventType("order.placed", "shop.order.events", "order", "order_id", 2, None, OrderPlaced)
    assert event_type_of(OrderPlaced) == event_type_of(OrderPlaced(order_id="7")) == expected


def test_dataclasses_models_and_dicts_are_declared_too() -> None:
    @event("order.paid", **WHERE, key="id")
    @dataclasses.dataclass(frozen=True, slots=True)
    class Paid:
        id: int

    @event("order.shipped", **WHERE, key="id", outbox="shop.slow_outbox")
    class Shipped(pydantic.BaseModel):
        id: uuid.UUID

    @event("ORDER_TIMEOUT", **WHERE, key="id")
    class TimedOut(dict[str, Any]):
        pass

    @event("Command.Shop.Order.Ship", topic="shop.order.commands", aggregate="order")
    class Ship(msgspec.Struct):
        pass

    some = uuid.uuid4()
    assert key_of(Paid(id=7)) == "7"
    assert key_of(Shipped(id=some)) == str(some)
    assert key_of(TimedOut(id="x")) == "x"
    assert key_of(Ship()) is None
    assert event_type_of(Shipped).outbox == "shop.slow_outbox"


def test_other_classes_are_refused_with_the_ways_out() -> None:
    class Plain:
        order_id: str

    @dataclasses.dataclass
    class Parent:
        order_id: str

    class Child(Parent):
        more: str

    for cls in (Plain, Child, int):
        with pytest.raises(ConfigurationError, match=r"msgspec\.Struct, a dataclass \(with @event above"):
            event("order.placed", **WHERE)(cls)
    with pytest.raises(ConfigurationError, match="belongs above a class"):
        event("order.placed", **WHERE)(lambda: None)  # type: ignore[type-var]


def test_an_undeclared_class_is_told_how_to_become_an_event() -> None:
    class Silent(msgspec.Struct):
        pass

    for thing in (Silent, Silent(), 7):
        with pytest.raises(ConfigurationError, match=r"is not declared as an event\. Put @event"):
            event_type_of(thing)
    with pytest.raises(ConfigurationError, match=r"the text 'order\.placed' where an event or its class"):
        event_type_of("order.placed")


def test_a_subclass_needs_a_declaration_of_its_own() -> None:
    @event("order.placed", **WHERE)
    class Parent(msgspec.Struct):
        pass

    class Child(Parent):
        pass

    with pytest.raises(ConfigurationError, match="Child is not declared"):
        event_type_of(Child())


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"type": "order"}, InvalidName),
        ({"type": "Shop.Order.Place"}, InvalidName),
        ({"type": "Command.Shop.Order.Placed"}, InvalidName),
        ({"topic": "prod.shop.events"}, InvalidName),
        ({"aggregate": "order/line"}, InvalidName),
        ({"outbox": "out box"}, InvalidName),
        ({"type": None}, InvalidName),
        ({"type": 5}, InvalidName),
        ({"topic": None}, InvalidName),
        ({"aggregate": None}, InvalidName),
        ({"outbox": 5}, InvalidName),
        ({"schema_version": 0}, ConfigurationError),
        ({"schema_version": True}, ConfigurationError),
        ({"schema_version": "v1"}, ConfigurationError),
    ],
)
def test_a_wrong_declaration_fails_where_it_stands(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        event(**{"type": "order.placed", **WHERE, **changes})


def test_a_key_that_is_no_field_is_refused_with_the_nearest_one() -> None:
    class Placed(msgspec.Struct):
        order_id: str

    with pytest.raises(ConfigurationError, match=r"no field 'orderid' to be the key. Did you mean 'order_id'"):
        event("order.placed", **WHERE, key="orderid")(Placed)
    with pytest.raises(ConfigurationError, match="Its fields are: order_id"):
        event("order.placed", **WHERE, key="zzz")(Placed)
    with pytest.raises(InvalidName, match=r"must be text, is int\. Name a field of .*Placed"):
        event("order.placed", **WHERE, key=5)(Placed)  # type: ignore[arg-type]


class Colour(enum.StrEnum):
    RED = "red"


class Shade(str, enum.Enum):  # noqa: UP042
    DARK = "dark"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("o-7", "o-7"),
        (7, "7"),
        (-7, "-7"),
        (Colour.RED, "red"),
        (Shade.DARK, "dark"),
        ("ä 事", "ä 事"),
        ("x" * 255,) * 2,
    ],
)
def test_keys_become_text(value: object, told: str) -> None:
    @event("order.placed", **WHERE, key="order_id")
    class Placed(dict[str, Any]):
        pass

    assert key_of(Placed(order_id=value)) == told


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (None, "is NoneType"),
        ("", "is empty"),
        (True, "is bool"),
        (1.5, "is float"),
        (b"x", "is bytes"),
        (["x"], "is list"),
        ("x" * 256, "longer than 255"),
        (2**63, "does not fit in 64 bits"),
        pytest.param(10**5_000, "does not fit in 64 bits", id="huge"),
        ("a\0", "control character"),
        ("a\nb", "control character"),
        ("a\x7f", "control character"),
        ("\ud800", "control character"),
    ],
)
def test_what_cannot_be_a_key_is_refused_by_field(value: object, rule: str) -> None:
    @event("order.placed", **WHERE, key="order_id")
    class Placed(dict[str, Any]):
        pass

    with pytest.raises(InvalidPayload) as refusal:
        key_of(Placed(order_id=value))
    assert refusal.value.path == "order_id"
    assert refusal.value.event_type == "order.placed"
    assert rule in refusal.value.rule


def test_a_dict_without_its_key_is_refused() -> None:
    @event("order.placed", **WHERE, key="order_id")
    class Placed(dict[str, Any]):
        pass

    with pytest.raises(InvalidPayload, match="field order_id"):
        key_of(Placed())


@pytest.mark.spec("P8")
def test_versions_of_one_type_stand_side_by_side() -> None:
    @event("video.created", topic="catalog.video.events", aggregate="video", schema_version=2)
    class CreatedV2(msgspec.Struct):
        pass

    @event("video.created", topic="catalog.video.events", aggregate="video", schema_version=1)
    class CreatedV1(msgspec.Struct):
        pass

    assert {version: known.cls for version, known in declared("video.created").items()} == {
        1: CreatedV1,
        2: CreatedV2,
    }
    assert list(declared("video.created")) == [1, 2]
    assert declared("video.unheard_of") == {}


def test_two_services_in_one_process_may_read_an_event_as_classes_of_their_own() -> None:
    @event("order.local", **WHERE)
    class First(msgspec.Struct):
        pass

    @event("order.local", topic="other.order.events", aggregate="order")
    class Second(msgspec.Struct):
        pass

    assert declared("order.local")[1].cls is Second
    assert event_type_of(First).cls is First
    assert {"shop.order.events", "other.order.events"} <= known_topics()


@pytest.mark.parametrize("order_id", [" a", "a ", "\u00a0a"])
def test_a_key_may_not_begin_or_end_with_a_space(order_id: str) -> None:
    @event("order.spaced", topic="shop.order.events", aggregate="order", key="order_id")
    class Spaced(msgspec.Struct):
        order_id: str

    with pytest.raises(InvalidPayload, match="order_id: begins or ends with a space"):
        key_of(Spaced(order_id=order_id))
