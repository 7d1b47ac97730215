"""What a person types for `publish`: read as it is meant, or refused with the place."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pydantic
import pytest

from postroad.cli.payload import read_event
from postroad.errors import ConfigurationError, WriteRefused
from postroad.events import event, event_type_of


class Item(msgspec.Struct, frozen=True):
    name: str
    price: int = 1


@event("cart.filled", topic="shop.cart.events", aggregate="cart", key="cart_id")
class CartFilled(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    cart_id: str
    items: list[Item] = []
    note: str = ""


@event("cart.noted", topic="shop.cart.events", aggregate="cart", key="cart_id")
class CartNoted(pydantic.BaseModel):
    cart_id: str
    note: str = ""


@event("cart.left", topic="shop.cart.events", aggregate="cart")
class CartLeft(dict[str, Any]):
    pass


def read(text: str, cls: type = CartFilled) -> object:
    return read_event(text, event_type_of(cls))


def test_what_is_right_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"cartId": "7", "items": [{"name": "tea", "price": 1}], "note": ""}'
    filled = CartFilled(cart_id="7", items=[Item("tea")])
    assert read(text) == filled
    (tmp_path / "cart.json").write_text(text, encoding="utf-8")
    assert read(f"@{tmp_path / 'cart.json'}") == filled
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert read("-") == filled
    assert read('{"cart_id": "7", "note": ""}', CartNoted) == CartNoted(cart_id="7")
    assert read('{"anything": {"goes": 1}}', CartLeft) == CartLeft(anything={"goes": 1})


@pytest.mark.parametrize(
    ("text", "cls", "told"),
    [
        ('{"cartId": "7", "itmes": []}', CartFilled, "cart.filled has no field 'itmes'. Did you mean 'items'?"),
        ('{"cartId": "7", "x": 1}', CartFilled, "no field 'x'. It has: cartId, items, note."),
        ('{"cartId": "7", "cart_id": "7"}', CartFilled, "no field 'cart_id'. Did you mean 'cartId'?"),
        ('{"cartId": "7", "items": [{"name": "a", "prise": 2}]}', CartFilled, "no field 'items[0].prise'"),
        ('{"cart_id": "7", "noted": "x"}', CartNoted, "cart.noted has no field 'noted'. Did you mean 'note'?"),
    ],
)  # fmt: skip
def test_a_field_that_the_type_has_not_is_named(text: str, cls: type, told: str) -> None:
    with pytest.raises(WriteRefused) as refused:
        read(text, cls)
    assert told in str(refused.value)
    assert str(refused.value).endswith("Nothing was stored.")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{cartId: 7}", "at line 1, column 2, near '{cartId: 7}'"),
        ('{"cartId": "7"', "Expecting ',' delimiter, at line 1, column 15"),
        ('{\n  "cartId":\n}', "at line 3, column 1"),
        ("", "Expecting value, at line 1, column 1"),
        ('{"cartId": NaN}', "NaN is no number in JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"cartId": 7}', "field cartId: Expected `str`, got `int`"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(WriteRefused) as refused:
        read(text)
    assert told in str(refused.value)
    assert "Nothing was stored." in str(refused.value)


def test_a_file_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "cart.json").write_bytes(b'{"cartId": "\xff"}')
    with pytest.raises(WriteRefused, match="no UTF-8 text from byte 13 on"):
        read(f"@{tmp_path / 'cart.json'}")
    with pytest.raises(ConfigurationError, match=r"nowhere\.json cannot be read: No such file"):
        read(f"@{tmp_path / 'nowhere.json'}")
