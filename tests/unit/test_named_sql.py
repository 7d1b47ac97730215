"""The `-- name:` files of the stores, as texts."""

from collections import Counter
from importlib import resources

import pytest

from postroad.stores.queries import parse


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
def test_no_statement_hides_another_of_its_name(dialect: str) -> None:
    stores = resources.files("postroad.stores")
    files = [file for folder in ("shared", dialect) for file in stores.joinpath(folder).iterdir()]
    texts = [file.read_text(encoding="utf-8") for file in files if file.name.endswith(".sql")]
    names = Counter(name for text in texts for name in parse(text))
    assert [name for name, times in names.items() if times > 1] == []
