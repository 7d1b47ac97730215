"""Every adapter in the folder passes the contract; a new file there is in the test by being there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroad.brokers import available_brokers, connect_broker
from postroad.brokers.base import Broker, Schema, Topology
from postroad.clock import SystemClock
from postroad.errors import UnsupportedByBroker
from postroad.testing import FaultyBroker
from postroad.testing.broker_contract import BrokerContract
from tests.support.components import address

VARIANTS = {
    "embedded": ["embedded in memory", "embedded in a file", "embedded behind a faultless FaultyBroker"],
    "rabbitmq": ["rabbitmq", "rabbitmq with quorum queues"],
}


def variants() -> list[str]:
    return [variant for name in available_brokers() for variant in VARIANTS.get(name, [name])]


@pytest.fixture(params=variants())
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def broker(variant: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    broker = _connect(variant, tmp_path, request)
    yield broker
    await broker.aclose()


def _connect(variant: str, folder: Path, request: pytest.FixtureRequest) -> Broker:
    clock = SystemClock()
    match variant:
        case "embedded in memory":
            return connect_broker("embedded:", clock=clock)
        case "embedded in a file":
            return connect_broker(f"embedded://{folder / 'broker.db'}", clock=clock)
        case "embedded behind a faultless FaultyBroker":
            return FaultyBroker(connect_broker("embedded:", clock=clock))
        case "rabbitmq":
            return connect_broker(request.getfixturevalue("rabbitmq_url"), clock=clock)
        case "rabbitmq with quorum queues":
            return connect_broker(request.getfixturevalue("rabbitmq_url") + "&queue_type=quorum", clock=clock)
        case "kafka":
            return connect_broker(request.getfixturevalue("kafka_url"), clock=clock)
        case _:
            return connect_broker(address(variant), clock=clock)


class TestBrokers(BrokerContract):
    pass


@pytest.mark.parametrize("variant", ["embedded in memory", "rabbitmq"])
async def test_a_schema_that_the_broker_would_not_enforce_is_refused(broker: Broker) -> None:
    wanted = Topology(("a.b.events",), (), (Schema("a.b.events", "a", "avro", "{}"),))
    for ask in (broker.plan, broker.apply):
        with pytest.raises(UnsupportedByBroker, match="has no schemas"):
            await ask(wanted)


def test_the_embedded_broker_is_among_them() -> None:
    assert "embedded" in available_brokers()
    assert "base" not in available_brokers()
