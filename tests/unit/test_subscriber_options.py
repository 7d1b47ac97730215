"""What a subscriber can be told, and what it refuses."""

from typing import Any

import pytest

from postroad.errors import ConfigurationError
from postroad.subscriber import SubscriberOptions


@pytest.mark.parametrize("options", [{"concurrency": 1}, {"ack_deadline": 0.5}, {"lock_ttl": 0.5}, {"grace": 0.0}])
def test_little_is_enough(options: dict[str, Any]) -> None:
    assert SubscriberOptions(**options)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"ack_deadline": 0.0}, {"lock_ttl": 0.0}, {"grace": -0.5}])
def test_nothing_is_too_little(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        SubscriberOptions(**options)
