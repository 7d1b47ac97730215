"""`postroad schema`: what it prints, how it ends, and what it writes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from examples.catalog.protos.video.v1 import events_pb2
from postroad.cli import main
from postroad.codec.compat import check
from postroad.codec.flat import flattened
from tests.support.components import ROOT

PROTOS = ROOT / "examples" / "catalog" / "protos"

APP = """
import dataclasses

import msgspec
import pydantic

from examples.catalog.protos.video.v1 import events_pb2 as v1
from postroad import Postroad, event

road = Postroad("schemas")


@event("struct.made", topic="a.b.events", aggregate="b")
class Made(msgspec.Struct):
    name: str


@event("data.made", topic="a.b.events", aggregate="b")
@dataclasses.dataclass
class Data:
    name: str


@event("model.made", topic="a.b.events", aggregate="b", schema_version=2)
class Model(pydantic.BaseModel):
    name: str


@event("anything.made", topic="a.b.events", aggregate="b")
class Anything(dict):
    pass


event("video.created", topic="a.b.events", aggregate="b", envelope=v1.Event)(v1.VideoCreated)
"""


def postroad(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="postroad")


def proto(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'syntax = "proto3";\npackage p;\n{body}\n', encoding="utf-8")
    return path


@pytest.mark.spec("P8")
def test_a_break_is_told_with_file_message_field_and_rule(tmp_path: Path) -> None:
    old = proto(tmp_path, "old.proto", "message M { string title = 1; int32 n = 2; }")
    new = proto(tmp_path, "new.proto", "message M { int32 n = 1; }")
    told = postroad("schema", "check", old, new, "--json")
    assert told.exit_code == 1
    assert json.loads(told.stdout) == {
        "compatible": False,
        "breaks": [
            {"file": "old.proto", "message": "p.M", "field": "n", "rule": "field-number-changed",
             "text": "n changed its number (2 → 1)"},
            {"file": "old.proto", "message": "p.M", "field": "title", "rule": "field-renamed",
             "text": "title changed its name (title → n)"},
            {"file": "old.proto", "message": "p.M", "field": "title", "rule": "field-type-changed",
             "text": "title changed its type (string → int32)"},
        ],
    }  # fmt: skip
    plain = postroad("schema", "check", old, new)
    assert plain.exit_code == 1
    assert "p.M      field-number-changed  n changed its number (2 → 1)" in plain.stdout
    assert plain.stderr == "error: 3 breaking changes: NEW may not follow OLD. Add a schema version instead.\n"


@pytest.mark.spec("P8")
def test_what_may_follow_is_told_too(tmp_path: Path) -> None:
    old = proto(tmp_path, "old.proto", "message M { string a = 1; }")
    new = proto(tmp_path, "new.proto", "message M { string a = 1; optional string b = 2; }")
    told = postroad("schema", "check", old, new)
    assert (told.exit_code, told.stdout) == (0, "compatible\n")
    assert json.loads(postroad("schema", "check", old, new, "--json").stdout) == {"compatible": True, "breaks": []}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("broken.proto", "fine.proto", "broken.proto:3:9: Expected message name"),
        ("fine.proto", "lone.proto", "cannot be compiled: other/place.proto: File not found"),
        ("broken.json", "fine.json", "broken.json is no JSON"),
        ("list.json", "fine.json", "it is a list, not an object"),
        ("odd.json", "odd.json", "a keyword has a value of the wrong kind"),
        ("broken.binpb", "broken.binpb", "no set of protobuf descriptors"),
        ("fine.proto", "fine.json", "different kinds"),
        ("fine.json", "text.txt", "text.txt is no schema"),
        ("empty", "empty", "has no schema in it"),
        ("fine.json", "empty", "one is a folder"),
        ("missing.json", "fine.json", "does not exist"),
    ],
)
def test_what_cannot_be_compared_is_no_answer(tmp_path: Path, old: str, new: str, told: str) -> None:
    proto(tmp_path, "fine.proto", "message M {}")
    proto(tmp_path, "broken.proto", "message {")
    proto(tmp_path, "lone.proto", 'import "other/place.proto";')
    (tmp_path / "empty").mkdir()
    files = {"fine": "{}", "broken": "{", "list": "[]", "odd": '{"properties": [], "required": 5}'}
    for name, text in files.items():
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    (tmp_path / "broken.binpb").write_bytes(b"\xff")
    (tmp_path / "text.txt").write_text("", encoding="utf-8")
    ended = postroad("schema", "check", tmp_path / old, tmp_path / new)
    assert ended.exit_code == 2
    assert told in ended.stderr


def test_imports_are_found_where_they_are_said_to_be(tmp_path: Path) -> None:
    common = tmp_path / "common"
    proto(common, "shared/kind.proto", "message Kind {}")
    old = proto(tmp_path, "old/m.proto", 'import "shared/kind.proto"; message M { Kind kind = 1; }')
    new = proto(tmp_path, "new/m.proto", 'import "shared/kind.proto"; message M {}')
    ended = postroad("schema", "check", "-I", common, old, new)
    assert ended.exit_code == 1
    assert "kind was removed" in ended.stdout


def test_a_message_may_move_to_another_file(tmp_path: Path) -> None:
    proto(tmp_path / "old", "a.proto", "message M {} message N {}")
    proto(tmp_path / "new", "a.proto", "message M {}")
    proto(tmp_path / "new", "b.proto", "message N {}")
    assert check(tmp_path / "old", tmp_path / "new") == []


def test_without_a_compiler_the_pip_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.codec.compat.schemas.find_spec", lambda name: None)
    old = proto(tmp_path, "old.proto", "message M {}")
    ended = postroad("schema", "check", old, old)
    assert ended.exit_code == 2
    assert "Run: pip install grpcio-tools" in ended.stderr


def exported(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Of the application in this folder, in a process of its own."""
    code = "from postroad.cli import main; main()"
    command = [sys.executable, "-c", code, "schema", "export", "schemas_app:road", *options]
    paths = f"{folder}:{ROOT}:{ROOT / 'src'}"
    return subprocess.run(command, cwd=folder, env={"PYTHONPATH": paths}, capture_output=True, text=True, check=False)


