"""A disk that can be full and have room again: a small tmpfs where we may mount one, else a limit on file sizes."""

import os
import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

_SIZE: Final = 1 << 30
_TRIES: Final = 20


class Disk(Protocol):
    method: str
    folder: Path
    surely_felt: bool
    """Every write fails, so there is no need to wait until somebody complains; nor could they, into their logs."""

    def fill(self, pids: Sequence[int]) -> None: ...
    def make_room(self, pids: Sequence[int]) -> None: ...
    def close(self) -> None: ...


class Tmpfs:
    """Its size is set to what is used: writes then fail with ENOSPC, in every process."""

    method = "tmpfs"
    surely_felt = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _mount("-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(folder))

    def fill(self, pids: Sequence[int]) -> None:
        for _ in range(_TRIES):
            state = os.statvfs(self.folder)
            try:
                return self._resize((state.f_blocks - state.f_bfree) * state.f_frsize)
            except OSError:
                pass  # something was written meanwhile, and a disk cannot be smaller than what is on it
        raise OSError("the tmpfs grows too fast to be filled")

    def make_room(self, pids: Sequence[int]) -> None:
        self._resize(_SIZE)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def _resize(self, size: int) -> None:
        _mount("-o", f"remount,size={size}", str(self.folder))


class FileSizeLimit:
    """RLIMIT_FSIZE: writes beyond the first pages of any file fail with EFBIG, in the processes that live now."""

    method = "RLIMIT_FSIZE"
    surely_felt = True
    limit = 4096

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, pids: Sequence[int]) -> None:
        self._limit(pids, self.limit)

    def make_room(self, pids: Sequence[int]) -> None:
        self._limit(pids, resource.RLIM_INFINITY)

    def close(self) -> None:
        return None

    def _limit(self, pids: Sequence[int], size: int) -> None:
        for pid in pids:
            try:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            except ProcessLookupError:
                pass  # killed meanwhile


def small_disk(folder: Path) -> Disk:
    folder.mkdir()
    try:
        return Tmpfs(folder)
    except (OSError, FileNotFoundError):
        return FileSizeLimit(folder)


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip())
