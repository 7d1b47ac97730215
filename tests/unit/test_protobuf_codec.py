"""Protobuf messages as events: what is set arrives, what could not be used is refused by its field."""

import subprocess
import sys
from datetime import UTC, datetime

import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.struct_pb2 import Struct

from examples.catalog.protos.video.v1 import events_pb2 as v1
from postroad import event
from postroad.cli.payload import read_event
from postroad.codec import Upcasters
from postroad.codec.envelope import wrap
from postroad.codec.protobuf import decode, encode
from postroad.errors import ConfigurationError, InvalidPayload, UnknownVersion, UnreadableMessage, WriteRefused
from postroad.events import EventType, event_type_of, field_names
from tests.support.catalog import CREATED, CREATED_V2, UPDATED, declare, message, v2


@pytest.fixture(autouse=True)
def declared_here() -> None:
    declare()


def full() -> v1.VideoCreated:
    made = v1.VideoCreated(video_id="v-1", uploader_id="u-1", title="Ein Film", version=3, status="ready")
    made.description.value = ""  # set, and empty: not the same as not set
    made.duration_micros.value = 0
    made.occurred_at.FromDatetime(datetime(2025, 10, 24, tzinfo=UTC))
    return made


@pytest.mark.spec("P7")
def test_what_is_set_arrives_and_what_is_not_set_stays_so() -> None:
    back = decode(encode(full(), CREATED), CREATED)
    assert back == full()
    assert back.HasField("description")
    assert not back.HasField("published_at")


def test_the_same_event_has_the_same_bytes() -> None:
    struct = EventType("thing.done", "a.b.events", "thing", None, 1, None, Struct)
    one, other = Struct(), Struct()
    for name in "abcdefgh":
        one[name] = 1
    for name in "hgfedcba":
        other[name] = 1
    assert encode(one, struct) == encode(other, struct)


def test_fields_that_a_newer_producer_added_are_passed_over_and_kept() -> None:
    newer = v2.VideoCreatedV2(video_id="v-1", language="de").SerializeToString()
    event = decode(newer, CREATED)
    assert event.video_id == "v-1"
    assert decode(encode(event, CREATED), CREATED_V2).language == "de"


@pytest.mark.parametrize(
    ("change", "path", "rule"),
    [
        (lambda e: setattr(e, "title", "a\0b"), "title", "contains a NUL"),
        (lambda e: setattr(e.description, "value", "\0"), "description.value", "contains a NUL"),
        (lambda e: setattr(e.published_at, "seconds", 253_402_300_800), "published_at", "is no time"),
        (lambda e: setattr(e.published_at, "nanos", -1), "published_at", "is no time"),
    ],
)
def test_what_no_consumer_could_use_is_refused_by_its_field(change: object, path: str, rule: str) -> None:
    event = full()
    change(event)  # type: ignore[operator]
    with pytest.raises(InvalidPayload, match=rule) as refused:
        encode(event, CREATED)
    assert (refused.value.event_type, refused.value.path) == ("video.created", path)


def test_a_fault_inside_lists_and_maps_is_told_with_its_place() -> None:
    kind = EventType("thing.done", "a.b.events", "thing", None, 1, None, Struct)
    event = Struct()
    event["list"] = ["fine", {"inner": "a\0b"}]
    with pytest.raises(InvalidPayload) as refused:
        encode(event, kind)
    place = "fields.list.list_value.values[1].struct_value.fields.inner.string_value"
    assert refused.value.path == place


def test_what_is_nested_deeper_than_a_reader_goes_is_refused() -> None:
    kind = EventType("thing.done", "a.b.events", "thing", None, 1, None, Struct)
    event = inner = Struct()
    for _ in range(60):
        inner = inner.fields["next"].struct_value
    with pytest.raises(InvalidPayload, match="cannot be encoded"):
        encode(event, kind)


def proto2() -> type:
    """A class with a required field and one inside a list."""
    file = descriptor_pb2.FileDescriptorProto(name="tests/required.proto", package="tests", syntax="proto2")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="text", number=1, type=9, label=2)
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="id", number=1, type=9, label=2)
    outer.field.add(name="inner", number=2, type=11, label=3, type_name=".tests.Inner")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.Outer"))


def test_a_required_field_that_is_not_set_is_refused_and_told_on_both_sides() -> None:
    cls = proto2()
    kind = EventType("thing.done", "a.b.events", "thing", "id", 1, None, cls)
    event = cls(id="1")
    event.inner.add()
    with pytest.raises(InvalidPayload, match="is required") as refused:
        encode(event, kind)
    assert refused.value.path == "inner[0].text"
    with pytest.raises(UnreadableMessage, match=r"field inner\[0\].text: is missing"):
        decode(event.SerializePartialToString(), kind)


