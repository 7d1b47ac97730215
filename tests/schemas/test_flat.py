"""One message in one file: what Pub/Sub's registry takes, and on the wire the same as what was declared."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor

from examples.catalog.protos.video.v1 import events_pb2 as v1
from examples.catalog.protos.video.v2 import events_pb2 as v2
from postroad.codec.flat import flattened
from postroad.errors import ConfigurationError
from tests.support.protos import compiled, described

pytestmark = pytest.mark.spec("F8")

OTHERS = """syntax = "proto3"; package others;
enum Kind { UNKNOWN = 0; OTHER = 1; }
enum Sort { NONE = 0; SOME = 1; }
message Part { string name = 1; Kind kind = 2; Sort sort = 3; }
message Never { string used = 1; }
"""
TANGLED = """syntax = "proto3"; package mine.deep;
import "others.proto";
import "google/protobuf/timestamp.proto";
enum Kind { option allow_alias = true; UNKNOWN = 0; GOOD = 1; FINE = 1; }
message Part {
  message Screw { int32 size = 1; enum Head { FLAT = 0; CROSS = 1; } Head head = 2; }
  Part of = 1; Kind kind = 2;
}
message Root {
  enum Colour { NONE = 0; RED = 7; }
  message Inner { map<string, Part.Screw> screws = 1; Root again = 2; }
  oneof which { Part mine = 20; others.Part theirs = 21; string text = 22; }
  optional int64 maybe = 1;
  repeated Inner inners = 2;
  map<int32, Colour> colours = 3;
  others.Kind Timestamp = 4;
  google.protobuf.Timestamp at = 5;
  Kind kind = 6;
  bytes data = 7; bool yes = 8; double real = 9; float half = 10; fixed32 a = 11; fixed64 b = 12;
  sfixed32 c = 13; sfixed64 d = 14; sint32 e = 15; sint64 f = 16; uint32 g = 17; uint64 h = 18;
  Part.Screw.Head head = 19;
}
"""
OLD = """syntax = "proto2"; package old;
message Root { required string id = 1; optional int32 n = 2 [default = 7]; repeated Level levels = 3; }
enum Level { LOW = 3; HIGH = 5; }
"""


def flat(cls: Any, folder: Path) -> Any:
    """The class that the registry would make of it."""
    text = flattened(cls)
    (file,) = described(folder, flat=text).file
    assert [one.name for one in file.message_type] == [cls.DESCRIPTOR.name]
    assert list(file.enum_type) == list(file.dependency) == []
    assert flattened(cls) == text
    return compiled(folder, cls.DESCRIPTOR.name, flat=text)


def assert_alike(one: Descriptor, other: Descriptor, seen: set[str]) -> None:
    """As readers and writers of bytes see them."""
    if one.full_name in seen:
        return
    seen.add(one.full_name)
    assert [told(field) for field in one.fields] == [told(field) for field in other.fields]
    for mine, theirs in zip(one.fields, other.fields, strict=True):
        if mine.message_type:
            assert_alike(mine.message_type, theirs.message_type, seen)
        if mine.enum_type:
            assert numbers(mine.enum_type) == numbers(theirs.enum_type)


def told(field: Any) -> tuple[object, ...]:
    oneof = field.containing_oneof
    return (
        field.name,
        field.number,
        field.type,
        field.is_repeated,
        field.is_required,
        field.has_presence,
        (oneof and oneof.name),
    )


def numbers(enum: EnumDescriptor) -> list[int]:
    return [value.number for value in enum.values]


@pytest.mark.parametrize("cls", [v1.Event, v2.Event, v1.VideoUpdated], ids=["v1", "v2", "bare"])
def test_the_catalogs_messages_are_one_in_one_file(tmp_path: Path, cls: Any) -> None:
    assert_alike(cls.DESCRIPTOR, flat(cls, tmp_path).DESCRIPTOR, set())


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("mine.deep.Root", {"others": OTHERS, "tangled": TANGLED}),
        ("mine.deep.Root.Inner", {"others": OTHERS, "tangled": TANGLED}),
        ("old.Root", {"old": OLD}),
    ],
)
def test_imports_maps_oneofs_and_names_that_meet_stay_what_they_are(
    tmp_path: Path, name: str, files: dict[str, str]
) -> None:
    cls = compiled(tmp_path / "given", name, **files)
    assert_alike(cls.DESCRIPTOR, flat(cls, tmp_path / "flat").DESCRIPTOR, set())
    assert "Never" not in flattened(cls)


def test_bytes_of_the_one_are_bytes_of_the_other(tmp_path: Path) -> None:
    sent = v1.Event(event_id="e-1", event_type=v1.EVENT_TYPE_VIDEO_CREATED, aggregate_id="v-1", version=3)
    sent.created.title, sent.created.description.value = "Rain", ""
    sent.occurred_at.FromSeconds(1_700_000_000)
    read = flat(v1.Event, tmp_path).FromString(sent.SerializeToString())
    assert (read.created.title, read.created.HasField("description")) == ("Rain", True)
    assert read.occurred_at.seconds == 1_700_000_000
    assert read.SerializeToString(deterministic=True) == sent.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('syntax = "proto2"; message Root { optional group Part = 1 { optional string x = 2; } }', "part is a group"),
        ('syntax = "proto2"; message Root { extensions 100 to 199; }', "Root may be extended"),
        ('syntax = "proto3"; import "old.proto"; message Root { old.Root of = 1; }', "files in proto2 and proto3"),
    ],
    ids=["group", "extensions", "two syntaxes"],
)
def test_what_such_a_file_cannot_say_is_refused(tmp_path: Path, text: str, cause: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Root cannot be written as one message in one file: .*{cause}"):
        flattened(compiled(tmp_path, "Root", old=OLD, new=text))
