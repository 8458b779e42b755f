"""The disk as the store sees it: mapped files, small files replaced as a whole, folders and a lock.

`Disk` is a seam. `RealDisk` is the operating system; `rocketline.testing.disks` has one in memory that can lose power and
one that fails on demand. Rules every implementation keeps:

- A mapped file has its full size from the start but no blocks. Bytes may be written through the map only inside a range that
  was reserved before, so a full disk is a `DiskFull` error and never a SIGBUS in the middle of a write.
- What was written is durable after `sync` returns, not earlier. After a failed `sync` nothing is known any more.
- Closing never fails because a slice of the map is still on its way to a socket: the map goes away with its last slice.
- Every failure is a `StoreError` that names what was tried, the path and the reason.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from rocketline.errors import DiskFull, StoreError, StoreInUse
from rocketline.files import backup_of, replace_file, sync_folder
from rocketline.store.mapping import FileMap
from rocketline.store.whole_disk import WholeDisk, open_whole_disk

T = TypeVar("T")

PAGE_BYTES = 4096
MADV_POPULATE_WRITE = 23
_ZEROS = bytes(1 << 20)
_FLOCK = struct.Struct("hhqqi4x")
"""The kernel's `struct flock` on 64-bit Linux: type, whence, start, length, process."""

log = logging.getLogger(__name__)


class DirEntry(NamedTuple):
    name: str
    size: int
    is_folder: bool


class DiskUsage(NamedTuple):
    total_bytes: int
    """What programs may use of the disk: without the blocks kept for the administrator, as `df` counts."""
    free_bytes: int

    @property
    def used_bytes(self) -> int:
        return self.total_bytes - self.free_bytes

    @property
    def used_percent(self) -> float:
        return self.used_bytes * 100 / self.total_bytes if self.total_bytes else 0.0

    def is_above(self, percent: int) -> bool:
        return self.used_bytes * 100 > percent * self.total_bytes


class FolderLock(Protocol):
    def release(self) -> None: ...


class MappedFile(Protocol):
    """One file of fixed size, seen as memory."""

    path: Path
    size: int
    buffer: memoryview
    is_new: bool
    """Whether its name may not be durable yet; a sync makes it so."""

    def reserve(self, start: int, end: int) -> None:
        """Make blocks for a range nobody writes to yet; DiskFull when there are none."""

    def warm(self, start: int, end: int) -> None:
        """Fault the pages of a reserved range in, so that writing there does not stall."""

    def write(self, position: int, data: memoryview) -> None:
        """Write into a reserved range, not through the map, which shows it afterwards; may be called from any thread."""

    def forget(self, start: int, end: int) -> None:
        """Let go of the memory of a range, which can still be read; any thread, also after `close`."""

    def erase(self, start: int, end: int) -> None:
        """Make a range read as zeros again, durably, without giving blocks to its holes."""

    def sync(self) -> None:
        """Return when everything written so far is on the disk; may be called from any thread, also after `close`."""

    def close(self) -> None: ...


class Disk(Protocol):
    def open_mapped(self, path: Path, size: int, pinned: bool = False, scattered: bool = False) -> MappedFile:
        """Map a file, made or extended to `size` as needed.

        A pinned file keeps a descriptor of its own, so that a sync works even when the process has run out of them. A
        scattered one is used here and there: touching a page must not bring megabytes of its neighbours into memory.
        """

    def sync(self, path: Path) -> None:
        """As `MappedFile.sync`, for a file that may not be mapped at the moment."""

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable."""

    def list(self, folder: Path) -> list[DirEntry]:
        """Entries sorted by name; empty when the folder does not exist."""

    def read(self, path: Path) -> bytes | None:
        """The whole file, or None when it does not exist."""

    def read_range(self, path: Path, start: int, size: int) -> bytes:
        """Some bytes of a file, fewer at its end; cheaper than mapping it for a look."""

    def write_atomic(self, path: Path, data: bytes, keep_backup: bool = False) -> None:
        """Replace a file as a whole, durably; its former content becomes `.bak` when asked for."""

    def remove(self, path: Path, durably: bool = False) -> None:
        """Remove a file, or do nothing when there is none; `durably`: no power failure brings it back."""

    def remove_tree(self, folder: Path) -> None: ...

    def move_folder(self, source: Path, target: Path, durably: bool = True) -> None:
        """Give a folder another name on the same disk; `durably`: together with the names of all files in it."""

    def make_folder(self, folder: Path, durably: bool = True) -> tuple[Path, ...]:
        """Make a folder and those above it; returns which ones still have to be flushed before their names last."""

    def exists(self, path: Path) -> bool: ...

    def lock(self, path: Path) -> FolderLock:
        """Take the lock file for this process; StoreInUse when somebody has it."""

    def modified_ms(self, path: Path) -> int:
        """When the content of a file was last changed; wall-clock time."""

    def usage(self, path: Path) -> DiskUsage: ...

    def whole(self, folder: Path) -> WholeDisk | None:
        """The disk a folder is on, to be flushed as a whole; None where only each file can be flushed reliably."""


def store_error(error: OSError, doing: str, path: Path) -> StoreError:
    """The store's own error for a failed system call."""
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
    return kind(f"cannot {doing} {path}: {error.strerror or error}")


