"""Pydantic models as events: the same promises as for structs."""

import math
import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.codec import decode, encode
from postroad.errors import InvalidPayload, UnreadableMessage
from tests.support.shapes import amounts, ints, json_values, moments, type_of


class Model(pydantic.BaseModel):
    order_id: UUID
    cents: int
    price: Decimal
    at: datetime
    lines: list[int]
    url: pydantic.HttpUrl | None = None
    rest: Any = None


def sample(**changes: Any) -> Model:
    """Made without validation, as a model can be that was changed afterwards."""
    fields: dict[str, Any] = {
        "order_id": UUID(int=1),
        "cents": 1,
        "price": Decimal("1.10"),
        "at": datetime(2025, 1, 1, tzinfo=UTC),
        "lines": [],
    }
    return Model.model_construct(**{**fields, **changes})


@given(
    st.builds(
        Model,
        order_id=st.uuids(),
        cents=ints,
        price=amounts,
        at=moments,
        lines=st.lists(ints),
        url=st.none() | st.just(pydantic.HttpUrl("https://example.org/a?b=c")),
        rest=json_values,
    )
)
def test_a_model_arrives_as_it_was_given(model: Model) -> None:
    assert decode(encode(model, type_of(Model)), type_of(Model)) == model


@given(st.text(st.characters()) | st.floats() | st.integers() | st.binary() | st.datetimes() | st.builds(object))
def test_whatever_is_given_is_faithful_or_refused_by_name(value: object) -> None:
    model = sample(rest=[value])
    try:
        data = encode(model, type_of(Model))
    except InvalidPayload as refusal:
        assert refusal.path.startswith("rest")  # noqa: PT017
    else:
        assert decode(data, type_of(Model)) == model


class Text(str):
    pass


def test_a_subclass_of_text_is_checked_as_text() -> None:
    assert decode(encode(sample(rest=Text("x")), type_of(Model)), type_of(Model)) == sample(rest="x")
    with pytest.raises(InvalidPayload, match="field rest: contains a NUL"):
        encode(sample(rest=Text("\0")), type_of(Model))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"cents": "1"}, "cents"),
        ({"at": "today"}, "at"),
        ({"at": datetime(2025, 1, 1)}, "at"),
        ({"lines": [1, "2"]}, "lines"),
        ({"lines": [1, 2**63]}, "lines[1]"),
        ({"rest": {"a": pydantic.SecretStr("s")}}, "rest.a"),
        ({"rest": [math.nan]}, "rest[0]"),
        ({"rest": object()}, "rest"),
    ],
)
def test_a_model_changed_behind_its_validation_is_refused(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidPayload) as refusal:
        encode(sample(**changes), type_of(Model))
    assert refusal.value.path == path


def test_a_models_extra_fields_travel_and_are_checked() -> None:
    class Open(pydantic.BaseModel, extra="allow"):
        id: int

    sent = Open(id=1, more=[1])  # type: ignore[call-arg]
    assert decode(encode(sent, type_of(Open)), type_of(Open)) == sent
    for value in (math.nan, uuid4(), "\0"):
        with pytest.raises(InvalidPayload, match=r"field more\[0\]"):
            encode(Open(id=1, more=[value]), type_of(Open))  # type: ignore[call-arg]


def test_aliases_are_used_both_ways() -> None:
    class Aliased(pydantic.BaseModel):
        order_id: int = pydantic.Field(alias="orderId")

    sent = Aliased(orderId=1)
    assert encode(sent, type_of(Aliased)) == b'{"orderId":1}'
    assert decode(b'{"orderId":1}', type_of(Aliased)) == sent
    sent.order_id = 2**63
    with pytest.raises(InvalidPayload, match="field orderId: "):
        encode(sent, type_of(Aliased))


@pytest.mark.parametrize(
    ("data", "path"),
    [(b'{"order_id":1}', "order_id"), (b"[", "payload"), (b"{}", "order_id"), (b"\xff", "payload")],
)
def test_models_are_read_strictly(data: bytes, path: str) -> None:
    with pytest.raises(UnreadableMessage, match=f"field {path}: "):
        decode(data, type_of(Model))


def test_a_number_in_text_is_no_number() -> None:
    whole = encode(sample(), type_of(Model))
    with pytest.raises(UnreadableMessage, match="field cents: "):
        decode(whole.replace(b'"cents":1', b'"cents":"1"'), type_of(Model))


def test_pydantic_is_not_imported_without_need() -> None:
    program = "import sys, postroad.codec, postroad.events; print('pydantic' in sys.modules)"
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path)
    ran = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "False\n"
