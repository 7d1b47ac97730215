import sys

import pytest
from confluent_kafka import Producer

from postroad.brokers import connect_broker
from postroad.brokers.kafka.address import parse
from postroad.brokers.kafka.broker import KafkaBroker
from postroad.errors import ConfigurationError, MissingExtra
from postroad.testing import VirtualClock


def test_the_defaults_are_those_of_a_fresh_installation() -> None:
    address = parse("kafka:")
    assert (address.servers, address.user, address.tls) == (("localhost:9092",), "", False)
    assert (address.partitions, address.replication) == (6, -1)
    assert address.client()["security.protocol"] == "PLAINTEXT"


def test_everything_can_be_said_in_the_url() -> None:
    address = parse(
        "kafkas://u%40x:p%2Fw@one:7,two,[::1]:9/?partitions=12&replication=3&publish_timeout=2.5&session_timeout=30"
        "&ahead=100&mechanism=PLAIN&cafile=ca.pem"
    )
    assert address.servers == ("one:7", "two:9092", "[::1]:9")
    assert (address.partitions, address.replication, address.ahead) == (12, 3, 100)
    assert (address.publish_timeout, address.session_timeout) == (2.5, 30.0)
    assert address.told == "kafkas://one:7,two:9092,[::1]:9/"
    assert "p/w" not in repr(address)
    client = address.client()
    assert (client["security.protocol"], client["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (client["sasl.username"], client["sasl.password"]) == ("u@x", "p/w")
    assert client["ssl.ca.location"] == "ca.pem"


@pytest.mark.parametrize("url", ["kafka:", "kafkas://host", "kafka://u:p@host/?mechanism=PLAIN", "kafkas://u:p@host"])
def test_librdkafka_knows_every_setting(url: str) -> None:
    Producer(parse(url).client())


def test_any_number_of_partitions_is_a_number_too() -> None:
    assert parse("kafka://host/?partitions=any").partitions == 0


@pytest.mark.parametrize("scheme", ["kafka:", "kafkas:"])
async def test_every_scheme_leads_here(scheme: str) -> None:
    broker = connect_broker(f"{scheme}//user:secret@host/", clock=VirtualClock())
    assert isinstance(broker, KafkaBroker)
    assert "secret" not in broker.address
    await broker.aclose()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("kafka://host/?partition=3", "unknown option 'partition'. Did you mean partitions?"),
        ("kafka://host/?zzz=3", "Known: partitions"),
        ("kafka://host/?partitions=0", "a whole number from 1 to 10000, or any"),
        ("kafka://host/?replication=some", "a whole number from 1 to 100"),
        ("kafka://host/?publish_timeout=16", "a number of seconds from 0.1 to 15"),
        ("kafka://host/?publish_timeout=nan", "a number of seconds from 0.1 to 15"),
        ("kafka://host/?session_timeout=soon", "a number of seconds from 1 to 300"),
        ("kafka://host/?mechanism=GSSAPI", "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("kafka://user:secret@host:port/", "a bad port"),
        ("kafka://user:secret@one,,two/", "without host"),
        ("kafka://user:secret@host/vhost", "has a path"),
        ("kafka://user:secret@[::1/", "cannot be read"),
    ],
)
def test_a_mistake_is_told_without_secrets(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse(url)
    assert told in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_missing_library_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("postroad.brokers.kafka", "confluent_kafka"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtra, match=r"pip install 'postroad\[kafka\]'"):
        connect_broker("kafka://host/", clock=VirtualClock())
