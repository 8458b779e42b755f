"""Flushing a whole disk with one call, for when thousands of files are dirty and a flush of each would take seconds.

`syncfs` writes back everything of a file system. It is used only where it is as good as flushing each file: since Linux 5.8
it tells of pages that could not be written, for all that was written since the descriptor it is called on was opened, and
on file systems that keep their pages themselves (not overlays or networks). The descriptor is therefore opened before
anything is written. A failure may be that of another program's file: then each file has to be asked, as without this.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

TELLS_OF_ERRORS = (5, 8)
KINDS = frozenset({"ext4", "xfs"})
_MOUNTS = Path("/proc/self/mountinfo")
_LIBC = ctypes.CDLL(None, use_errno=True)


class FileSystem(Protocol):
    """Everything on the disk a folder is on."""

    def sync(self) -> bool:
        """Whether everything written so far, by anybody, is on the disk now; False: nothing is known. Any thread."""

    def close(self) -> None: ...


class RealFileSystem:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync(self) -> bool:
        try:
            syncfs(self._fd)
        except OSError as error:
            log.warning("flushing the disk of %s as a whole failed (%s): each file is flushed", self._folder, error)
            return False
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def syncfs(fd: int) -> None:
    """The system call; `os` does not have it."""
    if _LIBC.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def open_file_system(folder: Path) -> FileSystem | None:
    """None where flushing everything at once is no substitute for flushing each file."""
    if not hasattr(_LIBC, "syncfs") or _kernel() < TELLS_OF_ERRORS:
        return None
    with suppress(OSError, ValueError):
        if file_system_of(folder) in KINDS:
            return RealFileSystem(folder)
    return None


def _kernel() -> tuple[int, ...]:
    major, _, rest = platform.release().partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def file_system_of(folder: Path) -> str:
    """What kind of file system a folder is on; empty when the mounts do not say."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in _MOUNTS.read_text().splitlines():
        # id parent major:minor root mount-point options [tags] - kind source options
        fields, _, described = line.partition(" - ")
        if fields.split(" ", 3)[2] == wanted:
            return described.partition(" ")[0]
    return ""
