"""Disks for tests: one in memory that can lose power, and one whose calls fail on demand.

disk = MemoryDisk()
store = MessageStore(Path("/data"), config, host, disk=disk)
...
after = disk.crash(seed=7)      # what a machine would find after a power failure
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import StoreError, StoreInUse
from rocketline.files import ANYBODY, backup_of
from rocketline.store.files.disk import DirEntry, Disk, DiskUsage, FolderLock, MappedFile, store_error
from rocketline.store.files.file_system import FileSystem

SECTOR_BYTES = 512


class _FileContent:
    """A file: the content that programs see, and the content that survives a power failure (None: not even its name)."""

    def __init__(self, cached: bytearray, durable: bytearray | None, clock: Clock) -> None:
        self.cached = cached
        self.durable = durable
        self.written_end = 0
        """End of what was written; `sync` copies only up to here."""
        self.modified_ms = clock.now_ms()
        self._clock = clock

    def reserve(self, end: int) -> None:
        self.written_end = max(self.written_end, end)
        self.modified_ms = self._clock.now_ms()

    def sync(self) -> None:
        end = self.written_end
        if self.durable is None:
            self.durable = bytearray(len(self.cached))
        elif len(self.durable) < len(self.cached):
            self.durable.extend(bytes(len(self.cached) - len(self.durable)))
        cached = memoryview(self.cached)[:end]
        if memoryview(self.durable)[:end] != cached:
            # A write to mapped memory is not noticed when it happens, only by the next sync.
            self.modified_ms = self._clock.now_ms()
            self.durable[:end] = cached


class MemoryMappedFile:
    def __init__(self, path: Path, size: int, content: _FileContent) -> None:
        self.path = path
        self.size = size
        self.buffer = memoryview(content.cached)
        self.is_new = False
        self._content = content

    def reserve(self, start: int, end: int) -> None:
        self._content.reserve(end)

    def warm(self, start: int, end: int, at_once: bool = False) -> None:
        pass

    def write(self, position: int, data: memoryview) -> None:
        self.buffer[position : position + len(data)] = data

    def forget(self, start: int, end: int) -> None:
        pass

    def erase(self, start: int, end: int) -> None:
        end = min(end, self._content.written_end)
        if start < end:
            self.buffer[start:end] = bytes(end - start)
            self._content.sync()

    def sync(self) -> None:
        self._content.sync()

    def close(self) -> None:
        self.buffer.release()


class MemoryDisk:
    """Files in memory, each with its cached and its durable content; the clock says when they were changed."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.total_bytes = 1 << 40
        self.used_elsewhere = 0
        """Bytes used by other programs; tests set this, and `total_bytes`, to fill the disk."""
        self._clock = clock
        self._files: dict[Path, _FileContent] = {}
        self._folders: set[Path] = set()
        self._locked: set[Path] = set()

    def crash(self, seed: int | None = None) -> MemoryDisk:
        """The disk after a power failure: the durable content, and with a seed also some sectors written later.

        Files that were never synced are gone; with a seed some of them exist, with some of their sectors or empty.
        """
        random = Random(seed)
        after = MemoryDisk(self._clock)
        after.total_bytes, after.used_elsewhere = self.total_bytes, self.used_elsewhere
        after._folders = set(self._folders)
        for path, content in list(self._files.items()):
            survived = _after_power_cut(content, random) if seed is not None else content.durable
            if survived is not None:
                kept = after._files[path] = _FileContent(bytearray(survived), bytearray(survived), self._clock)
                kept.written_end = min(content.written_end, len(survived))
                kept.modified_ms = content.modified_ms
        return after

    def after_kill(self) -> MemoryDisk:
        """The disk after its process was killed: all written bytes are there, no lock is held, and the old process
        cannot write."""
        after = self.crash()
        for path, content in list(self._files.items()):
            kept = _FileContent(bytearray(content.cached), content.durable and bytearray(content.durable), self._clock)
            kept.written_end, kept.modified_ms = content.written_end, content.modified_ms
            after._files[path] = kept
        return after

    def open_mapped(self, path: Path, size: int, pinned: bool = False, scattered: bool = False) -> MappedFile:
        self._require_folder(path)
        content = self._files.get(path)
        if content is None:
            content = self._files[path] = _FileContent(bytearray(size), None, self._clock)
        present = len(content.cached)
        if present > size:
            raise StoreError(f"{path} has {present} bytes, more than the {size} it should have")
        if present < size:
            content.cached = content.cached + bytes(size - present)
        content.written_end = max(content.written_end, present)
        return MemoryMappedFile(path, size, content)

    def sync(self, path: Path) -> None:
        content = self._files.get(path)
        if content is None:
            raise store_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), "flush", path)
        content.sync()

    def sync_folder(self, folder: Path) -> None:
        pass

    def list(self, folder: Path) -> list[DirEntry]:
        found, known = list(self._files.items()), list(self._folders)
        files = [DirEntry(path.name, len(c.cached), False) for path, c in found if path.parent == folder]
        folders = [DirEntry(path.name, 0, True) for path in known if path.parent == folder and path != folder]
        return sorted(files + folders)

    def read(self, path: Path) -> bytes | None:
        content = self._files.get(path)
        return bytes(content.cached) if content is not None else None

    def read_range(self, path: Path, start: int, size: int) -> bytes:
        content = self._files.get(path)
        if content is None:
            raise store_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), "read", path)
        return bytes(content.cached[start : start + size])

    def write_atomic(self, path: Path, data: bytes, keep_backup: bool = False, mode: int = ANYBODY) -> None:
        self._require_folder(path)
        former = self._files.get(path)
        if keep_backup and former is not None:
            self._files[backup_of(path)] = former
        self._files[path] = _FileContent(bytearray(data), bytearray(data), self._clock)

    def remove(self, path: Path, durably: bool = False) -> None:
        self._files.pop(path, None)

    def remove_tree(self, folder: Path) -> None:
        # Changed in place, here and below: other threads create and remove files at the same time.
        for path in list(self._folders):
            if folder in (path, *path.parents):
                self._folders.discard(path)
        for path in list(self._files):
            if folder in path.parents:
                self._files.pop(path, None)

    def move_folder(self, source: Path, target: Path, durably: bool = True) -> None:
        if source not in self._folders or target in self._folders:
            code = errno.ENOENT if source not in self._folders else errno.ENOTEMPTY
            raise store_error(OSError(code, os.strerror(code)), "rename", source)
        for path in list(self._folders):
            if path.is_relative_to(source):
                self._folders.discard(path)
                self._folders.add(target / path.relative_to(source))
        for path in list(self._files):
            if path.is_relative_to(source):
                self._files[target / path.relative_to(source)] = self._files.pop(path)

    def make_folder(self, folder: Path, durably: bool = True) -> tuple[Path, ...]:
        self._folders.update((folder, *folder.parents))
        return ()

    def exists(self, path: Path) -> bool:
        return path in self._files or path in self._folders

    def lock(self, path: Path) -> FolderLock:
        if path in self._locked:
            raise StoreInUse(f"{path.parent} is already open in this process")
        self.write_atomic(path, b"lock")
        self._locked.add(path)
        return _MemoryLock(self._locked, path)

    def modified_ms(self, path: Path) -> int:
        content = self._files.get(path)
        if content is None:
            raise store_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), "look at", path)
        return content.modified_ms

    def usage(self, path: Path) -> DiskUsage:
        used = self.used_elsewhere + sum(content.written_end for content in list(self._files.values()))
        return DiskUsage(self.total_bytes, max(0, self.total_bytes - used))

    def file_system(self, folder: Path) -> FileSystem | None:
        return _MemoryFileSystem(self._files)

    def _require_folder(self, path: Path) -> None:
        if path.parent not in self._folders:
            raise store_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), "open", path)


