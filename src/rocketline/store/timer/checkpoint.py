"""The file `config/timercheck`: up to when timers were delivered, and how far timer log and timer queue were processed.

It has 4096 bytes, of which the first 56 are used: a `TimerMark`.
"""

from __future__ import annotations

from pathlib import Path

from rocketline.errors import StoreError
from rocketline.protocol.timer_mark import MARK_BYTES, TimerMark
from rocketline.store.files.disk import Disk, MappedFile

CHECKPOINT_BYTES = 4096


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
        return TimerMark.decode(data) or TimerMark()

    def save(self, mark: TimerMark) -> None:
        """Write and sync: 56 bytes in one disk sector, so a crash leaves the old or the new values, never a mix."""
        if self._file is None:
            self._file = self._disk.open_mapped(self._path, CHECKPOINT_BYTES, pinned=True)
            self._file.reserve(0, CHECKPOINT_BYTES)
        self._file.buffer[:MARK_BYTES] = mark.encode()
        self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
