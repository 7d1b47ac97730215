import pytest

from postroad.brokers import available_brokers, connect_broker
from postroad.brokers.embedded import EmbeddedBroker
from postroad.errors import ConfigurationError
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
