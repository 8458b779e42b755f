"""The lock file of a store's folder: one process at a time may open it, ours or Apache's broker."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import ClassVar

from rocketline.errors import StoreInUse
from rocketline.store.files.disk_errors import as_store_error, store_error

_FLOCK = struct.Struct("hhqqi4x")
"""The kernel's `struct flock` on 64-bit Linux: type, whence, start, length, process."""


def is_locked(path: Path) -> bool:
    """Whether a process, this one included, holds a store's lock file; changes nothing."""
    with as_store_error("look at", path):
        return ProcessLock.is_held(path)


class ProcessLock:
    """A POSIX record lock on the first byte, as Java takes it, so that Apache's broker and ours exclude each other.

    Such a lock belongs to the process and is lost when *any* descriptor of the file is closed, so a second attempt in this
    process is refused before it opens the file.
    """

    _held: ClassVar[set[str]] = set()

    def __init__(self, path: Path) -> None:
        self._key = os.path.realpath(path)
        if self._key in self._held:
            raise StoreInUse(f"{path.parent} is already open in this process")
        with as_store_error("open", path):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(path)
        except BaseException:
            os.close(self._fd)
            raise
        self._held.add(self._key)

    def _take(self, path: Path) -> None:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except (BlockingIOError, PermissionError) as error:
            raise StoreInUse(f"{path.parent} is in use by another process") from error
        except OSError as error:
            raise store_error(error, "lock", path) from error
        with as_store_error("write", path):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"lock", 0)

    @classmethod
    def is_held(cls, path: Path) -> bool:
        """Whether a process has the lock. Opens the file only for reading, and not at all when this process has it."""
        if os.path.realpath(path) in cls._held:
            return True
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, asked)
            return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
        finally:
            os.close(fd)

    def release(self) -> None:
        if self._key in self._held:
            self._held.discard(self._key)
            os.close(self._fd)
