"""Calls on files by descriptor, and what stands in for those that Windows or macOS lack."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_fcntl: Any
try:
    import fcntl as _fcntl
except ImportError:  # Windows
    _fcntl = None
# On macOS `fsync` leaves data in the cache of the drive; this call brings it to the medium.
_FULL_SYNC = getattr(_fcntl, "F_FULLFSYNC", None)

_BINARY = getattr(os, "O_BINARY", 0)
"""Windows changes the ends of lines without it."""
_BLOCK_BYTES = 4096
_seeking = threading.Lock()
"""Held where reading or writing at a position takes two calls."""


def open_file(path: Path, *, write: bool = False, create: bool = False) -> int:
    """A descriptor of a file, to read or to change it."""
    flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0) | _BINARY
    return os.open(path, flags, 0o644)


def private_folder(folder: Path) -> bool:
    """Make a folder, if it is not there, that only its owner may enter; whether nobody else may enter it now."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        return not others_may_use(folder)
    return True


def others_may_use(path: Path) -> bool:
    """Whether other users of this machine may read a file, or enter a folder, that is there. Windows does not tell."""
    try:
        return os.name == "posix" and bool(path.stat().st_mode & 0o077)
    except OSError:
        return False


def sync_data(fd: int) -> None:
    """Return when what was written to a file is on the disk."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        _sync_all(fd)


def _sync_all(fd: int) -> None:
    if _FULL_SYNC is not None:
        with suppress(OSError):  # network drives do not know it
            _fcntl.fcntl(fd, _FULL_SYNC)
            return
    os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folders; its file system has a journal of names
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_at(fd: int, size: int, position: int) -> bytes:
    """Some bytes of a file, fewer at its end."""
    if hasattr(os, "pread"):
        return os.pread(fd, size, position)
    with _seeking:
        os.lseek(fd, position, os.SEEK_SET)
        return os.read(fd, size)


def write_at(fd: int, data: bytes | memoryview, position: int) -> int:
    """Write at a position; returns how many bytes were written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, data, position)
    with _seeking:
        os.lseek(fd, position, os.SEEK_SET)
        return os.write(fd, data)


def reserve_blocks(fd: int, start: int, size: int) -> None:
    """Have blocks on the disk for a range that nobody writes to at the moment; OSError when there are none."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, size)
        return
    # A byte written in a block allocates it. Where the byte is not zero the block is there already.
    for position in range(start, start + size, _BLOCK_BYTES):
        if read_at(fd, 1, position) in (b"", b"\0"):
            write_at(fd, b"\0", position)


def read_ahead(fd: int, start: int, size: int) -> None:
    """Tell the system that a range is needed soon; a hint."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, start, size, os.POSIX_FADV_WILLNEED)


def data_ranges(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a range that have blocks on the disk; all of it where the system does not tell."""
    if not hasattr(os, "SEEK_DATA"):
        yield start, end
        return
    position = start
    while position < end:
        try:
            first = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        position = min(os.lseek(fd, first, os.SEEK_HOLE), end)
        if first < position:
            yield first, position


def disk_space(path: Path) -> tuple[int, int]:
    """Bytes that programs may use of a disk, without those reserved for root, and bytes that are free."""
    if not hasattr(os, "statvfs"):
        total, _, free = shutil.disk_usage(path)
        return total, free
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    return (used + found.f_bavail) * found.f_frsize, found.f_bavail * found.f_frsize


def others_may_read(status: os.stat_result) -> bool:
    """Whether the bits of a file let others read or change it; Windows has rights of another kind, and no such bits."""
    return os.name == "posix" and bool(stat.S_IMODE(status.st_mode) & 0o077)


def belongs_to_another(status: os.stat_result) -> bool:
    """Whether a file is another user's; Windows does not number its users, and keeps others out of their folders itself."""
    return hasattr(os, "getuid") and status.st_uid != os.getuid()


def own_user() -> str:
    """What tells the users of this machine apart, fit for the name of a file."""
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")


def configuration_folder(environment: Mapping[str, str]) -> Path:
    """Where programs of this user keep their settings."""
    if sys.platform == "win32" and (roaming := environment.get("APPDATA")):
        return Path(roaming)
    return Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or Path.home()) / ".config")


@contextmanager
def shared_lock(path: Path) -> Iterator[None]:
    """Together with others that share the lock file, while nobody has it alone. Nothing happens where locks are missing."""
    with _locked(path, alone=False, wait=True):
        yield


@contextmanager
def sole_lock(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Alone with the lock file; without `wait` BlockingIOError when others have it."""
    with _locked(path, alone=True, wait=wait):
        yield


@contextmanager
def _locked(path: Path, *, alone: bool, wait: bool) -> Iterator[None]:
    with path.open("ab") as file:
        if _fcntl is not None:
            kind = _fcntl.LOCK_EX if alone else _fcntl.LOCK_SH
            _fcntl.flock(file, kind if wait else kind | _fcntl.LOCK_NB)
        yield
