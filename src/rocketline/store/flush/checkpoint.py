"""The checkpoint file: the store times up to which log, consume queues and key index are on disk.

    0  log ms   8  consume queues ms   16  key index ms   24  master flushed offset   32  confirmed offset   (4096 bytes)

The two offsets belong to replication. The first is kept as it was read, the second is set by groups with elections.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path

from rocketline.errors import StoreError
from rocketline.store.files.disk import Disk, MappedFile

CHECKPOINT_BYTES = 4096
_FIELDS = struct.Struct(">qqqqq")
_LATEST_MS = 1 << 43
"""In the year 2248. A later time is garbage; with it, recovery would read nothing after a crash."""

log = logging.getLogger(__name__)


class Checkpoint:
    """The times in the file; they are changed in memory and written by `save`."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.log_ms = 0
        self.queues_ms = 0
        self.index_ms = 0
        self.master_flushed_offset = 0
        self.confirmed_offset = 0
        self._file: MappedFile = _open(disk, path)
        try:
            self._file.reserve(0, CHECKPOINT_BYTES)
            self._load()
            self._reset_invalid_times()
        except StoreError:
            self._file.close()
            raise

    def _reset_invalid_times(self) -> None:
        if not all(0 <= time_ms <= _LATEST_MS for time_ms in (self.log_ms, self.queues_ms, self.index_ms)):
            log.warning("%s holds invalid times: the whole log is read, as without a checkpoint", self._file.path)
            self.log_ms = self.queues_ms = self.index_ms = 0

    def _load(self) -> None:
        (
            self.log_ms,
            self.queues_ms,
            self.index_ms,
            self.master_flushed_offset,
            self.confirmed_offset,
        ) = _FIELDS.unpack_from(self._file.buffer, 0)
        self.saved_times = self.times

    @property
    def times(self) -> tuple[int, int, int]:
        """Times of log, consume queues and index, as they would be saved."""
        return self.log_ms, self.queues_ms, self.index_ms

    def save(self, times: tuple[int, int, int] | None = None) -> None:
        """Write and sync: 40 bytes in one disk sector, so a crash leaves the old or the new values, never a mix."""
        times = times or self.times
        _FIELDS.pack_into(self._file.buffer, 0, *times, self.master_flushed_offset, self.confirmed_offset)
        self._file.sync()
        self.saved_times = times

    def safe_ms(self, with_index: bool) -> int:
        """Records stored up to this time are on disk in log and queues, and in the index if asked for."""
        times = [self.log_ms, self.queues_ms]
        if with_index:
            times.append(self.index_ms)
        return min(times)

    def close(self) -> None:
        self._file.close()


def _open(disk: Disk, path: Path) -> MappedFile:
    present = len(disk.read(path) or b"")
    if present > CHECKPOINT_BYTES:
        raise StoreError(
            f"{path} has {present} bytes instead of {CHECKPOINT_BYTES}, so it is no checkpoint; move it away, the store "
            "opens without it"
        )
    return disk.open_mapped(path, CHECKPOINT_BYTES, pinned=True)
