"""The lock file of a store's folder: one process at a time may open it, ours or Apache's broker."""

from __future__ import annotations

import os
import struct
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from rocketline.errors import StoreInUse
from rocketline.store.files.disk_errors import as_store_error, store_error
from rocketline.system.files import open_file, write_at

try:
    import fcntl
except ImportError:  # Windows
    msvcrt: Any = import_module("msvcrt")

    def _take_lock(fd: int) -> None:
        """Lock the first byte, or raise PermissionError when another process has it."""
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _is_taken(fd: int) -> bool:
        """Windows does not tell who has a lock: whether it can be taken, for a moment."""
        try:
            _take_lock(fd)
        except PermissionError:
            return True
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        return False

else:

    def _take_lock(fd: int) -> None:
        """Lock the first byte, or raise BlockingIOError or PermissionError when another process has it."""
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)

    def _is_taken(fd: int) -> bool:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, _flock(fcntl.F_WRLCK))
        return answer[_TYPE_AT : _TYPE_AT + 2] != _flock(fcntl.F_UNLCK)[_TYPE_AT : _TYPE_AT + 2]

    # The kernel's `struct flock`. Linux: type, whence, start, length, process. macOS: start, length, process, type, whence.
    if sys.platform == "darwin":
        _TYPE_AT = 20

        def _flock(kind: int) -> bytes:
            return struct.pack("qqihh", 0, 1, 0, kind, os.SEEK_SET)

    else:
        _TYPE_AT = 0

        def _flock(kind: int) -> bytes:
            return struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 1, 0)


def is_locked(path: Path) -> bool:
    """Whether a process, this one included, holds a store's lock file; changes nothing."""
    with as_store_error("look at", path):
        return ProcessLock.is_held(path)


class ProcessLock:
    """A lock on the first byte, as Java takes it, so that Apache's broker and ours exclude each other.

    A POSIX lock belongs to the process and is lost when *any* descriptor of the file is closed, so a second attempt in this
    process is refused before it opens the file.
    """

    _held: ClassVar[set[str]] = set()

    def __init__(self, path: Path) -> None:
        self._key = os.path.realpath(path)
        if self._key in self._held:
            raise StoreInUse(f"{path.parent} is already open in this process")
        with as_store_error("open", path):
            self._fd = open_file(path, write=True, create=True)
        try:
            self._take(path)
        except BaseException:
            os.close(self._fd)
            raise
        self._held.add(self._key)

    def _take(self, path: Path) -> None:
        try:
            _take_lock(self._fd)
        except (BlockingIOError, PermissionError) as error:
            raise StoreInUse(f"{path.parent} is in use by another process") from error
        except OSError as error:
            raise store_error(error, "lock", path) from error
        with as_store_error("write", path):
            os.ftruncate(self._fd, 0)
            write_at(self._fd, b"lock", 0)

    @classmethod
    def is_held(cls, path: Path) -> bool:
        """Whether a process has the lock. Opens the file only for reading, and not at all when this process has it."""
        if os.path.realpath(path) in cls._held:
            return True
        try:
            fd = open_file(path)
        except FileNotFoundError:
            return False
        try:
            return _is_taken(fd)
        finally:
            os.close(fd)

    def release(self) -> None:
        if self._key in self._held:
            self._held.discard(self._key)
            os.close(self._fd)
