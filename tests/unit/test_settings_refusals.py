"""Settings that are refused: by the key's path, with the cure, and without a secret."""

import sys
from pathlib import Path
from typing import Any

import pytest

from postroad import Postroad
from postroad.errors import ConfigurationError, InvalidSetting, MissingExtra
from postroad.settings import arguments, load
from postroad.settings.model import Settings
from postroad.settings.read import read
from tests.support.consuming import OrderPlaced

VIDIO = {"reader": {"subscription_id": "catalog.vidio.events.c"}}
TWO = {"a": {"subscription_id": "a.b.events.c"}, "b": {"subscription_id": "a.c.events.c", "num_goroutines": 9}}


def made(settings: Any, environment: dict[str, str] | None = None) -> dict[str, Any]:
    return arguments(load(settings, environment or {}))


def refusal(settings: Any, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(InvalidSetting) as refused:
        made(settings, environment)
    return str(refused.value)


def pubsub(**keys: Any) -> dict[str, Any]:
    return {"pubsub": {"project_id": "project", **keys}}


def subscription(**keys: Any) -> dict[str, Any]:
    return pubsub(subscriptions={"reader": {"subscription_id": "a.b.events.c", **keys}})


@pytest.mark.spec("P15")
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (pubsub(publisher={"scan_interval": "5x"}), 'pubsub.publisher.scan_interval: "5x" is not a duration.'),
        (pubsub(publisher={"scan_intervall": "5s"}), "scan_intervall: is unknown. Did you mean 'scan_interval'?"),
        (pubsub(publishers={}), "pubsub.publishers: is unknown. Did you mean 'publisher'?"),
        ({"pubsup": {}}, "pubsup: is unknown. Did you mean 'pubsub'?"),
        ({"x": 1}, "x: is unknown. Known here: source, database_url"),
        ({True: 1}, "True: is unknown"),
        (subscription(ack_dedline="1s"), "reader.ack_dedline: is unknown. Did you mean 'ack_deadline'?"),
        (pubsub(publisher={"batch_size": 0}), "pubsub.publisher.batch_size: 0 is out of range"),
        (pubsub(publisher={"batch_size": "100"}), 'pubsub.publisher.batch_size: "100" is not a whole number'),
        (pubsub(publisher={"batch_size": True}), "pubsub.publisher.batch_size: True is not a whole number"),
        (pubsub(publisher={"batch_size": 10**400}), "pubsub.publisher.batch_size: the number is out of range"),
        (pubsub(publisher={"batch_size": None}), "pubsub.publisher.batch_size: has no value"),
        (pubsub(publisher=[]), "pubsub.publisher: is a list, not a mapping"),
        ({"pubsub": None}, "pubsub: has no value"),
        ({"pubsub": "x"}, "pubsub: is text, not a mapping"),
        (pubsub(topics=["a"]), "pubsub.topics: is a list, not a mapping"),
        (pubsub(topics={"a": "Catalog.video.events"}), "pubsub.topics.a: "),
        (pubsub(topics={1: "a.b.events"}), "pubsub.topics.1: has a name that is not text"),
        (pubsub(publisher={"enable_ordering": False}), "False is not possible: the events of an aggregate are always"),
        (pubsub(publisher={"enable_ordering": "yes"}), 'enable_ordering: "yes" is neither true nor false'),
        (subscription(enable_exactly_once=False), "reader.enable_exactly_once: False is not possible"),
        (subscription(sync_mode=True), "pubsub.subscriptions.reader.sync_mode: True is not possible"),
        (pubsub(subscriptions={"reader": {}}), "pubsub.subscriptions.reader.subscription_id: is missing"),
        (pubsub(subscriptions={"reader": {"subscription_id": "x"}}), "reader.subscription_id: must be"),
        (
            pubsub(topics={"v": "catalog.video.events"}, subscriptions=VIDIO),
            "is of topic 'catalog.vidio.events', which is not in pubsub.topics. Did you mean 'catalog.video.events'?",
        ),
        (pubsub(subscriptions=TWO), "pubsub.subscriptions.b: has other values than another subscription of group 'c'"),
        (pubsub(publisher={"backoff": ["5s", "x"]}), 'pubsub.publisher.backoff[1]: "x" is not a duration'),
        (pubsub(publisher={"backoff": []}), "pubsub.publisher.backoff: must be a list of at least one value"),
        (pubsub(publisher={"backoff": ["5s"], "base_backoff": "1s"}), "publisher.backoff: already says every wait"),
        (pubsub(publisher={"base_backoff": "1h"}), "pubsub.publisher.max_backoff: is shorter than base_backoff"),
        ({"pubsub": {}}, "pubsub.project_id: is missing. Give it, or set GCP_PROJECT_ID"),
        ({"pubsub": {"project_id": "A B"}}, "pubsub.project_id: is no project's id"),
        (pubsub(emulator_host="localhost"), "pubsub.emulator_host: must be host:port"),
        ({"rabbitmq": {"port": 70_000}}, "rabbitmq.port: is out of range"),
        ({"rabbitmq": {"host": "a/b"}}, "rabbitmq.host: is no host"),
        ({"rabbitmq": {"acknowledge_mode": "auto"}}, 'rabbitmq.acknowledge_mode: "auto" is not possible'),
        ({"rabbitmq": {"default_requeue_rejected": True}}, "rabbitmq.default_requeue_rejected: True is not possible"),
        ({"rabbitmq": {}, "broker_url": "embedded:"}, "broker_url: cannot stand beside rabbitmq"),
        ({"rabbitmq": {}, **pubsub()}, "rabbitmq: cannot stand beside pubsub.project_id"),
        ({"database_url": 5}, "database_url: is a number, not text"),
        ({"source": "a\nb"}, "source: contains a control character"),
    ],
)
def test_a_bad_setting_is_refused_with_its_path(settings: Any, told: str) -> None:
    assert told in refusal(settings)


