"""Settings: the agreed file and variables, each key at its work, and what is refused by its path."""

from pathlib import Path
from typing import Any

import pytest

from postroad import Backoff, Canary, Postroad, RelayOptions
from postroad.brokers.base import Flow
from postroad.brokers.rabbitmq.address import parse
from postroad.errors import InvalidSetting
from postroad.retry import EXPONENTIAL, TABLE
from postroad.settings import arguments, load
from postroad.settings.read import duration

AGREED = """
pubsub:
  project_id: "smiling-landing-472320-q0"
  emulator_host: ""  # the real one

  topics:
    video_events: "catalog.video.events"

  publisher:
    scan_interval: "5s"
    batch_size: 100
    max_retry_attempts: 5
    base_backoff: "10s"
    max_backoff: "10m"
    num_goroutines: 4
    publish_timeout: "30s"
    enable_ordering: true

  subscriptions:
    video_events_reader:
      subscription_id: "catalog.video.events.catalog-reader"
      max_outstanding_messages: 100
      max_outstanding_bytes: 10485760
      num_goroutines: 4
      ack_deadline: "60s"
      enable_exactly_once: true
      sync_mode: false
"""


@pytest.fixture
def agreed(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(AGREED, encoding="utf-8")
    return path


def made(settings: Any, environment: dict[str, str] | None = None) -> dict[str, Any]:
    return arguments(load(settings, environment or {}))


def publisher(**keys: Any) -> RelayOptions:
    options = made({"pubsub": {"project_id": "project", "publisher": keys}}).get("relay", RelayOptions())
    assert isinstance(options, RelayOptions)
    return options


def reader(**keys: Any) -> Any:
    subscription = {"subscription_id": "catalog.video.events.catalog-reader", **keys}
    found = made({"pubsub": {"project_id": "project", "subscriptions": {"reader": subscription}}})
    return found["group_options"]["catalog-reader"]


# -- the agreed file and variables -------------------------------------------------------------------------


@pytest.mark.spec("P15")
def test_the_agreed_file_is_taken_as_it_is(agreed: Path) -> None:
    found = made(agreed)
    assert found["broker_url"] == "pubsub://smiling-landing-472320-q0"
    assert found["relay"] == RelayOptions(poll=5.0, batch=100, publish_timeout=30.0, backoff=EXPONENTIAL, relays=4)
    group = found["group_options"]["catalog-reader"]
    assert (group.flow, group.concurrency, group.ack_deadline) == (Flow(100, 10_485_760), 4, 60.0)
    assert load(agreed, {}).topic("video_events") == "catalog.video.events"


@pytest.mark.spec("P15")
def test_the_agreed_variables_are_enough() -> None:
    environment = {
        "GCP_PROJECT_ID": "smiling-landing-472320-q0",
        "PUBSUB_EMULATOR_HOST": "localhost:8085",
        "PUBSUB_TOPIC_VIDEO_EVENTS": "catalog.video.events",
        "PUBSUB_SUB_VIDEO_READER": "catalog.video.events.catalog-reader",
    }
    found = made(None, environment)
    assert found["broker_url"] == "pubsub://smiling-landing-472320-q0?emulator=localhost:8085"
    assert list(found["group_options"]) == ["catalog-reader"]
    assert load(None, environment).topic("video_events") == "catalog.video.events"


@pytest.mark.spec("P15")
def test_the_environment_counts_for_more_than_the_file(agreed: Path) -> None:
    environment = {
        "GCP_PROJECT_ID": "another-one",
        "PUBSUB_EMULATOR_HOST": "localhost:8085",
        "DATABASE_URL": "sqlite://",
    }
    found = made(agreed, environment)
    assert found["broker_url"] == "pubsub://another-one?emulator=localhost:8085"
    assert found["database_url"] == "sqlite://"
    assert made(agreed, {"BROKER_URL": "embedded:x.db"})["broker_url"] == "embedded:x.db"


def test_an_empty_variable_says_nothing(agreed: Path) -> None:
    assert made(agreed, {"GCP_PROJECT_ID": "", "PUBSUB_TOPIC_VIDEO_EVENTS": ""}) == made(agreed)


def test_a_subscription_of_the_environment_may_have_another_name_in_the_file(agreed: Path) -> None:
    same = {"PUBSUB_SUB_VIDEO_READER": "catalog.video.events.catalog-reader"}
    assert made(agreed, same) == made(agreed)
    own = {"PUBSUB_SUB_VIDEO_EVENTS_READER": "catalog.video.events.catalog-indexer"}
    (options,) = made(agreed, own)["group_options"].items()
    assert (options[0], options[1].concurrency) == ("catalog-indexer", 4)


def test_pubsubs_variables_do_not_turn_another_broker_off() -> None:
    everywhere = {"GCP_PROJECT_ID": "some-project", "PUBSUB_SUB_A": "catalog.video.events.catalog-reader"}
    for settings in ({"broker_url": "embedded:x.db"}, {"rabbitmq": {"publisher": {"batch_size": 5}}}):
        assert made(settings, everywhere) == made(settings)
    assert made({"source": "shop"}, {"PUBSUB_EMULATOR_HOST": "localhost:8085"}) == {"source": "shop"}


@pytest.mark.spec("P15")
def test_an_argument_counts_for_more_than_all(agreed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_URL", "embedded:environment.db")
    monkeypatch.setenv("GCP_PROJECT_ID", "another-one")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    road = Postroad.from_settings(agreed, source="catalog", broker_url="embedded:argument.db", database_url="sqlite://")
    assert (road.broker_url, road.database_url) == ("embedded:argument.db", "sqlite://")
    assert road.relay_options.batch == 100
    road = Postroad.from_settings(agreed, source="catalog", relay=RelayOptions(batch=7), database_url=None)
    assert (road.broker_url, road.relay_options.batch) == ("embedded:environment.db", 7)


def test_settings_leave_the_callers_mapping_as_it_is() -> None:
    given = {"pubsub": {"project_id": "project", "topics": {}}}
    made(given, {"PUBSUB_TOPIC_A": "a.b.events", "GCP_PROJECT_ID": "other"})
    assert given == {"pubsub": {"project_id": "project", "topics": {}}}


def test_a_service_must_say_which_one_it_is() -> None:
    with pytest.raises(InvalidSetting, match="source: is missing"):
        Postroad.from_settings({})
    assert Postroad.from_settings({"source": "catalog"}).source == "catalog"


# -- each key at its work ----------------------------------------------------------------------------------


@pytest.mark.spec("P15")
def test_the_publishers_keys_are_the_relays_options() -> None:
    assert publisher() == RelayOptions()
    assert publisher(scan_interval="250ms").poll == 0.25
    assert publisher(batch_size=7).batch == 7
    assert publisher(publish_timeout="1m").publish_timeout == 60
    assert publisher(num_goroutines=3).relays == 3
    assert publisher(max_retry_attempts=9).backoff == Backoff(attempts=9, base=20, ceiling=600)


@pytest.mark.spec("P15")
def test_the_waits_are_the_conventions() -> None:
    backoff = publisher(base_backoff="10s", max_backoff="1m", max_retry_attempts=6).backoff
    assert [backoff.after(n) for n in range(1, 7)] == [20, 40, 60, 60, 60, None]
    table = publisher(backoff=["5s", "30s", "2m"]).backoff
    assert table == TABLE
    assert publisher(backoff=["5s"], max_retry_attempts=3).backoff == Backoff(attempts=3, table=(5.0,))


@pytest.mark.spec("P15")
def test_a_subscriptions_keys_are_its_groups_options() -> None:
    assert reader(max_outstanding_messages=3).flow == Flow(messages=3)
    assert reader(max_outstanding_bytes=3).flow == Flow(bytes=3)
    assert reader(num_goroutines=3).concurrency == 3
    assert reader(ack_deadline="1m30s").ack_deadline == 90


@pytest.mark.spec("P15")
def test_rabbitmqs_keys_are_its_address() -> None:
    given = {
        "host": "rabbit.example", "port": 5673, "vhost": "/shop", "username": "us/er", "password": "p@ss:w/rd",
        "prefetch": 5, "publisher_confirm_type": "correlated", "publisher_returns": True,
        "acknowledge_mode": "manual", "default_requeue_rejected": False,
        "publisher": {"scan_interval": "5s", "batch_size": 200, "backoff": ["5s", "30s", "2m"]},
    }  # fmt: skip
    found = made({"rabbitmq": given})
    address = parse(found["broker_url"])
    assert (address.host, address.port, address.vhost) == ("rabbit.example", 5673, "/shop")
    assert (address.user, address.password, address.prefetch) == ("us/er", "p@ss:w/rd", 5)
    assert found["relay"] == RelayOptions(poll=5.0, batch=200, backoff=TABLE)
    usual = parse(made({"rabbitmq": {}})["broker_url"])
    assert (usual.host, usual.port, usual.vhost, usual.user, usual.prefetch) == ("localhost", 5672, "/", "guest", 20)
    assert parse(made({"rabbitmq": {"host": "::1"}})["broker_url"]).host == "::1"


def test_retention_and_addresses_are_taken() -> None:
    given = {
        "source": "shop",
        "database_url": "sqlite://",
        "outbox_retention": "1d",
        "inbox_retention": "9d",
        "canary": "20s",
    }
    expected = {**given, "outbox_retention": 86_400.0, "inbox_retention": 777_600.0, "canary": Canary(every=20)}
    assert made(given) == expected


# -- durations ---------------------------------------------------------------------------------------------


@pytest.mark.spec("P15")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("10m", 600), ("1h30m", 5_400), ("250ms", 0.25), ("1.5h", 5_400), ("7d", 604_800), ("1m0.5s", 60.5)],
)
def test_a_duration_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert duration(text, "x") == seconds


@pytest.mark.parametrize(
    "value", ["5x", "5", "", "s", "5 s", "-5s", "5S", "1h30", "1h-30m", "٥s", "1e3s", 5, 5.0, True, [], {}, "9" * 500]
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(InvalidSetting, match=r"^pubsub\.x: .* is not a duration"):
        duration(value, "pubsub.x")


@pytest.mark.parametrize("value", ["0s", "0h0m", "367d", "999999999999d"])
def test_a_duration_that_cannot_be_meant_is_refused(value: str) -> None:
    with pytest.raises(InvalidSetting, match="is out of range"):
        duration(value, "x")