def test_another_class_than_the_declared_one_is_refused() -> None:
    with pytest.raises(InvalidPayload, match="is a VideoDeleted, not a VideoCreated"):
        encode(v1.VideoDeleted(), CREATED)


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"{}"])
def test_what_is_no_such_message_cannot_be_read(data: bytes) -> None:
    with pytest.raises(UnreadableMessage, match=r"video\.created v1: field payload"):
        decode(data, CREATED)


def test_a_generated_class_is_declared_by_calling_the_decorator() -> None:
    assert event_type_of(v1.VideoCreated).key == "video_id"
    assert list(field_names(v1.VideoDeleted) or {}) == ["video_id", "reason"]


def test_a_key_that_is_no_field_of_the_message_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no field 'vidio_id' to be the key\. Did you mean 'video_id'"):
        event("video.lost", topic="catalog.video.events", aggregate="video", key="vidio_id")(v1.VideoDeleted)


def test_json_in_place_of_protobuf_is_told() -> None:
    wrong = message(UPDATED, b"{}", content_type="application/json")
    with pytest.raises(UnreadableMessage, match="'application/json' is not application/x-protobuf"):
        Upcasters().read(wrong, UPDATED)


def test_protobuf_in_place_of_json_is_told() -> None:
    class Plain(msgspec.Struct):
        video_id: str

    kind = EventType("video.updated", "catalog.video.events", "video", None, 1, None, Plain)
    with pytest.raises(UnreadableMessage, match="is not application/json"):
        Upcasters().read(message(UPDATED, b""), kind)


# -- old versions ------------------------------------------------------------------------------------------


def steps() -> Upcasters:
    upcasters = Upcasters()
    upcasters.register("video.created", 1, lambda fields: {**fields, "language": "und", "tags": [fields["status"]]})
    return upcasters


def sent_v1() -> bytes:
    return wrap(message(CREATED, encode(full(), CREATED)), CREATED).payload


@pytest.mark.spec("P8")
def test_an_old_version_is_lifted_through_its_own_class() -> None:
    lifted = steps().read(message(CREATED, sent_v1()), CREATED_V2)
    assert isinstance(lifted, v2.VideoCreatedV2)
    assert (lifted.title, lifted.language, lifted.tags, lifted.version) == ("Ein Film", "und", ["ready"], 3)
    assert lifted.HasField("description")


@pytest.mark.parametrize("seconds", [2**62, -(2**62)])
def test_what_cannot_be_lifted_is_poison_and_stops_nobody(seconds: int) -> None:
    event = full()
    event.published_at.seconds = seconds  # as a careless producer may write it
    with pytest.raises(UnreadableMessage, match="has no form in JSON"):
        steps().read(message(CREATED, wrap(message(CREATED, event.SerializeToString()), CREATED).payload), CREATED_V2)


def test_what_upcasters_made_must_be_a_message() -> None:
    upcasters = Upcasters()
    upcasters.register("video.created", 1, lambda fields: {"langage": "de"})
    with pytest.raises(UnreadableMessage, match="langage"):
        upcasters.read(message(CREATED, sent_v1()), CREATED_V2)


@pytest.mark.spec("P8")
@pytest.mark.parametrize("version", [3, 9])
def test_a_newer_version_is_named_and_not_guessed(version: int) -> None:
    with pytest.raises(UnknownVersion, match=f"v{version} is newer than v2"):
        steps().read(message(CREATED_V2, b"", schema_version=version), CREATED_V2)


def test_an_old_version_whose_class_is_not_declared_cannot_be_lifted() -> None:
    upcasters = Upcasters()
    upcasters.register("video.lost", 1, dict)
    kind = EventType("video.lost", "catalog.video.events", "video", None, 2, None, v1.VideoDeleted)
    with pytest.raises(UnknownVersion, match="its class is not declared here"):
        upcasters.read(message(kind, b"", schema_version=1), kind)


# -- typed by hand -----------------------------------------------------------------------------------------


def test_an_event_can_be_typed_as_protobufs_json() -> None:
    typed = read_event('{"video_id": "v-1", "durationMicros": "5", "published_at": "2025-10-24T10:30:00Z"}', CREATED)
    assert isinstance(typed, v1.VideoCreated)
    assert (typed.video_id, typed.duration_micros.value, typed.published_at.seconds) == ("v-1", 5, 1_761_301_800)


@pytest.mark.parametrize(
    "text", ['{"vidio_id": "v-1"}', '{"version": "x"}', "[]", "5", '"x"', "null", "{", '{"title": 5}']
)
def test_what_was_typed_wrongly_is_refused(text: str) -> None:
    with pytest.raises(WriteRefused, match="Nothing was stored"):
        read_event(text, CREATED)


def test_protobuf_is_imported_by_nobody_who_does_not_use_it() -> None:
    program = "import sys, postroad.app, postroad.codec, postroad.cli; print('google.protobuf' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
