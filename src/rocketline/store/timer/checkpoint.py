"""The file `config/timercheck`: up to when timers were delivered, and how far timer log and timer queue were processed.

0  last read ms   8  timer log flushed to   16  queue offset   24  the master's queue offset   32  state version
40  changed ms   48  change count                                                            (4096 bytes, 56 used)
"""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec

from rocketline.errors import StoreError
from rocketline.store.files.disk import Disk, MappedFile

CHECKPOINT_BYTES = 4096
_FIELDS = struct.Struct(">7q")


class TimerMark(msgspec.Struct, frozen=True):
    """State of the timer files at one moment."""

    read_ms: int = 0
    """Slots before this time are delivered."""
    flushed: int = 0
    """Timer-log entries before this position are on disk and in the wheel."""
    queue_offset: int = 0
    """Messages of the timer queue before this offset have their entry."""
    master_queue_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        return _FIELDS.pack(*msgspec.structs.astuple(self))


class TimerCheckpoint:
    """The file; it is created by the first save."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._file: MappedFile | None = None

    def load(self) -> TimerMark:
        """The saved mark; all zeros when there is none, or when its values are invalid."""
        data = self._disk.read(self._path) or b""
        if len(data) > CHECKPOINT_BYTES:
            raise StoreError(f"{self._path} has {len(data)} bytes, so it is no timer checkpoint; move it away")
        if len(data) < _FIELDS.size:
            return TimerMark()
        mark = TimerMark(*_FIELDS.unpack_from(data))
        return mark if min(mark.read_ms, mark.flushed, mark.queue_offset) >= 0 else TimerMark()

    def save(self, mark: TimerMark) -> None:
        """Write and sync: 56 bytes in one disk sector, so a crash leaves the old or the new values, never a mix."""
        if self._file is None:
            self._file = self._disk.open_mapped(self._path, CHECKPOINT_BYTES, pinned=True)
            self._file.reserve(0, CHECKPOINT_BYTES)
        self._file.buffer[: _FIELDS.size] = mark.encode()
        self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
