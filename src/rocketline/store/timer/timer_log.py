"""The folder `timerlog`: an entry of 52 bytes for every message that waits, in the order of arrival.

    0  size 52   4  previous position 8   12  kind 4   16  written ms 8   24  delay ms 4   28  log offset 8
    36  record size 4   40  hash of the real topic 4   44  unused 8

The entries of one time form a chain; the wheel points to its newest entry, and -1 ends it. Room at the end of a file that is
too small for an entry gets an end mark: bytes left 4, zero 8, a magic number 4. The message itself is in the commit log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rocketline.store.files.disk import Disk
from rocketline.store.files.segmented_file import SegmentedFile

ENTRY_BYTES = 52
END_BYTES = 16
WAITS = 1
ROLLS = 2
"""The time is too far ahead for the wheel: at the time of this entry the message is added again."""
RECALLS = 4
"""Cancels another message of the same time."""
NO_POSITION = -1

_ENTRY = struct.Struct(">iqiqiqiiq")
_END = struct.Struct(">iqI")
_END_MAGIC = 0xCBD43194
_KINDS = 0xF
_RESERVE_BYTES = 1 << 20


class TimerEntry(NamedTuple):
    """One message that waits."""

    position: int
    """In the timer log; `NO_POSITION` before it is written."""
    previous: int
    """Position of the entry of the same time that was written before; `NO_POSITION`: none."""
    kind: int
    written_ms: int
    delay_ms: int
    log_offset: int
    size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        return self.written_ms + self.delay_ms


class TimerLog:
    """The chain of files. Owner thread only, except `flush`."""

    def __init__(self, disk: Disk, folder: Path, segment_bytes: int) -> None:
        self._files = SegmentedFile(disk, folder, segment_bytes)
        self.end = 0
        """Position of the next entry."""
        self.last: TimerEntry | None = None
        """The newest entry that was read or written."""

    def load(self) -> None:
        self._files.load(after_crash=True)

    def recover(self, start: int, log_end: int) -> Iterator[TimerEntry]:
        """Yield the valid entries from `start` on; at the end of the iteration everything after the last one is erased.

        The log also ends at an entry whose message was lost from the commit log by a power failure (at or after `log_end`).
        """
        end = self._aligned(start)
        self.last = self._before(end)
        for entry in self._entries(end):
            if entry.log_offset + entry.size > log_end:
                end = entry.position
                break
            self.last = entry
            end = entry.position + ENTRY_BYTES
            yield entry
        self._files.truncate(end)
        self._files.flushed = end
        self.end = end

    def _aligned(self, start: int) -> int:
        """`start`, or the start of its file when no entry can begin at `start`."""
        files = self._files
        last = files.last
        if last is None:
            return 0
        if not files.min_offset <= start <= last.next_base:
            return files.min_offset if start < files.min_offset else last.base
        base = start - start % files.segment_bytes
        return base if (start - base) % ENTRY_BYTES else start

    def _before(self, position: int) -> TimerEntry | None:
        """The entry that ends at a position, or the last one of the file before it."""
        base = position - position % self._files.segment_bytes
        if position > base:
            return self.entry(position - ENTRY_BYTES)
        return self.entry(base - self._files.segment_bytes + self._last_in_file) if base else None

    @property
    def _last_in_file(self) -> int:
        return (self._files.segment_bytes - END_BYTES) // ENTRY_BYTES * ENTRY_BYTES - ENTRY_BYTES

    def entries(self, start: int) -> Iterator[TimerEntry]:
        """Every entry from the start of a position's file on."""
        start = max(start, self._files.min_offset)
        return self._entries(start - start % self._files.segment_bytes)

    def _entries(self, position: int) -> Iterator[TimerEntry]:
        while (segment := self._files.segment_at(position)) is not None:
            entry = self.entry(position)
            if entry is not None:
                yield entry
                position += ENTRY_BYTES
            elif self._is_end(position):
                position = segment.next_base
            else:
                return

    def entry(self, position: int) -> TimerEntry | None:
        """The entry at a position; None when there is none."""
        view = self._files.slice(position, position + ENTRY_BYTES) if position >= 0 else None
        if view is None:
            return None
        size, previous, kind, written_ms, delay_ms, log_offset, record_size, topic_hash, _ = _ENTRY.unpack(view)
        if size != ENTRY_BYTES or not 0 < kind <= _KINDS or log_offset < 0 or record_size <= 0:
            return None
        return TimerEntry(position, previous, kind, written_ms, delay_ms, log_offset, record_size, topic_hash)

    def _is_end(self, position: int) -> bool:
        view = self._files.slice(position, position + END_BYTES)
        return view is not None and _END.unpack(view)[2] == _END_MAGIC

    def append(self, entry: TimerEntry) -> TimerEntry:
        """Write an entry and return it with its position; StoreError, and nothing written, when the disk is full."""
        files = self._files
        position = self.end
        inside = position % files.segment_bytes
        left = files.segment_bytes - inside
        if inside and left < ENTRY_BYTES + END_BYTES:
            following = position + left
            files.add(following)
            if left >= END_BYTES:
                self._write(position, _END.pack(left, 0, _END_MAGIC))
            position = following
        self._write(position, _ENTRY.pack(ENTRY_BYTES, *entry[1:], 0))
        self.end = position + ENTRY_BYTES
        self.last = written = entry._replace(position=position)
        return written

    def _write(self, position: int, data: bytes) -> None:
        segment = self._files.add(position)
        start = position - segment.base
        segment.reserve(start + len(data), _RESERVE_BYTES)
        segment.open()[start : start + len(data)] = data

    def flush(self, end: int) -> None:
        """Flush everything below `end`; any thread, one at a time."""
        self._files.flush(end)

    def trim(self, log_min_offset: int) -> None:
        """Delete files whose newest message has left the commit log."""
        while len(self._files) > 1:
            first = self._files.first
            assert first is not None
            entry = self.entry(first.base + self._last_in_file)
            if entry is None or entry.log_offset >= log_min_offset:
                return
            self._files.remove_first()

    def destroy(self) -> None:
        """Delete all entries, for good."""
        self._files.destroy()

    def close(self) -> None:
        self._files.close()
