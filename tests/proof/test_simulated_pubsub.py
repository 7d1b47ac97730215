"""The simulator with Pub/Sub's adapter, on the model of Google's rules: from the outbox to the handler's effect."""

from collections.abc import Iterator

import pytest

from proof.simulator import workload, world
from proof.simulator.runs import Simulator, simulator
from proof.simulator.world import LEAST_FAULTS
from tests.support.pubsub_post import PubSubPost

SEEDS = 10
# Whoever is killed leaves its connections behind.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def one(quiet: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    monkeypatch.setattr(world, "Post", PubSubPost)
    monkeypatch.setattr(world, "_BROKERS", 1_000_000_000)  # so that none of the seeds is RabbitMQ's
    monkeypatch.setattr(workload, "TRANSACTIONS", 12)  # so that each key has several events on their way
    with simulator() as one:
        yield one


@pytest.mark.spec("P6", "F6")
@pytest.mark.timeout(300)
def test_over_pubsub_too_no_seed_breaks_a_promise(one: Simulator) -> None:
    for seed in range(SEEDS):
        outcome = one.run(seed)
        assert outcome.violations == [], seed
        assert outcome.faults.total() >= LEAST_FAULTS
        assert outcome.faults["stream breaks"]


def test_over_pubsub_too_the_same_seed_is_the_same_story(one: Simulator) -> None:
    first, second = (one.run(1, tracing=True).trace for _ in range(2))
    assert len(first) > 300
    assert first == second
