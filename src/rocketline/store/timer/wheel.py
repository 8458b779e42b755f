"""The file `timerwheel`: for every time in the future the position of its newest entry in the timer log.

    0  time / precision 8   8  first position 8   16  last position 8   24  count 4   28  unused 4       (32 bytes a slot)

The slot of a time is time / precision modulo the number of slots, which is twice seven days of seconds; a slot with another
time in it is free. Changes stay in memory until a flush, which writes them after the entries they point to are on disk: the
file never points to an entry that was lost in a power failure. A slot whose messages are delivered is zeroed, which RocketMQ
reads as free. The file is created by the first flush that has something to write, and only the pages in use take space.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rocketline.errors import WrongFiles
from rocketline.store.files.disk import Disk, MappedFile

SLOT_COUNT = 2 * 7 * 24 * 3600
SLOT_BYTES = 32
_SLOT = struct.Struct(">qqqii")
_FREE = bytes(SLOT_BYTES)
_PAGE_BYTES = 4096
_PIECE_BYTES = 1 << 16


class Slot(NamedTuple):
    """The entries of one time: a chain that starts at `last` and goes back."""

    time_ms: int
    first: int
    last: int
    size: int
    """Number of messages; a recall subtracts one."""


class TimerWheel:
    """The file, with changes that are not written yet. Owner thread only, except `write`."""

    def __init__(self, disk: Disk, path: Path, precision_ms: int, slot_count: int = SLOT_COUNT) -> None:
        self._disk = disk
        self._path = path
        self._precision_ms = precision_ms
        self._slot_count = slot_count
        self._bytes = slot_count * SLOT_BYTES
        self._file: MappedFile | None = None
        self._changed: dict[int, bytes] = {}
        self._frozen: dict[int, bytes] = {}
        """Being written by a flush."""
        self._reserved: set[int] = set()

    def load(self) -> None:
        if not self._disk.exists(self._path):
            return
        size = next(entry.size for entry in self._disk.list(self._path.parent) if entry.name == self._path.name)
        if size not in (0, self._bytes):
            raise WrongFiles(
                f"{self._path} has {size} bytes instead of {self._bytes}, so it is no timer wheel; bring back a whole "
                "copy, or move it away: it is then rebuilt from the folder timerlog"
            )
        self._open()

    def destroy(self) -> None:
        """Delete the file."""
        self.close()
        if self._disk.exists(self._path):
            self._disk.remove(self._path)

    @property
    def is_there(self) -> bool:
        return self._file is not None

    def _open(self) -> MappedFile:
        if self._file is None:
            self._file = self._disk.open_mapped(self._path, self._bytes, pinned=True, scattered=True)
        return self._file

    def slot(self, time_ms: int) -> Slot | None:
        """The slot of a time; None when it is free."""
        found = self._raw(self._index(time_ms))
        return found if found is not None and found.time_ms == time_ms else None

    def is_taken(self, time_ms: int, read_ms: int) -> bool:
        """Whether the slot of a time is in use for another time that is still to come."""
        found = self._raw(self._index(time_ms))
        return found is not None and found.time_ms != time_ms and found.time_ms >= read_ms

    def put(self, slot: Slot) -> None:
        number = slot.time_ms // self._precision_ms
        self._changed[number % self._slot_count] = _SLOT.pack(number, slot.first, slot.last, slot.size, 0)

    def free(self, time_ms: int) -> None:
        self._changed[self._index(time_ms)] = _FREE

    def slots(self) -> Iterator[Slot]:
        """Every slot in use in the file, unordered."""
        if self._file is None:
            return
        for start in range(0, self._bytes, _PIECE_BYTES):
            # Read, not mapped: most of the file are holes, and reading a hole through a map costs a page fault.
            piece = self._disk.read_range(self._path, start, _PIECE_BYTES)
            if piece.count(0) < len(piece):
                for number, first, last, size, _ in _SLOT.iter_unpack(piece):
                    if number > 0:
                        yield Slot(number * self._precision_ms, first, last, size)

    def _index(self, time_ms: int) -> int:
        return time_ms // self._precision_ms % self._slot_count

    def _raw(self, index: int) -> Slot | None:
        data = self._changed.get(index) or self._frozen.get(index)
        if data is not None:
            number, first, last, count, _ = _SLOT.unpack(data)
        elif self._file is not None:
            number, first, last, count, _ = _SLOT.unpack_from(self._file.buffer, index * SLOT_BYTES)
        else:
            return None
        return Slot(number * self._precision_ms, first, last, count) if number > 0 else None

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def freeze(self) -> Mapping[int, bytes]:
        """The changes since the last flush, to be given to `write`; one flush at a time."""
        self._frozen, self._changed = self._changed, {}
        return self._frozen

    def write(self, changes: Mapping[int, bytes]) -> None:
        """Write changes to the disk; any thread."""
        if not changes:
            return
        file = self._open()
        for index, data in sorted(changes.items()):
            start = index * SLOT_BYTES
            page = start // _PAGE_BYTES
            if page not in self._reserved:
                file.reserve(page * _PAGE_BYTES, min((page + 1) * _PAGE_BYTES, self._bytes))
                self._reserved.add(page)
            file.buffer[start : start + SLOT_BYTES] = data
        file.sync()

    def written(self) -> None:
        """Note that the frozen changes are in the file."""
        self._frozen = {}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
