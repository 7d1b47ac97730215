"""What Terraform creates is what the application asks for, and nobody may do more than he does."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import hcl2
import pytest

from examples.catalog import events
from examples.catalog.reader import Reader
from examples.catalog.writer import Writer
from postroad.brokers.pubsub.address import parse
from postroad.brokers.pubsub.structure import Structure
from tests.support.components import ROOT

FOLDER = ROOT / "deploy" / "terraform"
PUBLISHER, SUBSCRIBER, VIEWER = (f"roles/pubsub.{name}" for name in ("publisher", "subscriber", "viewer"))


def plain(value: Any) -> Any:
    """Without the quotes of texts and the ${} of references, as the parser gives them."""
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items() if key != "__is_block__"}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return re.sub(r'^\$\{(.*)\}$|^"(.*)"$', lambda m: m[1] or m[2] or "", value) if isinstance(value, str) else value


@cache
def resources() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(FOLDER.glob("*.tf")):
        with path.open(encoding="utf-8") as file:
            for block in plain(hcl2.load(file)).get("resource", []):
                for kind, named in block.items():
                    found.setdefault(kind, {}).update(named)
    return found


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.fixture(scope="module")
def topologies() -> list[Any]:
    events.declare()
    where = ("sqlite:///unused.db", "embedded:unused.db")
    return [service(*where).road.topology for service in (Writer, Reader)]


@pytest.mark.spec("P3", "P19")
def test_topics_and_subscriptions_are_those_of_the_application(topologies: list[Any]) -> None:
    ours = {one.name: one for topology in topologies for one in topology.subscriptions}
    topics = {one.topic for one in ours.values()}
    assert topics == {events.TOPIC}
    assert all(events.TOPIC in topology.topics for topology in topologies)
    assert {one["name"] for one in resources()["google_pubsub_topic"].values()} == {
        *topics,
        *(f"{topic}.dlq" for topic in topics),
    }
    assert {one["name"] for one in resources()["google_pubsub_subscription"].values()} == {
        *ours,
        *(f"{topic}.dlq-monitor" for topic in topics),
    }


@pytest.mark.spec("P3")
def test_the_subscription_is_as_postroad_would_make_it(topologies: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the two would take turns changing it."""
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    (ours,) = topologies[1].subscriptions
    wanted = Structure(None, parse("pubsub://my-project")).described(ours)  # type: ignore[arg-type]
    made = resources()["google_pubsub_subscription"]["reader"]
    (retry,), (dead,) = made["retry_policy"], made["dead_letter_policy"]
    assert made["ack_deadline_seconds"] == wanted.ack_deadline_seconds == 60
    assert seconds(made["message_retention_duration"]) == wanted.message_retention_duration.seconds == 7 * 86_400
    assert seconds(retry["minimum_backoff"]) == wanted.retry_policy.minimum_backoff.seconds == 10
    assert seconds(retry["maximum_backoff"]) == wanted.retry_policy.maximum_backoff.seconds == 600
    assert dead["max_delivery_attempts"] == wanted.dead_letter_policy.max_delivery_attempts == 5
    assert made["enable_message_ordering"] is wanted.enable_message_ordering is True
    assert made["enable_exactly_once_delivery"] is wanted.enable_exactly_once_delivery is True
    assert made["expiration_policy"] == [{"ttl": ""}]
    assert made["topic"] == "google_pubsub_topic.events.id"
    assert dead["dead_letter_topic"] == "google_pubsub_topic.dead_letters.id"
    topics = resources()["google_pubsub_topic"]
    assert wanted.topic.endswith("/" + topics["events"]["name"])
    assert wanted.dead_letter_policy.dead_letter_topic.endswith("/" + topics["dead_letters"]["name"])


@pytest.mark.spec("F11")
def test_each_may_do_what_it_does_and_nothing_more() -> None:
    on_topics = resources()["google_pubsub_topic_iam_member"].values()
    on_subscriptions = resources()["google_pubsub_subscription_iam_member"].values()
    writer, reader = (f"google_service_account.{name}.member" for name in ("writer", "reader"))
    agent, event_topic, dead = (
        "local.pubsub_agent",
        "google_pubsub_topic.events.name",
        "google_pubsub_topic.dead_letters.name",
    )
    assert {(one["member"], one["topic"]) for one in on_topics if one["role"] == PUBLISHER} == {
        (writer, event_topic),
        (reader, dead),
        (agent, dead),
    }
    subscription, dead_letters = (f"google_pubsub_subscription.{name}.name" for name in ("reader", "dead_letters"))
    assert {(one["member"], one["subscription"]) for one in on_subscriptions if one["role"] == SUBSCRIBER} == {
        (reader, subscription),
        (reader, dead_letters),
        (agent, subscription),
    }
    assert {one["role"] for one in (*on_topics, *on_subscriptions)} == {PUBLISHER, SUBSCRIBER, VIEWER}


@pytest.mark.spec("F11")
def test_nothing_is_granted_on_the_whole_project_but_the_way_to_the_database() -> None:
    (only,) = resources()["google_project_iam_member"].values()
    assert only["role"] == "roles/cloudsql.client"
    grants = {kind for kind in resources() if "_iam_" in kind}
    assert not [kind for kind in grants if kind.endswith(("_iam_binding", "_iam_policy"))]


@pytest.mark.spec("F11")
def test_each_service_reads_its_own_secret() -> None:
    for side in ("writer", "reader"):
        grant = resources()["google_secret_manager_secret_iam_member"][f"{side}_reads_its_own"]
        assert (grant["role"], grant["member"]) == (
            "roles/secretmanager.secretAccessor",
            f"google_service_account.{side}.member",
        )
        assert f'"catalog-{side}"' in grant["secret_id"]
        assert resources()["google_service_account"][side]["account_id"] == f"catalog-{side}"


def terraform(*arguments: str) -> "subprocess.CompletedProcess[str]":
    found = shutil.which("terraform")
    if found is None:
        pytest.skip("there is no terraform here")
    return subprocess.run([found, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_the_files_are_formatted() -> None:
    looked = terraform("fmt", "-check", "-no-color", str(FOLDER))
    assert looked.returncode == 0, looked.stdout


def test_the_files_are_valid(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "terraform")
    at = f"-chdir={tmp_path / 'terraform'}"
    if terraform(at, "init", "-backend=false", "-input=false").returncode:
        pytest.skip("terraform cannot get Google's provider here")
    checked = terraform(at, "validate", "-no-color")
    assert checked.returncode == 0, checked.stderr
