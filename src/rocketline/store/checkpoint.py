"""The checkpoint file: up to which store time the log, the consume queues and the key index are surely on disk.

    0  log ms   8  consume queues ms   16  key index ms   24  master flushed offset   32  confirmed offset   (4096 bytes)

The two offsets belong to replication; they are kept as found.
"""

from __future__ import annotations

import struct
from pathlib import Path

from rocketline.errors import StoreError
from rocketline.store.disk import Disk, MappedFile

CHECKPOINT_BYTES = 4096
_FIELDS = struct.Struct(">qqqqq")


class Checkpoint:
    def __init__(self, disk: Disk, path: Path) -> None:
        self.log_ms = 0
        self.queues_ms = 0
        self.index_ms = 0
        self.master_flushed_offset = 0
        self.confirmed_offset = 0
        self._file: MappedFile = disk.open_mapped(path, CHECKPOINT_BYTES, pinned=True)
        try:
            self._file.reserve(0, CHECKPOINT_BYTES)
            self._load()
        except StoreError:
            self._file.close()
            raise

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
        """Of log, consume queues and index, as they would be saved."""
        return self.log_ms, self.queues_ms, self.index_ms

    def save(self, times: tuple[int, int, int] | None = None) -> None:
        """Write and sync: 40 bytes of one disk sector, so old or new but never half of each."""
        times = times or self.times
        _FIELDS.pack_into(self._file.buffer, 0, *times, self.master_flushed_offset, self.confirmed_offset)
        self._file.sync()
        self.saved_times = times

    def safe_ms(self, with_index: bool) -> int:
        """Records stored up to this time are whole everywhere."""
        times = [self.log_ms, self.queues_ms]
        if with_index:
            times.append(self.index_ms)
        return min(times)

    def close(self) -> None:
        self._file.close()
