"""Classes made of the text of .proto files, by protoc itself."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool


def described(folder: Path, **files: str) -> FileDescriptorSet:
    """`files` are by name, without the ending."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.proto").write_text(text, encoding="utf-8")
    target = folder / "set.binpb"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}", f"--descriptor_set_out={target}"]
    names = [f"{name}.proto" for name in files]
    subprocess.run([*command, "--include_imports", *names], check=True)
    return FileDescriptorSet.FromString(target.read_bytes())


def compiled(folder: Path, message: str, **files: str) -> Any:
    """The class of a message, in a world of its own."""
    pool = DescriptorPool()
    for file in described(folder, **files).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
