"""Files that must be on a local disk: SQLite's locks and shared memory do not work over a network."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from postroad.operations.doctor.finding import Level, Problem

if TYPE_CHECKING:
    from postroad.app import Postroad

MOUNTS = Path("/proc/self/mountinfo")
_REMOTE: Final = re.compile(
    r"(nfs\d?|cifs|smb\w*|9p|afs|ceph|gfs2?|ocfs2|lustre|beegfs|virtiofs|vboxsf|davfs|fuse\.(?!fuseblk)\w+)"
)
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


async def local_disk(road: "Postroad") -> AsyncIterator[Problem]:
    for what, path in (("database", road.store.file), ("embedded broker", broker_file(road))):
        if path is not None and (kind := file_system(path.resolve())) and _REMOTE.fullmatch(kind):
            yield Problem(
                Level.FAULT,
                f"The file of the {what}, {path}, is on a network file system ({kind}), where SQLite's locks cannot be "
                "relied upon: two processes may write at once and destroy it.",
                "Move it to a local disk, or use a server.",
            )


def broker_file(road: "Postroad") -> Path | None:
    """Of the embedded broker; None for a broker that is a server, or in memory."""
    scheme, _, path = road.broker.address.partition(":")
    return Path(path) if scheme == "embedded" and path else None


def file_system(path: Path) -> str:
    """The kind of file system that the path is on, as the kernel calls it; empty where it does not tell."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    kind, deepest = "", -1
    for line in lines:
        place, _, source = line.partition(" - ")
        point = Path(_ESCAPE.sub(lambda code: chr(int(code[1], 8)), place.split()[4]))
        # The last one counts: what is mounted later on the same place hides what was there.
        if path.is_relative_to(point) and len(point.parts) >= deepest:
            kind, deepest = source.split()[0], len(point.parts)
    return kind
