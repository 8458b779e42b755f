"""Flushing a whole file system with one call: with thousands of dirty files, flushing each would take seconds.

`syncfs` writes back everything of a file system. It is used only where it is as reliable as flushing each file: on Linux 5.8
and later, where it reports pages that could not be written since its descriptor was opened, and on file systems that
manage their own pages (no overlays, no network). So the descriptor is opened before anything is written. A failure may
belong to another program's file: then each file is flushed.
"""

from __future__ import annotations

import logging
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from rocketline.system.libc import LIBC, last_error

log = logging.getLogger(__name__)

REPORTS_ERRORS_SINCE = (5, 8)
"""First kernel version whose `syncfs` reports failed writes."""
KINDS = frozenset({"ext4", "xfs"})
_MOUNTS = Path("/proc/self/mountinfo")


class FileSystem(Protocol):
    """The file system of a folder."""

    def sync(self) -> bool:
        """Flush everything; True when all that was written so far is on the disk, False when that is unknown. Any thread."""

    def close(self) -> None: ...


class RealFileSystem:
    """A file system, flushed through a descriptor of one of its folders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def sync(self) -> bool:
        try:
            syncfs(self._fd)
        except OSError as error:
            log.warning("flushing the file system of %s failed (%s): each file is flushed instead", self._folder, error)
            return False
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def syncfs(fd: int) -> None:
    """The system call; `os` does not have it."""
    if LIBC is None or LIBC.syncfs(fd) != 0:
        raise last_error()


def open_file_system(folder: Path) -> FileSystem | None:
    """The file system of a folder; None where `syncfs` is not as reliable as flushing each file."""
    if not hasattr(LIBC, "syncfs") or _kernel() < REPORTS_ERRORS_SINCE:
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
    """The type of the file system of a folder; empty when the list of mounts does not have it."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in _MOUNTS.read_text().splitlines():
        # id parent major:minor root mount-point options [tags] - kind source options
        fields, _, described = line.partition(" - ")
        if fields.split(" ", 3)[2] == wanted:
            return described.partition(" ")[0]
    return ""
