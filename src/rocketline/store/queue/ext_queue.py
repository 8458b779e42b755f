"""Extended consume queues: what a unit of a consume queue has no room for.

    unit:  size 2   tags code 8   store time 8   bitmap size 2   filter bitmap (mostly none)

A consume queue that has one holds, where its tags code would be, the address of such a unit: its position in the chain of
files minus 2^63, which no tags code is. Rules:

- A unit never spans files. One that does not fit with four bytes to spare goes to the next file, and -1 marks the end.
- Everything here follows from the log. A unit that cannot be read costs a look at its record, never a message.
- A position that some consume queue may still point to is not used again. So the end is behind the newest unit listed, and
  when that one is lost, or the newest message has no extended unit, writing goes on in a new file.
- What comes after the end is zeros: Apache's broker walks from unit to unit at start and takes everything else for one.
- Units are flushed before the consume queue that points to them.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import NamedTuple

from rocketline.errors import StoreError
from rocketline.store.config import ExtQueueConfig
from rocketline.store.files.disk import Disk
from rocketline.store.files.segment import MapPool, Segment
from rocketline.store.files.segmented_file import SegmentedFile

ADDRESS_MIN = -(1 << 63)
ADDRESS_MAX = -(1 << 31) - 1
"""Tags codes up to this are addresses."""

HEAD = struct.Struct(">hqqh")
END_MARK = b"\xff\xff"
END_BYTES = 4
MAX_UNIT_BYTES = 0x7FFF
_RESERVE_BYTES = 64 << 10

log = logging.getLogger(__name__)


class ExtUnit(NamedTuple):
    tags_code: int
    store_ms: int
    bitmap: bytes


class ExtQueue:
    """The extended units of one queue. Owner thread only, except `flush`."""

    __slots__ = ("_limit", "_tail", "end", "file")

    def __init__(self, file: SegmentedFile) -> None:
        self.file = file
        last = file.last
        self.end = last.next_base if last else 0
        """Where the next unit goes."""
        file.flushed = self.end
        self._tail: Segment | None = None
        self._limit = 0

    def put(self, tags_code: int, store_ms: int, bitmap: bytes = b"") -> int:
        """Store a unit; returns its address. StoreError when there is no room for it."""
        size = HEAD.size + len(bitmap)
        if self.end + size > self._limit or size > MAX_UNIT_BYTES:
            self._make_room(size)
        tail = self._tail
        assert tail is not None
        view = tail.view
        if view is None:
            view = tail.open()
        position = self.end
        at = position - tail.base
        HEAD.pack_into(view, at, size, tags_code, store_ms, len(bitmap))
        if bitmap:
            view[at + HEAD.size : at + size] = bitmap
        self.end = position + size
        return ADDRESS_MIN + position

    def _make_room(self, size: int) -> None:
        segment_bytes = self.file.segment_bytes
        if size > min(MAX_UNIT_BYTES, segment_bytes - END_BYTES):
            raise StoreError(f"a unit of {size} bytes fits into no file of {self.file.folder}")
        if ADDRESS_MIN + self.end + segment_bytes > ADDRESS_MAX:
            raise StoreError(f"{self.file.folder} has come to its last address")
        left = segment_bytes - self.end % segment_bytes
        if left < size + END_BYTES:
            self._reserved(END_BYTES)[: len(END_MARK)] = END_MARK
            self.end += left
        self._reserved(size)

    def _reserved(self, size: int) -> memoryview:
        """The next `size` bytes, which are all of one file, ready to be written."""
        tail = self.file.add(self.end)
        at = self.end - tail.base
        tail.reserve(at + size, _RESERVE_BYTES)
        if self._tail is not None and self._tail is not tail:
            self._tail.close()
        self._tail = tail
        self._limit = tail.base + min(tail.reserved, tail.size - END_BYTES)
        return tail.open()[at : at + size]

    def get(self, address: int) -> ExtUnit | None:
        """The unit at an address; None when there is none, or a damaged one."""
        position = address - ADDRESS_MIN
        segment = self.file.segment_at(position)
        if segment is None:
            return None
        at = position - segment.base
        limit = segment.size - END_BYTES
        if at + HEAD.size > limit:
            return None
        view = segment.view
        if view is None:
            view = segment.open()
        size, tags_code, store_ms, bitmap_bytes = HEAD.unpack_from(view, at)
        # A sector that never reached the disk shows as zeros, and a message without a store time there is not.
        if size != HEAD.size + bitmap_bytes or bitmap_bytes < 0 or store_ms <= 0 or at + size > limit:
            return None
        return ExtUnit(tags_code, store_ms, bytes(view[at + HEAD.size : at + size]) if bitmap_bytes else b"")

    def end_after(self, code: int) -> None:
        """Forget for good what comes after the newest unit listed; `code` is what its consume queue has for it."""
        if code > ADDRESS_MAX:
            last = self.file.last
            self._set_end(last.next_base if last else self.end)
            return
        position = code - ADDRESS_MIN
        unit = self.get(code)
        if unit is not None:
            end = position + HEAD.size + len(unit.bitmap)
            self.file.truncate(end)
        else:
            self.file.truncate(position)
            end = (position // self.file.segment_bytes + 1) * self.file.segment_bytes
        self._set_end(end)

    def clear(self) -> None:
        """Forget everything: the consume queue is empty."""
        self.file.truncate(0)
        self._set_end(0)

    def _set_end(self, end: int) -> None:
        self.end = end
        self._tail = None
        self._limit = 0

    def take_before(self, code: int) -> list[Path]:
        """Take out the files below the oldest unit listed, none when that is not in here; somebody has to remove them."""
        taken: list[Path] = []
        position = code - ADDRESS_MIN
        while code <= ADDRESS_MAX and (first := self.file.first) and first.next_base <= position and len(self.file) > 1:
            taken.append(self.file.take_first().path)
        return taken

    def flush(self) -> None:
        """Bring the units written so far to the disk; called by the flusher thread."""
        self.file.flush(self.end)


class ExtQueues:
    """Finds and makes the extended queues that belong to consume queues."""

    def __init__(self, disk: Disk, folder: Path, config: ExtQueueConfig, pool: MapPool) -> None:
        self._disk = disk
        self._folder = folder
        self._config = config
        self._pool = pool

    def find(self, topic: str, queue_id: int, after_crash: bool) -> ExtQueue | None:
        """The extended queue of a queue that was there before; None when none is kept and no files are left of one."""
        folder = self._folder / topic / str(queue_id)
        if self._config.enabled:
            return self._load(folder, self._config.segment_bytes, after_crash)
        if not self._disk.exists(folder):
            return None
        # Nobody need remember the size of files that are only read.
        size = max((entry.size for entry in self._disk.list(folder) if not entry.is_folder), default=0)
        try:
            return self._load(folder, size, after_crash) if size else None
        except StoreError as error:
            log.warning("extended units are not used, their messages are looked at instead: %s", error)
            return None

    def make(self, topic: str, queue_id: int) -> ExtQueue | None:
        """The extended queue of a new queue."""
        if not self._config.enabled:
            return None
        folder = self._folder / topic / str(queue_id)
        # Left behind by a queue that is gone: nothing points to them any more.
        self._disk.remove_tree(folder)
        return ExtQueue(self._file(folder, self._config.segment_bytes))

    def _load(self, folder: Path, segment_bytes: int, after_crash: bool) -> ExtQueue:
        file = self._file(folder, segment_bytes)
        file.load(after_crash)
        return ExtQueue(file)

    def _file(self, folder: Path, segment_bytes: int) -> SegmentedFile:
        return SegmentedFile(self._disk, folder, segment_bytes, pool=self._pool)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        self._disk.remove_tree(self._folder / topic / str(queue_id))

    def folder_of(self, topic: str) -> Path:
        return self._folder / topic