def test_settings_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="settings: is a list, not a mapping"):
        read(Settings, [])


@pytest.mark.spec("P15")
def test_a_bad_variable_is_named() -> None:
    told = refusal(None, {"GCP_PROJECT_ID": "project", "PUBSUB_TOPIC_A": "a\tb"})
    assert told == "pubsub.topics.a: (from PUBSUB_TOPIC_A) contains a control character."


def test_a_topic_that_the_settings_do_not_name_is_told() -> None:
    with pytest.raises(InvalidSetting, match=r"pubsub\.topics\.vidio_events: is unknown. Did you mean 'video_events'?"):
        load({"pubsub": {"topics": {"video_events": "a.b.events"}}}, {}).topic("vidio_events")


def test_settings_for_a_group_without_handlers_are_refused_when_it_runs(sqlite_url: str) -> None:
    given = {"source": "catalog", "database_url": sqlite_url, "broker_url": "embedded:"}
    settings = {**given, "pubsub": {"subscriptions": {"reader": {"subscription_id": "shop.order.events.receipt"}}}}
    road = Postroad.from_settings(settings)

    @road.on(OrderPlaced, group="receipts")
    async def handle(event: OrderPlaced) -> None: ...

    with pytest.raises(ConfigurationError, match=r"settings for group 'receipt', but no handlers\. Reg"):
        road.runner()
    assert road.runner(groups=[])  # a relay alone consumes nothing


# -- the file --------------------------------------------------------------------------------------------


@pytest.mark.spec("P15")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("source: a\nsource: b", "config.yaml, line 2: the key 'source' stands there twice"),
        ("pubsub:\n  topics:\n    a: x\n    a: y", "line 4: the key 'a' stands there twice"),
        ("- a", "config.yaml is a list, not a mapping"),
        ("a: [", "config.yaml, line 1, column 5, is no YAML"),
        ("a: *secretalias", "line 1, column 4, is no YAML: found undefined alias."),
        ("a: !secrettag x", "line 1, column 4, is no YAML: could not determine a constructor for the tag."),
        ("a: !!python/object/apply:os.system [echo]", "is no YAML"),
        ("a: 2025-99-99", "is no YAML that can be read"),
        ("a: \x00", "is no YAML"),
        ("? [a]\n: b", "is no YAML"),
        ("[" * 2_000, "is no YAML that can be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_place(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        load(path, {})
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("# later\n", encoding="utf-8")
    assert made(tmp_path / "config.yaml") == {}


def test_merged_keys_are_no_repetition(tmp_path: Path) -> None:
    text = "rabbitmq:\n  publisher: &usual {batch_size: 5}\n  <<: {port: 1}\n  port: 2\n"
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    settings = load(tmp_path / "config.yaml", {})
    assert settings.rabbitmq is not None
    assert settings.rabbitmq.port == 2


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml cannot be read: No such file"):
        load(tmp_path / "nowhere.yaml", {})


def test_without_pyyaml_the_pip_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "postroad.settings.yaml", raising=False)
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtra, match=r"pip install 'postroad\[yaml\]'"):
        load("config.yaml", {})


def test_what_is_secret_is_not_shown_by_the_settings_themselves() -> None:
    settings = load({"database_url": "postgresql://u:hunter22@h/d", "rabbitmq": {"password": "hunter22"}}, {})
    assert "hunter22" not in repr(settings)
