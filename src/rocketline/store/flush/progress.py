"""The progress file: up to which byte of the log everything is on disk.

Apache's checkpoint holds times. This file holds offsets: so a start after a crash reads only what is new, and damage to
bytes that once were on disk can be told from a write that never reached it.

    sector 0   the log below `flushed` is on disk; written after every flush and never synced: any value found is true
    sector 1   a mark: log, consume queues and key index below `safe` are on disk, with a description of them; written
               and synced after every thorough flush

Each sector is a length, a CRC and JSON; a sector with a wrong CRC is ignored. Apache's broker does not know the file: it is
valid only while the checkpoint still has the times of the mark, or those from just before the mark.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from zlib import crc32

import msgspec

from rocketline.errors import StoreError
from rocketline.store.files.disk import Disk, MappedFile

FILE_NAME = "rocketline.progress"
PROGRESS_BYTES = 4096
_SECTOR_BYTES = 512
_HEAD = struct.Struct(">HI")

Times = tuple[int, int, int]
"""Store times of the checkpoint: log, consume queues, key index."""


PROOF_BYTES = 88
"""How much of a record its CRC covers: the head without the body, which may be damaged in the same log."""


class IndexShape(msgspec.Struct, frozen=True):
    """The files of the key index at a mark."""

    oldest: str
    newest: str
    newest_count: int
    file_count: int = 0
    """Number of files from the oldest to the newest; 0: not known."""


class ProgressMark(msgspec.Struct, frozen=True):
    """A moment at which everything below `safe` was on disk."""

    safe: int
    last_record: tuple[int, int, int]
    """(offset, size, CRC of its head) of the record that ends at `safe`, to recognise the log. Size 0: none."""
    sizes: tuple[int, int, int, int, int]
    """File sizes: of log, queue and extended queue in bytes, of the index in slots and entries."""
    index: IndexShape | None
    times: Times
    times_before: Times
    closed: bool
    """Whether the store was stopped cleanly."""


class ProgressFile:
    """The file. Owner thread only, except `note_flushed` (log flusher) and `save` (queue flusher)."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.flushed = 0
        self.mark: ProgressMark | None = None
        self._lock = threading.Lock()
        self._file: MappedFile = disk.open_mapped(path, PROGRESS_BYTES, pinned=True)
        try:
            self._file.reserve(0, PROGRESS_BYTES)
        except StoreError:
            self._file.close()
            raise
        self._load()

    def _load(self) -> None:
        try:
            self.flushed = msgspec.json.decode(self._read(0), type=int)
            self.mark = msgspec.json.decode(self._read(1), type=ProgressMark)
        except msgspec.DecodeError:
            return

    def _read(self, sector: int) -> bytes:
        start = sector * _SECTOR_BYTES
        length, crc = _HEAD.unpack_from(self._file.buffer, start)
        data = bytes(self._file.buffer[start + _HEAD.size : start + _SECTOR_BYTES])[:length]
        return data if crc32(data) == crc else b""

    def _write(self, sector: int, data: bytes) -> None:
        start = sector * _SECTOR_BYTES
        record = _HEAD.pack(len(data), crc32(data)) + data
        if len(record) > _SECTOR_BYTES:
            raise StoreError(f"{len(data)} bytes do not fit into a sector of {self._file.path}")
        self._file.buffer[start : start + len(record)] = record

    def valid_mark(self, times: Times) -> ProgressMark | None:
        """The mark, unless the checkpoint's times show that another broker has used the store since."""
        mark = self.mark
        return mark if mark is not None and times in (mark.times, mark.times_before) else None

    def note_flushed(self, log_offset: int) -> None:
        """Note that the log below `log_offset` is on disk."""
        with self._lock:
            self.flushed = log_offset
            self._write(0, b"%d" % log_offset)

    def save(self, mark: ProgressMark) -> None:
        """Save a mark, durably. The caller has flushed what it covers."""
        with self._lock:
            self.mark = mark
            self._write(1, msgspec.json.encode(mark))
        self._file.sync()

    def note_index(self, shape: IndexShape | None) -> None:
        """Note that the index was replaced by another one, which is on disk."""
        if self.mark is not None:
            self.save(msgspec.structs.replace(self.mark, index=shape))

    def close(self) -> None:
        self._file.close()
