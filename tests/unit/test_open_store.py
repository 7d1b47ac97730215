"""A database URL that cannot be meant is refused, and no part of a password shows."""

import pytest

from postroad.errors import ConfigurationError
from postroad.redact import redact
from postroad.stores import open_store


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://shop:s3cret@db:port/shop",
        "postgresql://shop:s3cret@[::1/shop",
        "postgresql://shop:s3cret@db:99999/shop",
        "postgresql://shop:s3@cret@db/shop",
        "mysql://sh/op:s3cret@db/shop",
        "sqlite://shop:s3cret@db/shop.db",
        "postgresql://shop:s3cret\udcff@db/shop",
        "shop:s3cret@db",
        "oracle://shop:s3cret@db/shop",
    ],
)
def test_what_cannot_be_meant_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        open_store(url)
    assert "cret" not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize("port", [1, 65_535])
def test_any_port_there_is_may_be_meant(port: int) -> None:
    assert open_store(f"postgresql://db:{port}/shop").address == f"postgresql://db:{port}/shop"


def test_what_was_opened_once_shows_its_password_nowhere() -> None:
    open_store("postgresql://shop:oh-so-secret@db/shop")
    assert "secret" not in redact("somebody said oh-so-secret")


def test_a_quoted_password_is_not_in_the_address() -> None:
    store = open_store("postgresql://sh%2Fop:s3%40cret@db:5432/shop")
    assert store.address == "postgresql://db:5432/shop"
