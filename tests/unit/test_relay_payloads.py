"""What goes first when not everything fits."""

from typing import Any, NamedTuple, cast

from postroad.relay.payloads import Payloads
from postroad.stores.base import Store
from postroad.stores.tables import DEFAULT_OUTBOX


class Head(NamedTuple):
    ordering_key: str
    size: int | None
    shard: int = 0


def payloads(most_bytes: int = 10) -> Payloads:
    return Payloads(cast(Store, None), DEFAULT_OUTBOX, most_bytes, most_rows=1)


def chosen(bounded: Payloads, *keys: list[Head]) -> list[list[str]]:
    return [[row.ordering_key for row in of_key] for of_key in bounded.within_bounds(cast(Any, keys))]


def test_two_that_do_not_fit_together_take_turns() -> None:
    bounded = payloads()
    first, second = [Head("a", 6)], [Head("b", 6)]
    assert [chosen(bounded, first, second) for _ in range(4)] == [[["a"]], [["b"]], [["a"]], [["b"]]]


def test_what_fits_exactly_goes_along() -> None:
    assert chosen(payloads(), [Head("a", 4), Head("a", 6)], [Head("b", 0), Head("b", 1)]) == [["a", "a"], ["b"]]


def test_a_row_without_payload_weighs_nothing() -> None:
    assert chosen(payloads(), [Head("a", 10)], [Head("b", None)]) == [["a"], ["b"]]
