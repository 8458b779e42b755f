"""One file of a chain: mapped on demand, reserved in steps as it fills."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from rocketline.store.files.disk import Disk, MappedFile
from rocketline.store.files.mapping import map_limit

SMALL_FILE_BYTES = 4 << 20
"""A file up to this size is reserved in one step."""


class Segment:
    """The bytes `base` to `base + size` of a chain. Owner thread only, except `sync`, `forget` and `write`."""

    __slots__ = (
        "_disk",
        "_file",
        "_has_new_name",
        "_pinned",
        "_pool",
        "base",
        "deleted",
        "path",
        "reserved",
        "size",
        "view",
    )

    def __init__(
        self, disk: Disk, path: Path, base: int, size: int, pinned: bool = False, pool: MapPool | None = None
    ) -> None:
        self.path = path
        self.base = base
        self.size = size
        self.reserved = 0
        self.deleted = False
        self.view: memoryview | None = None
        self._disk = disk
        self._pinned = pinned
        self._pool = pool
        self._file: MappedFile | None = None
        self._has_new_name = False

    @property
    def next_base(self) -> int:
        return self.base + self.size

    def open(self) -> memoryview:
        """The whole file as memory; maps it if needed."""
        view = self.view
        if view is None:
            self._file = self._disk.open_mapped(self.path, self.size, self._pinned, scattered=not self._pinned)
            self.view = view = self._file.buffer
            if self._pool is not None:
                self._pool.admit(self)
        return view

    def peek(self, position: int, size: int) -> bytes:
        """Some bytes, read without mapping the file."""
        return self._disk.read_range(self.path, position, size)

    def reserve(self, end: int, step: int) -> None:
        """Make sure that bytes up to `end` may be written; reserves `step` bytes at a time."""
        if end <= self.reserved:
            return
        if self.size > SMALL_FILE_BYTES:
            end = min(-(-end // step) * step, self.size)
        else:
            end = self.size
        self.open()
        assert self._file is not None
        self._file.reserve(self.reserved, end)
        self.reserved = end

    def warm(self, start: int, end: int, at_once: bool = False) -> None:
        file = self._file
        if file is not None:
            file.warm(start, end, at_once)

    def write(self, position: int, data: memoryview) -> None:
        """Write into a reserved range with a system call; does nothing when the file is deleted."""
        file = self._file
        if not self.deleted:
            assert file is not None
            file.write(position, data)

    def forget(self, start: int, end: int) -> None:
        file = self._file
        if file is not None:
            file.forget(start, end)

    def erase(self, position: int) -> None:
        """Make everything from `position` on read as zeros, durably, so that no later recovery reads it as data."""
        if position < self.size:
            self.open()
            assert self._file is not None
            self._file.erase(position, self.size)

    def sync(self) -> None:
        file = self._file
        if file is not None:
            file.sync()
        else:
            self._disk.sync(self.path)
        if self._has_new_name:
            self._disk.sync_folder(self.path.parent)
            self._has_new_name = False

    def note_synced(self) -> None:
        """Note that the file and its name were flushed together with the whole file system."""
        file = self._file
        if file is not None:
            file.is_new = False
        self._has_new_name = False

    def close(self) -> None:
        file, self._file, self.view = self._file, None, None
        if file is not None:
            # Unmapped before its first flush: that flush must make its name durable as well.
            self._has_new_name = self._has_new_name or file.is_new
            file.close()

    def abandon(self) -> None:
        """Close a file that is going to be removed; slices of it that are being sent stay valid."""
        self.deleted = True
        self.close()

    def delete(self) -> None:
        self.abandon()
        self._disk.remove(self.path)


class MapPool:
    """Limits how many segments are mapped at the same time, because the kernel does.

    First in, first out: a segment that is still in use is mapped again, which takes about ten microseconds.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit or map_limit() // 2
        self._mapped: deque[Segment] = deque()

    def admit(self, segment: Segment) -> None:
        """Add a segment that was just mapped; unmaps the oldest one if there are too many."""
        self._mapped.append(segment)
        if len(self._mapped) > self._limit:
            oldest = self._mapped.popleft()
            # A segment that was closed and mapped again is in the queue twice.
            if oldest is not segment:
                oldest.close()