@pytest.mark.spec("F8")
def test_what_is_exported_for_pubsub_is_a_file_for_each_topic_with_protobuf(tmp_path: Path) -> None:
    (tmp_path / "schemas_app.py").write_text(APP, encoding="utf-8")
    ran = exported(tmp_path, "--pubsub", "--out", "registry")
    assert ran.returncode == 0, ran.stderr
    (file,) = (tmp_path / "registry").iterdir()
    assert (file.name, file.read_text(encoding="utf-8")) == ("a.b.events.proto", flattened(events_pb2.Event))


@pytest.mark.spec("F8")
def test_a_topic_whose_events_travel_in_several_messages_has_no_schema_for_pubsub(tmp_path: Path) -> None:
    bare = 'event("video.updated", topic="a.b.events", aggregate="b")(v1.VideoUpdated)\n'
    (tmp_path / "schemas_app.py").write_text(APP + bare, encoding="utf-8")
    ran = exported(tmp_path, "--pubsub", "--out", "registry")
    assert ran.returncode == 1
    assert "The events of a.b.events travel in video.v1.Event and video.v1.VideoUpdated" in ran.stderr
    assert "one envelope" in ran.stderr


@pytest.mark.spec("P8")
def test_what_is_exported_can_be_compared(tmp_path: Path) -> None:
    (tmp_path / "schemas_app.py").write_text(APP, encoding="utf-8")

    def export(folder: str) -> list[str]:
        ran = exported(tmp_path, "--out", folder, "--json")
        assert ran.returncode == 0, ran.stderr
        return list(json.loads(ran.stdout)["files"])

    assert sorted(export("first")) == [
        "anything.made.v1.json", "data.made.v1.json", "model.made.v2.json", "struct.made.v1.json",
        "video.created.v1.binpb",
    ]  # fmt: skip
    export("second")
    assert check(tmp_path / "first", tmp_path / "second") == []
    for name in ("struct.made.v1.json", "model.made.v2.json", "data.made.v1.json"):
        changed = (tmp_path / "second" / name).read_text(encoding="utf-8").replace("string", "integer")
        (tmp_path / "second" / name).write_text(changed, encoding="utf-8")
    found = check(tmp_path / "first", tmp_path / "second")
    assert [(one.message, one.field, one.rule) for one in found] == [
        ("Data", "name", "field-type-changed"),
        ("Model", "name", "field-type-changed"),
        ("Made", "name", "field-type-changed"),
    ]
    descriptors = tmp_path / "first" / "video.created.v1.binpb"
    assert check(descriptors, PROTOS / "video" / "v1" / "events.proto") == []


@pytest.mark.spec("P7")
def test_the_generated_code_is_what_the_proto_files_give(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "protos", tmp_path], check=True)
    made = {path.relative_to(tmp_path): path for path in _generated(tmp_path)}
    kept = {path.relative_to(PROTOS): path for path in _generated(PROTOS)}
    assert made.keys() == kept.keys()
    assert len(made) == 7
    for name, path in made.items():
        assert _lines(path) == _lines(kept[name]), f"{name} is not up to date. Run: make protos"


def _generated(folder: Path) -> list[Path]:
    return [*folder.rglob("*_pb2.py*"), *folder.rglob("*_pb2_grpc.py")]


def _lines(path: Path) -> list[str]:
    """Without those that name the release of the generator."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        line
        for line in lines
        if not line.startswith(("# Protobuf Python Version", "GRPC_GENERATED_VERSION"))
        and line.strip(" ,").isdecimal() is False
    ]
