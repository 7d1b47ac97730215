"""What a relay can be told, and what it refuses."""

from typing import Any

import pytest

from postroad.errors import ConfigurationError
from postroad.relay import RelayOptions


@pytest.mark.parametrize("options", [{"batch": 1}, {"lease": 0.5}, {"poll": 0.5}, {"publish_timeout": 0.5}])
def test_little_is_enough(options: dict[str, Any]) -> None:
    assert RelayOptions(**options)


@pytest.mark.parametrize("options", [{"batch": 0}, {"lease": 0.0}, {"poll": 0.0}, {"publish_timeout": 0.0}])
def test_nothing_is_too_little(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        RelayOptions(**options)
