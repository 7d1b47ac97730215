"""Settings of any kind: taken, or refused in a sentence. Never a traceback of ours, never a secret."""

import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import ConfigurationError
from postroad.settings import arguments, load
from tests.fuzz.conftest import bounded
from tests.unit.test_settings import AGREED

MARK = "c4nary"
SECRET = f"""
source: shop
database_url: "postgresql://user:{MARK}@host/shop"
rabbitmq:
  host: localhost
  username: shop
  password: "{MARK}"
  prefetch: 20
  publisher:
    scan_interval: "5s"
    backoff: ["5s", "30s", "2m"]
"""
KEYS = [
    "source", "database_url", "broker_url", "pubsub", "rabbitmq", "publisher", "subscriptions", "topics", "project_id",
    "emulator_host", "scan_interval", "batch_size", "backoff", "base_backoff", "subscription_id", "ack_deadline",
    "enable_ordering", "host", "port", "password", "outbox_retention",
]  # fmt: skip

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.binary(max_size=4), st.dates(),
    st.sampled_from(["5s", "10m", "1h30m", "5x", "catalog.video.events", "a.b.events.c", "localhost:8085", "project"]),
)  # fmt: skip
keys = st.one_of(st.sampled_from(KEYS), st.text(max_size=8), st.integers(), st.none(), st.booleans())
plain = st.recursive(
    leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=4))
)
variables = st.sampled_from(["GCP_PROJECT_ID", "PUBSUB_EMULATOR_HOST", "PUBSUB_TOPIC_A", "PUBSUB_SUB_A", "BROKER_URL"])


def told(settings: Any, environment: dict[str, str]) -> str:
    """All that is printed of a refusal; empty if there is none."""
    try:
        arguments(load(settings, environment))
    except ConfigurationError as refused:
        return "".join(traceback.format_exception(refused))
    return ""


@pytest.mark.spec("P15")
@bounded(300)
@given(
    st.dictionaries(st.sampled_from(KEYS), plain, max_size=5),
    st.dictionaries(variables, st.text(st.characters(exclude_characters="\0"), max_size=20)),
)
def test_any_values_are_taken_or_refused_in_a_sentence(settings: dict[str, Any], environment: dict[str, str]) -> None:
    told(settings, environment)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


@pytest.mark.spec("P15")
@bounded(300)
@given(data=st.data(), agreed=st.booleans())
def test_a_damaged_file_is_refused_in_a_sentence_without_its_secret(
    file: Path, data: st.DataObject, agreed: bool
) -> None:
    text = AGREED if agreed else SECRET
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        piece = data.draw(st.one_of(st.sampled_from(list("*&!%@`'\"[]{}:,#|>?-\n\t\0é\\")), st.text(max_size=3)))
        text = text[:at] + piece + text[at + data.draw(st.integers(0, 3)) :]
    file.write_bytes(text.encode(errors="surrogatepass"))
    assert MARK not in told(file, {})


@bounded(100)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_file_or_refused(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    told(file, {})


@pytest.mark.parametrize("sigil", ["*", "&", "!", "%", "@", "`", "{", "[", "'", '"', "|", ">", "- ", "? ", ": "])
def test_a_password_without_quotation_marks_is_not_told(file: Path, sigil: str) -> None:
    file.write_text(f"rabbitmq:\n  password: {sigil}{MARK}\n", encoding="utf-8")
    assert MARK not in told(file, {})
