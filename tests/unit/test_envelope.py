"""The envelope around a protobuf event: its identity is the message's, and nobody may say otherwise."""

from datetime import timedelta
from uuid import UUID

import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from postroad import event
from postroad.codec import Upcasters
from postroad.codec.envelope import unwrap, wrap
from postroad.codec.late_version import ROOM, with_version, without_version
from postroad.codec.protobuf import encode
from postroad.errors import ConfigurationError, InvalidPayload, PoisonError, UnreadableMessage
from postroad.events import EventType
from postroad.message import Message
from tests.support.catalog import CREATED, DELETED, TOPIC, UPDATED, message, v1, v2


def bare(**changes: object) -> Message:
    return message(CREATED, encode(v1.VideoCreated(video_id="v-1", title="T"), CREATED), **changes)


@pytest.mark.spec("P7")
def test_the_envelope_repeats_the_attributes() -> None:
    wire = wrap(bare(), CREATED)
    told, attributes = v1.Event.FromString(wire.payload), wire.attributes()
    assert told.event_id == attributes["event_id"]
    assert told.event_type == v1.EVENT_TYPE_VIDEO_CREATED
    assert (told.aggregate_id, told.aggregate_type) == (attributes["aggregate_id"], attributes["aggregate_type"])
    assert str(told.version) == attributes["version"]
    assert told.occurred_at.ToJsonString() == attributes["occurred_at"]
    assert told.WhichOneof("payload") == "created"
    assert told.created.title == "T"
    assert attributes["content_type"] == "application/x-protobuf"


@pytest.mark.spec("P7")
def test_the_envelopes_fields_have_the_agreed_numbers() -> None:
    numbers = {field.name: field.number for field in v1.Event.DESCRIPTOR.fields}
    assert list(numbers.items()) == [
        ("event_id", 1), ("event_type", 2), ("aggregate_id", 3), ("aggregate_type", 4), ("version", 5),
        ("occurred_at", 6), ("created", 10), ("updated", 11), ("deleted", 12),
    ]  # fmt: skip
    created = {field.number: field.name for field in v1.VideoCreated.DESCRIPTOR.fields}
    assert list(created.values()) == [
        "video_id", "uploader_id", "title", "description", "duration_micros", "published_at", "version",
        "occurred_at", "status", "media_status", "analysis_status",
    ]  # fmt: skip
    assert list(created) == list(range(1, 12))


def test_what_was_wrapped_is_unwrapped() -> None:
    read = Upcasters().read(wrap(bare(), CREATED), CREATED)
    assert read == v1.VideoCreated(video_id="v-1", title="T")


def test_an_event_without_any_field_set_is_there_all_the_same() -> None:
    wire = wrap(message(DELETED, b""), DELETED)
    assert v1.Event.FromString(wire.payload).WhichOneof("payload") == "deleted"
    assert unwrap(wire, DELETED) == b""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"id": UUID(int=8)}, "event_id"),
        ({"aggregate_id": "v-2"}, "aggregate_id"),
        ({"version": 4}, "version is 3 in the envelope, but '4' in the attributes"),
        ({"occurred_at": bare().occurred_at + timedelta(seconds=1)}, "occurred_at"),
    ],
)
def test_an_envelope_that_contradicts_the_attributes_is_not_believed(changes: dict[str, object], told: str) -> None:
    forged = msgspec.structs.replace(wrap(bare(), CREATED), **changes)
    with pytest.raises(UnreadableMessage, match=told):
        unwrap(forged, CREATED)


def test_attributes_to_the_second_are_no_contradiction() -> None:
    wire = wrap(bare(), CREATED)
    assert unwrap(msgspec.structs.replace(wire, occurred_at=wire.occurred_at.replace(microsecond=0)), CREATED)


@pytest.mark.parametrize("text", ["00000000-0000-0000-0000-00000000ABCD", f"{'0' * 22}1AYD"])
def test_an_id_in_capitals_or_as_a_ulid_is_no_contradiction(text: str) -> None:
    wire = wrap(bare(id=UUID(int=0xABCD)), CREATED)
    told = v1.Event.FromString(wire.payload)
    told.event_id = text
    assert unwrap(msgspec.structs.replace(wire, payload=told.SerializeToString()), CREATED)


def test_an_event_that_is_too_deep_for_its_envelope_alone_is_refused_at_write() -> None:
    event, envelope = nodes()
    kind = EventType("node.made", "a.b.events", "node", None, 1, None, event, envelope)
    for depth, fits in ((99, True), (100, False)):
        made = inner = event()
        for _ in range(depth):
            inner = inner.next
        inner.SetInParent()
        data = encode(made, kind)  # by itself it can be read
        if fits:
            assert Upcasters().read(wrap(message(kind, data), kind), kind) == made
        else:
            with pytest.raises(InvalidPayload, match="too deeply to be read in its envelope"):
                wrap(message(kind, data), kind)


