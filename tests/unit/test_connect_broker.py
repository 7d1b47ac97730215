from pathlib import Path

import pytest

from postroad import brokers
from postroad.brokers import available_brokers, connect_broker
from postroad.brokers.embedded import EmbeddedBroker
from postroad.errors import ConfigurationError, MissingExtra
from postroad.testing import VirtualClock


async def test_a_scheme_finds_its_module() -> None:
    broker = connect_broker("embedded:", clock=VirtualClock())
    assert isinstance(broker, EmbeddedBroker)
    assert broker.address == "embedded:"
    await broker.aclose()


def test_an_unknown_scheme_names_the_nearest_and_keeps_the_password() -> None:
    with pytest.raises(ConfigurationError) as caught:
        connect_broker("embeded://user:secret@host", clock=VirtualClock())
    text = str(caught.value)
    assert "scheme 'embeded'" in text
    assert "Did you mean embedded:?" in text
    assert "secret" not in text


def test_a_url_without_scheme_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"has no scheme.*embedded") as caught:
        connect_broker("secret.db", clock=VirtualClock())
    assert "secret" not in str(caught.value)


def test_base_is_no_adapter() -> None:
    assert "base" not in available_brokers()
    with pytest.raises(ConfigurationError, match="No broker has the URL scheme 'base'"):
        connect_broker("base:", clock=VirtualClock())


def test_what_is_no_text_is_no_url() -> None:
    with pytest.raises(ConfigurationError, match="The broker URL is of type int, not text"):
        connect_broker(5, clock=VirtualClock())  # type: ignore[arg-type]


@pytest.fixture
def adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which adapters are looked for."""
    monkeypatch.setattr(brokers, "__path__", [str(tmp_path)])
    return tmp_path


def test_an_adapter_whose_library_is_missing_names_the_command(adapters: Path) -> None:
    (adapters / "pigeon.py").write_text("import pigeon_post\n", encoding="utf-8")
    with pytest.raises(MissingExtra) as caught:
        connect_broker("pigeon://loft", clock=VirtualClock())
    assert str(caught.value) == (
        "The library for pigeon: (pigeon_post) is not installed. Run: pip install 'postroad[pigeon]'"
    )