class _MemoryFileSystem:
    def __init__(self, files: dict[Path, _FileContent]) -> None:
        self._files = files

    def sync(self) -> bool:
        for content in list(self._files.values()):
            content.sync()
        return True

    def close(self) -> None:
        pass


class _MemoryLock:
    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


def _after_power_cut(content: _FileContent, random: Random) -> bytearray | None:
    """The durable content with some of the sectors written since the last sync; None when the file is gone."""
    durable = content.durable
    if durable is None:
        fate = random.randrange(3)
        if fate == 0:
            return None
        if fate == 1:
            return bytearray()
        durable = bytearray(len(content.cached))
    survived = durable + bytes(max(0, len(content.cached) - len(durable)))
    kept_share = random.choice((0.0, 0.5, 0.9, 1.0))
    for start in range(0, content.written_end, SECTOR_BYTES):
        end = min(start + SECTOR_BYTES, content.written_end)
        if survived[start:end] != content.cached[start:end] and random.random() < kept_share:
            survived[start:end] = content.cached[start:end]
    return survived


class FaultyDisk:
    """A disk around another one whose calls fail on demand: the nth `sync`, `reserve`, `write`, `open` or `remove`."""

    def __init__(self, inner: Disk) -> None:
        self._inner = inner
        self._faults: list[_Fault] = []

    def fail(
        self, operation: str, code: int = errno.EIO, *, nth: int = 1, part: str = "", forever: bool = False
    ) -> None:
        """Let the nth such operation on paths that contain `part` fail, counted from now; once, or for ever from then on."""
        self._faults.append(_Fault(operation, code, nth, part, forever))

    def heal(self) -> None:
        self._faults.clear()

    def check(self, operation: str, path: Path) -> None:
        for fault in self._faults:
            if fault.strikes(operation, path):
                raise store_error(OSError(fault.code, os.strerror(fault.code)), operation, path)

    def open_mapped(self, path: Path, size: int, pinned: bool = False, scattered: bool = False) -> MappedFile:
        self.check("open", path)
        return _FaultyFile(self, self._inner.open_mapped(path, size, pinned, scattered))

    def sync(self, path: Path) -> None:
        self.check("sync", path)
        self._inner.sync(path)

    def list(self, folder: Path) -> list[DirEntry]:
        return self._inner.list(folder)

    def sync_folder(self, folder: Path) -> None:
        self.check("sync", folder)
        self._inner.sync_folder(folder)

    def read(self, path: Path) -> bytes | None:
        self.check("read", path)
        return self._inner.read(path)

    def read_range(self, path: Path, start: int, size: int) -> bytes:
        self.check("read", path)
        return self._inner.read_range(path, start, size)

    def write_atomic(self, path: Path, data: bytes, keep_backup: bool = False, mode: int = ANYBODY) -> None:
        self.check("write", path)
        self._inner.write_atomic(path, data, keep_backup, mode)

    def remove(self, path: Path, durably: bool = False) -> None:
        self.check("remove", path)
        self._inner.remove(path, durably)

    def remove_tree(self, folder: Path) -> None:
        self.check("remove_tree", folder)
        self._inner.remove_tree(folder)

    def move_folder(self, source: Path, target: Path, durably: bool = True) -> None:
        self.check("rename", source)
        self._inner.move_folder(source, target, durably)

    def make_folder(self, folder: Path, durably: bool = True) -> tuple[Path, ...]:
        self.check("make_folder", folder)
        return self._inner.make_folder(folder, durably)

    def exists(self, path: Path) -> bool:
        return self._inner.exists(path)

    def lock(self, path: Path) -> FolderLock:
        return self._inner.lock(path)

    def modified_ms(self, path: Path) -> int:
        self.check("modified_ms", path)
        return self._inner.modified_ms(path)

    def usage(self, path: Path) -> DiskUsage:
        self.check("usage", path)
        return self._inner.usage(path)

    def file_system(self, folder: Path) -> FileSystem | None:
        inner = self._inner.file_system(folder)
        return None if inner is None else _FaultyFileSystem(self, inner, folder)


