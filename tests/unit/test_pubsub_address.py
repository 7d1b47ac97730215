"""A broker URL says which project, and perhaps which emulator; what else it says is refused."""

import pytest

from postroad.brokers import connect_broker
from postroad.brokers.pubsub.address import Address, parse
from postroad.clock import SystemClock
from postroad.errors import ConfigurationError


@pytest.fixture(autouse=True)
def no_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)


def test_a_project_alone_is_in_the_cloud() -> None:
    address = parse("pubsub://my-project")
    assert address == Address("my-project")
    assert (address.target, address.told) == ("pubsub.googleapis.com:443", "pubsub://my-project")


def test_the_emulator_is_named_in_the_url_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    told = parse("pubsub://my-project?emulator=127.0.0.1:8085")
    assert (told.target, told.told) == ("127.0.0.1:8085", "pubsub://my-project?emulator=127.0.0.1:8085")
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "[::1]:8085")
    assert parse("pubsub://my-project").emulator == "[::1]:8085"
    assert parse("pubsub://my-project?emulator=localhost:1").emulator == "localhost:1", "what the URL says counts"


def test_names_become_paths() -> None:
    address = Address("example.com:my-project")
    assert parse("pubsub://example.com:my-project") == address
    assert address.topic("a.events") == "projects/example.com:my-project/topics/a.events"
    assert address.subscription("a.events.b") == "projects/example.com:my-project/subscriptions/a.events.b"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("pubsub:", "names no Google Cloud project"),
        ("pubsub://UPPER", "names no Google Cloud project"),
        ("pubsub://user:secret@my-project", "names no Google Cloud project"),
        ("pubsub://my-project/topic", "has a path"),
        ("pubsub://my-project?emulater=x:1", "Did you mean emulator?"),
        ("pubsub://my-project?zzz=1", "Known: emulator, monitoring, publish_timeout"),
        ("pubsub://my-project?emulator=", "must be host and port"),
        ("pubsub://my-project?emulator=http://localhost:8085", "must be host and port"),
        ("pubsub://my-project?monitoring=perhaps", "must be yes or no"),
        ("pubsub://my-project?publish_timeout=soon", "number of seconds"),
        ("pubsub://my-project?publish_timeout=21", "at most 20"),
    ],
)
def test_a_mistake_is_told_with_its_cure(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(url)
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_wrong_address_in_the_environment_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "localhost")
    with pytest.raises(ConfigurationError, match="PUBSUB_EMULATOR_HOST is 'localhost'"):
        parse("pubsub://my-project")


async def test_connecting_contacts_nobody() -> None:
    for scheme in ("pubsub", "gcp-pubsub"):
        broker = connect_broker(f"{scheme}://my-project", clock=SystemClock())
        assert broker.address == "pubsub://my-project"
        await broker.aclose()
