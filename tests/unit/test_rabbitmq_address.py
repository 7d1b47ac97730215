import sys
from pathlib import Path

import pytest

from postroad.brokers import connect_broker
from postroad.brokers.rabbitmq.address import parse
from postroad.brokers.rabbitmq.broker import RabbitBroker
from postroad.errors import ConfigurationError, MissingExtra
from postroad.testing import VirtualClock


@pytest.mark.spec("R3")
def test_the_defaults_are_those_of_a_fresh_installation() -> None:
    address = parse("amqp:")
    assert (address.host, address.port, address.vhost) == ("localhost", 5672, "/")
    assert (address.user, address.password, address.tls) == ("guest", "guest", False)
    assert (address.prefetch, address.queue_type) == (20, "classic")
    assert address.management_url == "http://localhost:15672"


def test_everything_can_be_said_in_the_url() -> None:
    address = parse(
        "amqps://u%40x:p%2Fw@host:7/v%2Fh?queue_type=quorum&prefetch=300&heartbeat=30&publish_timeout=2.5"
        "&single_active_consumer=false&management=https://host:9/&cafile=ca.pem&layout=names.toml"
    )
    assert (address.user, address.password, address.vhost) == ("u@x", "p/w", "v/h")
    assert (address.host, address.port, address.tls, address.cafile) == ("host", 7, True, "ca.pem")
    assert (address.queue_type, address.prefetch, address.heartbeat) == ("quorum", 300, 30)
    assert (address.publish_timeout, address.single_active_consumer) == (2.5, False)
    assert (address.management_url, address.layout) == ("https://host:9", "names.toml")
    assert address.told == "amqps://host:7/v/h"
    assert "p/w" not in repr(address)


def test_tls_has_its_own_ports() -> None:
    assert parse("amqps://host").port == 5671
    assert parse("rabbitmqs://host").management_url == "https://host:15671"


@pytest.mark.parametrize("scheme", ["amqp:", "amqps:", "rabbitmq:", "rabbitmqs:"])
async def test_every_scheme_leads_here(scheme: str) -> None:
    broker = connect_broker(f"{scheme}//user:secret@host/", clock=VirtualClock())
    assert isinstance(broker, RabbitBroker)
    assert "secret" not in broker.address
    await broker.aclose()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("prefech=3", "unknown option 'prefech'. Did you mean prefetch?"),
        ("zzz=3", "Known: queue_type"),
        ("queue_type=stream", "queue_type is 'stream'. It must be classic or quorum"),
        ("prefetch=0", "a whole number from 1 to 65535"),
        ("prefetch=ten", "a whole number from 1 to 65535"),
        ("heartbeat=1", "a whole number from 2"),
        ("publish_timeout=-1", "a number of seconds, more than 0"),
        ("publish_timeout=inf", "a number of seconds, more than 0"),
        ("publish_timeout=20.5", "a number of seconds, more than 0 and at most 20"),
        ("publish_timeout=soon", "a number of seconds, more than 0"),
        ("single_active_consumer=yes", "true or false"),
        ("management=host:15672", "begins with http:// or https://"),
    ],
)
def test_what_the_url_cannot_mean_is_told_without_showing_it(query: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(f"amqp://user:secret@host/?{query}")
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_unreadable_port_is_told() -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        parse("amqp://host:port/")


def test_without_its_client_library_the_cure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("postroad.brokers.rabbitmq")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pika", None)
    with pytest.raises(MissingExtra, match=r"pip install 'postroad\[rabbitmq\]'"):
        connect_broker("amqp://host/", clock=VirtualClock())


def test_a_missing_layout_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"layout .*absent\.toml cannot be read"):
        connect_broker(f"amqp://host/?layout={tmp_path / 'absent.toml'}", clock=VirtualClock())
