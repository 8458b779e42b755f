"""A disk that only reads: nothing is created, locked or extended. Works on a read-only mount and on a store in use."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from rocketline.errors import StoreError
from rocketline.store.files.disk import DirEntry, DiskUsage, FolderLock, MappedFile, RealDisk, as_store_error
from rocketline.store.files.mapped_file import PAGE_BYTES
from rocketline.store.files.mapping import FORGET, RANDOM, advise
from rocketline.system.files import open_file


class ReadOnlyFile:
    """A mapping that cannot be written to."""

    def __init__(self, path: Path, size: int, scattered: bool) -> None:
        self.path = path
        self.size = size
        with as_store_error("open", path):
            fd = open_file(path)
        try:
            present = os.fstat(fd).st_size
            if present < size:
                raise StoreError(f"{path} has {present} bytes, {size} were expected")
            with as_store_error("map", path):
                self._map = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
                if scattered:
                    advise(self._map, RANDOM, 0, size)
        finally:
            os.close(fd)
        self.buffer = memoryview(self._map)
        self.is_new = False

    def forget(self, start: int, end: int) -> None:
        start = -(-start // PAGE_BYTES) * PAGE_BYTES
        end = end // PAGE_BYTES * PAGE_BYTES
        if start < end:
            with suppress(OSError, ValueError):
                advise(self._map, FORGET, start, end - start)

    def warm(self, start: int, end: int, at_once: bool = False) -> None:
        pass

    def reserve(self, start: int, end: int) -> None:
        _refuse(self.path)

    def erase(self, start: int, end: int) -> None:
        _refuse(self.path)

    def write(self, position: int, data: memoryview) -> None:
        _refuse(self.path)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        self.buffer.release()
        # A slice that is still in use keeps the map alive.
        with suppress(BufferError):
            self._map.close()


class ReadOnlyDisk:
    """The operating system's files, for reading only."""

    def __init__(self) -> None:
        self._real = RealDisk()

    def open_mapped(self, path: Path, size: int, pinned: bool = False, scattered: bool = False) -> MappedFile:
        return ReadOnlyFile(path, size, scattered)

    def sync_folder(self, folder: Path) -> None:
        pass

    def list(self, folder: Path) -> list[DirEntry]:
        return self._real.list(folder)

    def read(self, path: Path) -> bytes | None:
        return self._real.read(path)

    def read_range(self, path: Path, start: int, size: int) -> bytes:
        return self._real.read_range(path, start, size)

    def modified_ms(self, path: Path) -> int:
        return self._real.modified_ms(path)

    def exists(self, path: Path) -> bool:
        return self._real.exists(path)

    def usage(self, path: Path) -> DiskUsage:
        return self._real.usage(path)

    def sync(self, path: Path) -> None:
        pass

    def write_atomic(self, path: Path, data: bytes, keep_backup: bool = False, mode: int = 0) -> None:
        _refuse(path)

    def remove(self, path: Path, durably: bool = False) -> None:
        _refuse(path)

    def remove_tree(self, folder: Path) -> None:
        _refuse(folder)

    def move_folder(self, source: Path, target: Path, durably: bool = True) -> None:
        _refuse(target)

    def make_folder(self, folder: Path, durably: bool = True) -> tuple[Path, ...]:
        _refuse(folder)

    def lock(self, path: Path) -> FolderLock:
        _refuse(path)

    def file_system(self, folder: Path) -> None:
        return None


def _refuse(path: Path) -> NoReturn:
    raise StoreError(f"{path} cannot be changed: it was opened for reading only")
