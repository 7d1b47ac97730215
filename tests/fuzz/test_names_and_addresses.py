"""Names and URLs from settings: a name keeps its rules or is refused with the rule, a URL opens or is refused."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroad import naming
from postroad.brokers import connect_broker
from postroad.clock import SystemClock
from postroad.errors import ConfigurationError, InvalidName
from postroad.stores import open_store
from tests.fuzz.conftest import bounded

CHECKS: list[Callable[[str], str]] = [
    naming.check_topic,
    naming.check_dead_letter_topic,
    naming.check_subscription,
    naming.check_group,
    naming.check_event_type,
    naming.check_domain_event,
    naming.check_command,
    naming.check_aggregate,
    naming.check_identifier,
]
near_names = st.lists(
    st.sampled_from(
        [
            "shop",
            "order",
            "events",
            "Order",
            "Placed",
            "Command",
            "ORDER",
            "prod",
            "a",
            "é",
            "ß",
            "İ",
            "0",
            "goog",
            "\n",
            "x" * 90,
        ]
    )
    | st.text(max_size=4),
    max_size=5,
).flatmap(lambda words: st.sampled_from([".", "-", "_", "", "/"]).map(lambda joint: joint.join(words)))
names = near_names | st.text(st.characters(exclude_categories=[]), max_size=300)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@given(name=names)
@example(name="shop.order.events\n")
@example(name="a" * 200_000)
@bounded(100)
def test_a_name_keeps_its_rule_or_the_rule_is_told(check: Callable[[str], str], name: str) -> None:
    try:
        assert check(name) == name
    except InvalidName as refusal:
        told = refusal
    else:
        assert name.isascii()
        assert name.isprintable()
        assert name
        return
    assert told.name == name
    assert repr(name) in str(told)
    assert told.rule.endswith(".")
    cure = told.rule.rpartition(" Use '")[2].removesuffix("'.") if " Use '" in told.rule else None
    if cure and check in (naming.check_topic, naming.check_group):
        assert check(cure) == cure


schemes = st.sampled_from(
    ["postgresql://", "postgresql+psycopg://", "postgres://", "mysql://", "mariadb://", "sqlite://", ""]
)
parts = st.lists(
    st.sampled_from([*"@:/?#[]%=&' ", "user", "pw", "host", "5432", "99999", "é", "\udcff", "%40", "%zz"]), max_size=9
)


@given(url=st.tuples(schemes | st.text(max_size=9), parts.map("".join) | st.text(max_size=25)).map("".join))
@example(url="postgresql://u:p@h:port/db")
@example(url="postgresql://u:p@[::1/db")
@example(url="sqlite://user:pw@host/x.db")
@bounded(600)
def test_a_database_url_opens_a_store_or_is_refused(url: str) -> None:
    try:
        store = open_store(url)
    except ConfigurationError as refusal:
        assert "database" in str(refusal)  # noqa: PT017
    else:
        assert store.dialect in ("postgresql", "mysql", "sqlite")
        assert "@" not in store.address or store.dialect == "sqlite"


brokers = st.sampled_from(
    [*("embedded:", "embedded://", "amqp://", "kafka:", "kafka://", "kafkas://host:9092", "kafka://host/?partitions="),
     *("pubsub:", "pubsub://", "pubsub://my-project", "pubsub://my-project?emulator=", "x:", "")]
)  # fmt: skip


@given(url=st.tuples(brokers, parts.map("".join) | st.text(max_size=25)).map("".join))
@example(url="kafka://host:" + "9" * 5_000)
@example(url="kafka://host/?partitions=" + "9" * 5_000)
@example(url="amqp://host:" + "9" * 5_000)
@example(url="pubsub://my-project?publish_timeout=" + "9" * 5_000)
@example(url="pubsub://my-project?emulator=host:" + "9" * 5_000)
@bounded(800)
def test_a_broker_url_connects_or_is_refused(url: str) -> None:
    try:
        broker = connect_broker(url, clock=SystemClock())
    except ConfigurationError as refusal:
        assert "broker" in str(refusal).lower()  # noqa: PT017
        assert "limit" not in str(refusal)  # noqa: PT017 — of Python's, for the digits of a number
    else:
        assert broker.address