@contextmanager
def explained(doing: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise store_error(error, doing, path) from error


def read_with_backup(disk: Disk, path: Path, parse: Callable[[bytes], T]) -> T | None:
    """A file kept by `write_atomic(keep_backup=True)`: parsed, from its backup when it is missing, empty or broken.

    None when there is nothing to read. `parse` raises ValueError for content it cannot accept. A backup that had to be used
    takes the file's place at once, so that it is used once and not each time until the next save, and so that the next save
    does not turn a useless file into the backup; the useless content stays beside it.
    """
    data, backup = disk.read(path), disk.read(backup_of(path))
    if not data and not backup:
        if data is not None or backup is not None:
            log.warning("%s and its backup are empty: starting without what was in them", path)
        return None
    problem = "is missing" if data is None else "is empty"
    if data:
        try:
            return parse(data)
        except ValueError as error:
            problem = f"cannot be used ({error})"
    try:
        if not backup:
            raise ValueError("there is none")
        parsed = parse(backup)
    except ValueError as error:
        raise StoreError(
            f"{path} {problem}, and its backup is missing or broken as well ({error}); bring back a copy of {path.name}, or "
            "remove both to start without what was in them"
        ) from error
    log.warning("%s %s: its backup is used, which lacks the last change", path, problem)
    if data:
        disk.write_atomic(damaged_copy_of(path), data)
    disk.write_atomic(path, backup)
    return parsed


def damaged_copy_of(path: Path) -> Path:
    """Where the content of a file is kept that could not be read."""
    return path.with_name(path.name + ".damaged")


class RealMappedFile:
    """A shared mapping of a file; a pinned one keeps its descriptor."""

    def __init__(self, path: Path, size: int, pinned: bool, scattered: bool) -> None:
        self.path = path
        self.size = size
        self._fd = -1
        with explained("open", path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with explained("size", path):
                self.is_new = _grow_file(fd, path, size)
            with explained("map", path):
                self._map: FileMap | None = FileMap(fd, size)
            if scattered:
                with suppress(OSError):
                    self._map.advise(mmap.MADV_RANDOM, 0, size)
        except BaseException:
            os.close(fd)
            raise
        self.buffer = self._map.buffer
        if pinned:
            self._fd = fd
        else:
            os.close(fd)

    @contextmanager
    def _descriptor(self, doing: str) -> Iterator[int]:
        with explained(doing, self.path):
            if self._fd >= 0:
                yield self._fd
                return
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                yield fd
            finally:
                os.close(fd)

    def reserve(self, start: int, end: int) -> None:
        if end <= start:
            return
        with self._descriptor("reserve space in") as fd:
            os.posix_fallocate(fd, start, end - start)

    def warm(self, start: int, end: int) -> None:
        if self._map is None:
            return
        # Kernels before 5.14 do not know the advice; then each page faults in when it is first written.
        with suppress(OSError):
            self._map.advise(MADV_POPULATE_WRITE, start, end)

    def write(self, position: int, data: memoryview) -> None:
        assert 0 <= position <= self.size - len(data)
        with self._descriptor("write to") as fd:
            while data:
                written = os.pwrite(fd, data, position)
                data = data[written:]
                position += written

    def forget(self, start: int, end: int) -> None:
        start = -(-start // PAGE_BYTES) * PAGE_BYTES
        end = end // PAGE_BYTES * PAGE_BYTES
        mapped = self._map
        if mapped is not None and start < end:
            with suppress(OSError):
                mapped.advise(mmap.MADV_DONTNEED, start, end)

    def erase(self, start: int, end: int) -> None:
        with self._descriptor("erase the end of") as fd:
            changed = [_zero(self.buffer, first, last) for first, last in _data_ranges(fd, start, end)]
            if True in changed:
                os.fdatasync(fd)

    def sync(self) -> None:
        with self._descriptor("flush") as fd:
            os.fdatasync(fd)
            if self.is_new:
                sync_folder(self.path.parent)
                self.is_new = False

    def close(self) -> None:
        mapped, self._map = self._map, None
        if mapped is None:
            return
        # A slice that is still being sent keeps the memory; it is unmapped with the last of them.
        self.buffer = mapped.buffer = memoryview(b"")
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _grow_file(fd: int, path: Path, size: int) -> bool:
    """Bring a file to its size; True when it was empty, so that its folder entry may not be durable yet."""
    present = os.fstat(fd).st_size
    if present > size:
        raise StoreError(f"{path} has {present} bytes, more than the {size} it should have")
    if present < size:
        os.ftruncate(fd, size)
    return present == 0


def _data_ranges(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
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


def _zero(buffer: memoryview, start: int, end: int) -> bool:
    """Write zeros where there are none yet; whether there was such a place. Untouched pages stay clean."""
    is_changed = False
    for position in range(start, end, len(_ZEROS)):
        piece = buffer[position : min(position + len(_ZEROS), end)]
        zeros = _ZEROS[: len(piece)]
        if piece != zeros:
            piece[:] = zeros
            is_changed = True
    return is_changed


def _dir_entry(item: os.DirEntry[str]) -> DirEntry | None:
    try:
        return DirEntry(item.name, item.stat().st_size, item.is_dir())
    except FileNotFoundError:
        _refuse_dangling(Path(item.path))
        return None  # deleted a moment ago


def _refuse_dangling(path: Path) -> None:
    """What a link to nowhere should lead to is not known to be absent: more likely its disk is not mounted."""
    if path.is_symlink():
        raise StoreError(
            f"{path} is a link to {os.readlink(path)}, which does not exist; mount what it is on, or remove the link"
        )


class RealDisk:
    """The operating system's files."""

    def open_mapped(self, path: Path, size: int, pinned: bool = False, scattered: bool = False) -> MappedFile:
        return RealMappedFile(path, size, pinned, scattered)

    def sync(self, path: Path) -> None:
        with explained("flush", path):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

    def sync_folder(self, folder: Path) -> None:
        with explained("flush", folder):
            sync_folder(folder)

    def list(self, folder: Path) -> list[DirEntry]:
        with explained("list", folder):
            try:
                found = os.scandir(folder)
            except FileNotFoundError:
                _refuse_dangling(folder)
                return []
            with found:
                return sorted(entry for item in found if (entry := _dir_entry(item)) is not None)

    def read(self, path: Path) -> bytes | None:
        with explained("read", path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def read_range(self, path: Path, start: int, size: int) -> bytes:
        with explained("read", path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(fd, size, start)
            finally:
                os.close(fd)

    def write_atomic(self, path: Path, data: bytes, keep_backup: bool = False) -> None:
        with explained("write", path):
            replace_file(path, data, keep_backup=keep_backup)
            sync_folder(path.parent)

    def remove(self, path: Path, durably: bool = False) -> None:
        with explained("remove", path):
            path.unlink(missing_ok=True)
            if durably:
                sync_folder(path.parent)

    def remove_tree(self, folder: Path) -> None:
        with explained("remove", folder), suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def move_folder(self, source: Path, target: Path, durably: bool = True) -> None:
        with explained("rename", source):
            for folder, _, _ in os.walk(source) if durably else ():
                sync_folder(Path(folder))
            os.rename(source, target)
            for parent in {source.parent, target.parent} if durably else ():
                sync_folder(parent)

    def make_folder(self, folder: Path, durably: bool = True) -> tuple[Path, ...]:
        with explained("create folder", folder):
            missing = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
            folder.mkdir(parents=True, exist_ok=True)
            # A file is only as durable as the names that lead to it.
            changed = tuple([path.parent for path in reversed(missing)])
            for parent in changed if durably else ():
                sync_folder(parent)
            return () if durably else changed

    def exists(self, path: Path) -> bool:
        return path.exists()

    def lock(self, path: Path) -> FolderLock:
        return _ProcessLock(path)

    def modified_ms(self, path: Path) -> int:
        with explained("look at", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def usage(self, path: Path) -> DiskUsage:
        with explained("measure", path):
            found = os.statvfs(path)
        used = found.f_blocks - found.f_bfree
        return DiskUsage((used + found.f_bavail) * found.f_frsize, found.f_bavail * found.f_frsize)

    whole = staticmethod(open_whole_disk)


def is_locked(path: Path) -> bool:
    """Whether some process, this one included, holds a store's lock file; nothing is changed by asking."""
    with explained("look at", path):
        return _ProcessLock.is_held(path)


class _ProcessLock:
    """Java's file lock: a POSIX record lock on the first byte, which Apache's broker respects and is kept out by.

    Such a lock belongs to the process and is lost when *any* descriptor of the file is closed, so a second attempt from this
    process must be refused before it opens the file.
    """

    _held: ClassVar[set[str]] = set()

    def __init__(self, path: Path) -> None:
        self._key = os.path.realpath(path)
        if self._key in self._held:
            raise StoreInUse(f"{path.parent} is already open in this process")
        with explained("open", path):
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
        with explained("write", path):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"lock", 0)

    @classmethod
    def is_held(cls, path: Path) -> bool:
        """Whether anybody has the lock. Opens the file only for reading, and not at all when it is our own."""
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