def nodes() -> tuple[type, type]:
    """A message that contains itself, and its envelope."""
    file = FileDescriptorProto(name="tests/nodes.proto", package="tests", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Node").field.add(name="next", number=1, type=11, label=1, type_name=".tests.Node")
    envelope = file.message_type.add(name="Envelope")
    v1.Event.DESCRIPTOR.CopyToProto(envelope)
    del envelope.field[6:], envelope.oneof_decl[:]
    envelope.name = "Envelope"
    envelope.field[1].type = FieldDescriptorProto.TYPE_STRING
    envelope.field[1].ClearField("type_name")
    envelope.field.add(name="node", number=10, type=11, label=1, type_name=".tests.Node")
    pool = DescriptorPool()
    timestamp = FileDescriptorProto()
    Timestamp.DESCRIPTOR.file.CopyToProto(timestamp)
    pool.Add(timestamp)
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"tests.{name}") for name in ("Node", "Envelope"))
    event, wrapper = map(GetMessageClass, found)
    return event, wrapper


def test_another_events_envelope_is_refused() -> None:
    wire = wrap(message(DELETED, b""), DELETED)
    with pytest.raises(UnreadableMessage, match="field created of the envelope is not set"):
        unwrap(wire, CREATED)


def test_what_is_no_envelope_is_refused() -> None:
    with pytest.raises(UnreadableMessage, match="cannot be read"):
        unwrap(message(CREATED, b"\xff"), CREATED)


@given(payload=st.binary(max_size=40), damage=st.integers(0, 200), byte=st.integers(0, 255))
def test_whatever_the_payload_is_it_is_an_event_or_poison(payload: bytes, damage: int, byte: int) -> None:
    whole = bytearray(wrap(bare(), CREATED).payload)
    whole[damage % len(whole)] = byte
    for data in (payload, bytes(whole), bytes(whole[:damage])):
        for kind in (CREATED, UPDATED):
            try:
                Upcasters().read(message(kind, data), kind)
            except PoisonError:
                pass


# -- the version that comes later --------------------------------------------------------------------------


@pytest.mark.spec("P7")
@given(version=st.integers(1, 10**18 - 1))
def test_a_version_that_is_given_out_later_is_appended_without_knowing_the_message(version: int) -> None:
    waiting = wrap(bare(version=None), CREATED)
    payload, content_type = with_version(waiting.payload, waiting.content_type, version)
    wire = msgspec.structs.replace(waiting, payload=payload, content_type=content_type, version=version)
    assert content_type == "application/x-protobuf"
    assert v1.Event.FromString(payload) == v1.Event.FromString(wrap(bare(version=version), CREATED).payload)
    assert unwrap(wire, CREATED)
    assert len(payload) - len(waiting.payload) <= ROOM


def test_what_lacks_no_version_is_left_as_it_is() -> None:
    assert with_version(b"{}", "application/json; charset=utf-8", 5) == (b"{}", "application/json; charset=utf-8")
    given = wrap(bare(), CREATED)
    assert with_version(given.payload, given.content_type, 9) == (given.payload, given.content_type)


@pytest.mark.parametrize("field", ["0", "-1", "x", "", "536870912"])
def test_a_field_that_cannot_be_is_refused(field: str) -> None:
    with pytest.raises(ValueError):
        with_version(b"", f"application/x-protobuf; version-field={field}", 1)


def test_the_longest_that_can_be_appended_has_room() -> None:
    payload, _ = with_version(b"", without_version("application/x-protobuf", 2**29 - 1), -1)
    assert len(payload) == ROOM


# -- declaring ---------------------------------------------------------------------------------------------


def declare(cls: type, envelope: object, name: str = "video.created") -> None:
    event(name, topic=TOPIC, aggregate="video", envelope=envelope)(cls)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cls", "envelope", "name", "told"),
    [
        (v1.VideoCreated, dict, "video.created", "no protobuf message class"),
        (v1.VideoCreated, v1.Event(), "video.created", "no protobuf message class"),
        (v1.VideoCreated, Struct, "video.created", "needs a field event_id of type string"),
        (v1.VideoCreated, v1.VideoCreated, "video.created", "needs a field event_id"),
        (v1.VideoCreated, v2.Event, "video.created", "has no fields of type video.v1.VideoCreated"),
        (Timestamp, v1.Event, "video.created", "has no fields of type"),
        (v1.VideoCreated, v1.Event, "video.archived", "has no value for it. Add VIDEO_ARCHIVED"),
    ],
)
def test_a_class_that_cannot_be_the_envelope_is_refused_when_declared(
    cls: type, envelope: object, name: str, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        declare(cls, envelope, name)


def test_only_protobuf_goes_into_an_envelope() -> None:
    class Plain(msgspec.Struct):
        video_id: str

    with pytest.raises(ConfigurationError, match="Plain is no protobuf message"):
        declare(Plain, v1.Event)
