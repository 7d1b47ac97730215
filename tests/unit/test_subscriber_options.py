"""What a subscriber can be told, and what it refuses."""

from typing import Any

import pytest

from postroad.brokers.embedded import EmbeddedBroker
from postroad.errors import ConfigurationError
from postroad.subscriber import SubscriberOptions


@pytest.mark.parametrize("options", [{"concurrency": 1}, {"ack_deadline": 0.5}, {"lock_ttl": 0.5}, {"grace": 0.0}])
def test_little_is_enough(options: dict[str, Any]) -> None:
    assert SubscriberOptions(**options)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"ack_deadline": 0.0}, {"lock_ttl": 0.0}, {"grace": -0.5}])
def test_nothing_is_too_little(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        SubscriberOptions(**options)


def test_a_lease_is_over_when_the_embedded_broker_hands_out_again_what_a_dead_worker_had() -> None:
    assert SubscriberOptions().lock_ttl <= EmbeddedBroker.features.ack_deadline
