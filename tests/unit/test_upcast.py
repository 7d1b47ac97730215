"""Old schema versions: lifted step by step, and never silently dropped."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest

from postroad.codec import Upcasters, choose
from postroad.errors import ConfigurationError, PoisonError, UnknownVersion, UnreadableMessage
from postroad.events import EventType
from postroad.message import Message


class CreatedV1(msgspec.Struct):
    name: str


class CreatedV3(msgspec.Struct):
    first: str
    last: str
    created: datetime | None = None


def known(version: int, cls: type) -> EventType:
    return EventType("video.created", "catalog.video.events", "video", None, version, None, cls)


V1, V3 = known(1, CreatedV1), known(3, CreatedV3)


def message(schema_version: int, payload: bytes = b'{"name":"Ada Lovelace"}', **changes: Any) -> Message:
    return Message(
        id=UUID(int=1),
        type="video.created",
        topic="catalog.video.events",
        aggregate_type="video",
        aggregate_id="1",
        version=1,
        occurred_at=datetime(2025, 1, 1, tzinfo=UTC),
        payload=payload,
        schema_version=schema_version,
        **changes,
    )


def split_name(fields: dict[str, Any]) -> dict[str, Any]:
    first, last = fields.pop("name").split(" ")
    return {**fields, "first": first, "last": last}


def add_created(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "created": datetime(2025, 1, 1, tzinfo=UTC)}


@pytest.fixture
def upcasters() -> Upcasters:
    steps = Upcasters()
    steps.register("video.created", 1, split_name)
    steps.register("video.created", 2, add_created)
    return steps


@pytest.mark.spec("P8")
def test_the_classs_own_version_is_read_directly() -> None:
    assert Upcasters().read(message(1), V1) == CreatedV1("Ada Lovelace")


def test_a_direct_reading_keeps_every_digit() -> None:
    class Priced(msgspec.Struct):
        price: Decimal

    read = Upcasters().read(message(1, b'{"price":12345678901234567890.10}'), known(1, Priced))
    assert read == Priced(Decimal("12345678901234567890.10"))


@pytest.mark.spec("P8")
def test_an_old_version_goes_through_every_step(upcasters: Upcasters) -> None:
    expected = CreatedV3("Ada", "Lovelace", datetime(2025, 1, 1, tzinfo=UTC))
    assert upcasters.read(message(1), V3) == expected
    assert upcasters.read(message(2, b'{"first":"Ada","last":"Lovelace"}'), V3) == expected


@pytest.mark.spec("P8")
def test_a_newer_version_is_poison_that_says_what_to_deploy(upcasters: Upcasters) -> None:
    with pytest.raises(UnknownVersion, match=r"video\.created v4 is newer than v3.* Deploy a class for v4") as poison:
        upcasters.read(message(4), V3)
    assert isinstance(poison.value, PoisonError)


@pytest.mark.spec("P8")
def test_a_missing_step_is_named() -> None:
    steps = Upcasters()
    steps.register("video.created", 2, add_created)
    steps.register("video.deleted", 1, split_name)
    with pytest.raises(UnknownVersion, match="v1 cannot be read as v3: no upcaster leads from v1 to v2"):
        steps.read(message(1), V3)
    assert steps.missing("video.created", 1, 5) == [1, 3, 4]
    assert steps.missing("video.created", 3, 3) == []


@pytest.mark.spec("P8")
def test_a_consumer_of_several_versions_reads_each_as_itself() -> None:
    versions = {1: V1, 3: V3}
    assert choose(1, versions) is V1
    assert choose(2, versions) is V3
    assert choose(3, versions) is V3
    assert choose(4, versions) is V3


def test_an_upcaster_that_fails_is_named() -> None:
    steps = Upcasters()
    steps.register("video.created", 1, split_name)
    steps.register("video.created", 2, add_created)
    with pytest.raises(UnreadableMessage, match=r"video\.created v1: its upcaster split_name failed with ValueError"):
        steps.read(message(1, b'{"name":"Ada"}'), V3)


def test_an_upcaster_must_return_a_dict() -> None:
    steps = Upcasters()
    steps.register("video.created", 1, lambda fields: None)  # type: ignore[arg-type, return-value]
    steps.register("video.created", 2, add_created)
    with pytest.raises(UnreadableMessage, match="returned NoneType, not a dict"):
        steps.read(message(1), V3)


def test_what_upcasters_make_is_read_strictly() -> None:
    steps = Upcasters()
    steps.register("video.created", 1, lambda fields: {"first": 1, "last": "x"})
    steps.register("video.created", 2, lambda fields: fields)
    with pytest.raises(UnreadableMessage, match=r"video\.created v3: field first: Expected `str`"):
        steps.read(message(1), V3)


def test_what_upcasters_make_must_be_json() -> None:
    steps = Upcasters()
    steps.register("video.created", 1, lambda fields: {"first": object()})
    steps.register("video.created", 2, lambda fields: fields)
    with pytest.raises(UnreadableMessage, match="what its upcasters made is not JSON"):
        steps.read(message(1), V3)


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b'{"name":"\xff"}', b'{"a":' + b"[" * 100_000])
def test_an_unreadable_old_payload_is_told(upcasters: Upcasters, payload: bytes) -> None:
    with pytest.raises(UnreadableMessage, match="not a JSON object"):
        upcasters.read(message(1, payload), V3)


def test_other_content_types_are_not_taken_for_json(upcasters: Upcasters) -> None:
    with pytest.raises(UnreadableMessage, match="content type 'application/x-protobuf' is not application/json"):
        upcasters.read(message(1, content_type="application/x-protobuf"), V1)
    assert upcasters.read(message(1, content_type="application/json; charset=utf-8"), V1)


def test_two_upcasters_for_one_step_are_refused(upcasters: Upcasters) -> None:
    with pytest.raises(ConfigurationError, match="two upcasters from v1 to v2"):
        upcasters.register("video.created", 1, split_name)
    with pytest.raises(ConfigurationError, match="Schema versions begin with 1"):
        upcasters.register("video.created", 0, split_name)
