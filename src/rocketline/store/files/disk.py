"""The disk as the store sees it: mapped files, small files replaced as a whole, folders and a lock.

`Disk` is the interface. `RealDisk` is the operating system; `rocketline.testing.disks` has one in memory that can lose
power and one that fails on demand. Every implementation keeps the rules of mapped_file.py, and every failure is a
`StoreError` that names what was tried, the path and the reason.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from rocketline.errors import StoreError
from rocketline.files import ANYBODY, backup_of, replace_file
from rocketline.store.files.disk_errors import as_store_error, store_error
from rocketline.store.files.file_system import FileSystem, open_file_system
from rocketline.store.files.mapped_file import MappedFile, RealMappedFile
from rocketline.store.files.process_lock import ProcessLock, is_locked
from rocketline.system.files import disk_space, open_file, read_at, sync_data, sync_folder

__all__ = [
    "DirEntry",
    "Disk",
    "DiskUsage",
    "FolderLock",
    "MappedFile",
    "RealDisk",
    "as_store_error",
    "damaged_copy_of",
    "is_locked",
    "read_with_backup",
    "store_error",
]

T = TypeVar("T")

log = logging.getLogger(__name__)


class DirEntry(NamedTuple):
    """One entry of a folder."""

    name: str
    size: int
    is_folder: bool


class DiskUsage(NamedTuple):
    """Size and free space of a disk."""

    total_bytes: int
    """What programs may use of the disk, without the blocks reserved for root, as `df` counts."""
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
    """The lock of a store's folder, held by this process."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Everything the store does with files."""

    def open_mapped(self, path: Path, size: int, pinned: bool = False, scattered: bool = False) -> MappedFile:
        """Map a file; create it or extend it to `size` as needed.

        A pinned file keeps its own descriptor, so that a sync works even when the process has run out of them. A scattered
        file is used at random: reading a page must not bring megabytes of its neighbours into memory.
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
        """Some bytes of a file, fewer at its end; cheaper than mapping it."""

    def write_atomic(self, path: Path, data: bytes, keep_backup: bool = False, mode: int = ANYBODY) -> None:
        """Replace a file as a whole, durably; `keep_backup`: its former content becomes `.bak`.

        `mode` says who may read and write it, less the umask."""

    def remove(self, path: Path, durably: bool = False) -> None:
        """Remove a file, or do nothing when there is none; `durably`: it is not back after a power failure."""

    def remove_tree(self, folder: Path) -> None: ...

    def move_folder(self, source: Path, target: Path, durably: bool = True) -> None:
        """Rename a folder on the same disk; `durably`: with the names of all files in it."""

    def make_folder(self, folder: Path, durably: bool = True) -> tuple[Path, ...]:
        """Create a folder and its parents; returns the folders that must still be flushed to make the names durable."""

    def exists(self, path: Path) -> bool: ...

    def lock(self, path: Path) -> FolderLock:
        """Take the lock file for this process; StoreInUse when a process already has it."""

    def modified_ms(self, path: Path) -> int:
        """When the content of a file was last changed; wall-clock time."""

    def usage(self, path: Path) -> DiskUsage: ...

    def file_system(self, folder: Path) -> FileSystem | None:
        """The file system of a folder, to flush it as a whole; None where only single files can be flushed reliably."""


def read_with_backup(disk: Disk, path: Path, parse: Callable[[bytes], T]) -> T | None:
    """The parsed content of a file written with `keep_backup=True`; of its backup when it is missing, empty or broken.

    None when there is neither. `parse` raises ValueError for content it cannot accept. A backup that had to be used replaces
    the file at once: so it is used only once, and the next save does not make the broken file the backup. The broken
    content stays beside it.
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
    """The path where the broken content of a file is kept."""
    return path.with_name(path.name + ".damaged")


def _dir_entry(item: os.DirEntry[str]) -> DirEntry | None:
    try:
        return DirEntry(item.name, item.stat().st_size, item.is_dir())
    except FileNotFoundError:
        _refuse_dangling(Path(item.path))
        return None  # deleted a moment ago


def _refuse_dangling(path: Path) -> None:
    """Raise StoreError for a link whose target does not exist: more likely its disk is not mounted."""
    if path.is_symlink():
        raise StoreError(
            f"{path} is a link to {os.readlink(path)}, which does not exist; mount its disk, or remove the link"
        )


class RealDisk:
    """The operating system's files."""

    def open_mapped(self, path: Path, size: int, pinned: bool = False, scattered: bool = False) -> MappedFile:
        return RealMappedFile(path, size, pinned, scattered)

    def sync(self, path: Path) -> None:
        with as_store_error("flush", path):
            fd = open_file(path, write=True)
            try:
                sync_data(fd)
            finally:
                os.close(fd)

    def sync_folder(self, folder: Path) -> None:
        with as_store_error("flush", folder):
            sync_folder(folder)

    def list(self, folder: Path) -> list[DirEntry]:
        with as_store_error("list", folder):
            try:
                found = os.scandir(folder)
            except FileNotFoundError:
                _refuse_dangling(folder)
                return []
            with found:
                return sorted(entry for item in found if (entry := _dir_entry(item)) is not None)

    def read(self, path: Path) -> bytes | None:
        with as_store_error("read", path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def read_range(self, path: Path, start: int, size: int) -> bytes:
        with as_store_error("read", path):
            fd = open_file(path)
            try:
                return read_at(fd, size, start)
            finally:
                os.close(fd)

    def write_atomic(self, path: Path, data: bytes, keep_backup: bool = False, mode: int = ANYBODY) -> None:
        with as_store_error("write", path):
            replace_file(path, data, keep_backup=keep_backup, mode=mode)
            sync_folder(path.parent)

    def remove(self, path: Path, durably: bool = False) -> None:
        with as_store_error("remove", path):
            path.unlink(missing_ok=True)
            if durably:
                sync_folder(path.parent)

    def remove_tree(self, folder: Path) -> None:
        with as_store_error("remove", folder), suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def move_folder(self, source: Path, target: Path, durably: bool = True) -> None:
        with as_store_error("rename", source):
            for folder, _, _ in os.walk(source) if durably else ():
                sync_folder(Path(folder))
            os.rename(source, target)
            for parent in {source.parent, target.parent} if durably else ():
                sync_folder(parent)

    def make_folder(self, folder: Path, durably: bool = True) -> tuple[Path, ...]:
        with as_store_error("create folder", folder):
            missing = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
            folder.mkdir(parents=True, exist_ok=True)
            # A file is only as durable as the names of the folders above it.
            changed = tuple([path.parent for path in reversed(missing)])
            for parent in changed if durably else ():
                sync_folder(parent)
            return () if durably else changed

    def exists(self, path: Path) -> bool:
        return path.exists()

    def lock(self, path: Path) -> FolderLock:
        return ProcessLock(path)

    def modified_ms(self, path: Path) -> int:
        with as_store_error("look at", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def usage(self, path: Path) -> DiskUsage:
        with as_store_error("measure", path):
            return DiskUsage(*disk_space(path))

    file_system = staticmethod(open_file_system)