class _Fault:
    def __init__(self, operation: str, code: int, nth: int, part: str, forever: bool) -> None:
        self.code = code
        self._operation = operation
        self._left = nth
        self._part = part
        self._forever = forever

    def strikes(self, operation: str, path: Path) -> bool:
        if operation != self._operation or self._part not in str(path):
            return False
        self._left -= 1
        return self._left == 0 or (self._forever and self._left < 0)


class _FaultyFileSystem:
    def __init__(self, disk: FaultyDisk, inner: FileSystem, folder: Path) -> None:
        self._disk = disk
        self._inner = inner
        self._folder = folder

    def sync(self) -> bool:
        try:
            self._disk.check("sync_file_system", self._folder)
        except StoreError:
            return False
        return self._inner.sync()

    def close(self) -> None:
        self._inner.close()


class _FaultyFile:
    def __init__(self, disk: FaultyDisk, inner: MappedFile) -> None:
        self.path = inner.path
        self.size = inner.size
        self.buffer = inner.buffer
        self.is_new = inner.is_new
        self._disk = disk
        self._inner = inner

    def reserve(self, start: int, end: int) -> None:
        self._disk.check("reserve", self.path)
        self._inner.reserve(start, end)

    def warm(self, start: int, end: int, at_once: bool = False) -> None:
        self._inner.warm(start, end, at_once)

    def write(self, position: int, data: memoryview) -> None:
        self._disk.check("write", self.path)
        self._inner.write(position, data)

    def forget(self, start: int, end: int) -> None:
        self._inner.forget(start, end)

    def erase(self, start: int, end: int) -> None:
        self._inner.erase(start, end)

    def sync(self) -> None:
        self._disk.check("sync", self.path)
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()
