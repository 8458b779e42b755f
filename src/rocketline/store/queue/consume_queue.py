"""Consume queues: for each topic and queue, where in the commit log its messages lie.

    unit (20 bytes):  log offset 8   record size 4   tags code 8

Unit n of a queue lies at byte n * 20 of its chain of files. Rules:

- A queue whose first message is not number 0 (older ones were deleted) starts with filler units: offset 0, size 2^31 - 1.
- Building is idempotent: a record that ends at or below the last one listed is listed already.
- A record further up the log with a smaller number means that the topic was deleted and made anew: the newer one wins.
- Everything after the last unit is zeros, so the end is found again by looking for the first unit without a size.
- The tags code may be the address of an extended unit instead (`ext_queue`), which is on disk before the unit here.
"""

from __future__ import annotations

import struct
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rocketline._impl import compiled
from rocketline.errors import CorruptRecord
from rocketline.protocol.records import Buffer, decode_record
from rocketline.store.config import UNIT_BYTES
from rocketline.store.files.segment import Segment
from rocketline.store.files.segmented_file import PendingFlush, SegmentedFile
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.ext_queue import ADDRESS_MIN, ExtQueue
from rocketline.store.recovery.record_runs import Row

UNIT = struct.Struct(">qiq")
FILLER_SIZE = 0x7FFFFFFF
_FILLER = UNIT.pack(0, FILLER_SIZE, 0)
_RESERVE_BYTES = 64 << 10
_ZEROS = bytes(_RESERVE_BYTES)
_LOOK_BYTES = 512
_SHARED_PREFIX = "%LMQ%"
"""Queues of such topics list records that belong to other topics."""
_pack_into = UNIT.pack_into


class QueueRun(NamedTuple):
    """Units of records of one queue with consecutive numbers, in the order of the log."""

    queue_offset: int
    """Number of the first."""
    log_offset: int
    """Of its record."""
    units: bytes
    next_log_offset: int
    """Where the last record ends."""


@compiled
def pack_run(rows: list[Row], run_type: type[QueueRun]) -> QueueRun | None:
    """The units of rows of one queue; None when their numbers are not consecutive or their places overlap."""
    first, last, pack = rows[0], rows[-1], UNIT.pack
    end = first[0]
    for number, row in enumerate(rows, first[4]):
        if row[4] != number or row[0] < end:
            return None
        end = row[0] + row[1]
    units = b"".join([pack(row[0], row[1], row[5]) for row in rows])
    return run_type(first[4], first[0], units, last[0] + last[1])


class ConsumeQueue:
    """One queue of one topic. Owner thread only, except `flush`."""

    __slots__ = (
        "_base", "_dirty_queues", "_limit", "_tail", "ext", "file", "is_dirty", "max_offset", "min_offset",
        "next_log_offset", "queue_id",
    )  # fmt: skip

    def __init__(self, file: SegmentedFile, dirty_queues: deque[ConsumeQueue], ext: ExtQueue | None = None) -> None:
        self.file = file
        self.ext = ext
        self.queue_id = int(file.folder.name)
        self.min_offset = 0
        self.max_offset = 0
        self.next_log_offset = 0
        """End of the last record listed."""
        self.is_dirty = False
        self._dirty_queues = dirty_queues
        self._tail: Segment | None = None
        self._base = 0
        self._limit = 0

    def put(self, queue_offset: int, log_offset: int, size: int, tags_code: int) -> None:
        """List a record, unless it is listed already."""
        if log_offset + size <= self.next_log_offset:
            return
        if queue_offset != self.max_offset:
            self._align(queue_offset)
        position = queue_offset * UNIT_BYTES
        if not self._base <= position < self._limit:
            self._make_room(position)
        tail = self._tail
        assert tail is not None
        view = tail.view
        if view is None:
            view = tail.open()
        _pack_into(view, position - self._base, log_offset, size, tags_code)
        self.max_offset = queue_offset + 1
        self.next_log_offset = log_offset + size
        if not self.is_dirty:
            self.is_dirty = True
            self._dirty_queues.append(self)

    def put_rows(self, rows: list[Row]) -> None:
        """`put` for each row, all of this queue and in the order of the log."""
        run = pack_run(rows, QueueRun)
        if run is not None:
            self.put_run(run)
            return
        for log_offset, size, _, _, queue_offset, tags_code, *_ in rows:
            self.put(queue_offset, log_offset, size, tags_code)

    def put_run(self, run: QueueRun) -> None:
        """`put` for each unit of a run."""
        start, log_offset, units, next_log_offset = run
        if log_offset < self.next_log_offset:  # some are listed already
            for number, unit in enumerate(UNIT.iter_unpack(units), start):
                self.put(number, *unit)
            return
        if start != self.max_offset:
            self._align(start)
        position, done = start * UNIT_BYTES, 0
        while done < len(units):
            if not self._base <= position < self._limit:
                self._make_room(position)
            tail = self._tail
            assert tail is not None
            size = min(self._limit - position, len(units) - done)
            at = position - self._base
            view = tail.view
            if view is None:
                view = tail.open()
            view[at : at + size] = units[done : done + size]
            position += size
            done += size
        self.max_offset = start + len(units) // UNIT_BYTES
        self.next_log_offset = next_log_offset
        if not self.is_dirty:
            self.is_dirty = True
            self._dirty_queues.append(self)

    def _align(self, queue_offset: int) -> None:
        """Make `queue_offset` the next number: cut off units of a former life, or fill the gap before it."""
        if queue_offset < self.max_offset:
            self.truncate(queue_offset)
            return
        if not self.max_offset:
            self.min_offset = queue_offset
        # Only the gap inside the unit's own file is filled; whole files before it stay missing.
        position = max(self.max_offset, queue_offset // self._units_per_file * self._units_per_file) * UNIT_BYTES
        while position < queue_offset * UNIT_BYTES:
            if not self._base <= position < self._limit:
                self._make_room(position)
            assert self._tail is not None
            end = min(queue_offset * UNIT_BYTES, self._limit)
            self._tail.open()[position - self._base : end - self._base] = _FILLER * ((end - position) // UNIT_BYTES)
            position = end

    def replace(self, queue_offset: int, log_offset: int, size: int, tags_code: int) -> None:
        """Put a unit right that was found to be wrong."""
        segment = self.file.segment_at(queue_offset * UNIT_BYTES)
        if segment is not None and self.min_offset <= queue_offset < self.max_offset:
            _pack_into(segment.open(), queue_offset * UNIT_BYTES - segment.base, log_offset, size, tags_code)

    @property
    def first_unit(self) -> int:
        """Number of the first unit that has a place in the files, whether the log still has its record or not."""
        return self.file.min_offset // UNIT_BYTES

    @property
    def first_needed_unit(self) -> int:
        """Number of the first unit of the file that lists the oldest message."""
        return self.min_offset // self._units_per_file * self._units_per_file

    @property
    def topic(self) -> str:
        return self.file.folder.parent.name

    @property
    def _units_per_file(self) -> int:
        return self.file.segment_bytes // UNIT_BYTES

    def _make_room(self, position: int) -> None:
        tail = self.file.add(position)
        tail.reserve(position - tail.base + UNIT_BYTES, _RESERVE_BYTES)
        if self._tail is not None and self._tail is not tail:
            self._tail.close()
        self._tail = tail
        self._base = tail.base
        # Steps of 64 KiB do not hold a whole number of units.
        self._limit = tail.base + tail.reserved // UNIT_BYTES * UNIT_BYTES

    def units(self, queue_offset: int, max_bytes: int) -> memoryview | None:
        """Raw units from `queue_offset` to at most the end of their file; None when that file is missing."""
        start = queue_offset * UNIT_BYTES
        segment = self._tail
        # Mostly it is the file that is written. With thousands of queues each object looked at is out of the cache.
        if segment is None or start < self._base:
            segment = self.file.segment_at(start)
            if segment is None:
                return None
        end = min(start + max_bytes, segment.base + segment.size, self.max_offset * UNIT_BYTES)
        view = segment.view
        if view is None:
            view = segment.open()
        return view[start - segment.base : end - segment.base]

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """(log offset, size, tags code) of one message; None when it is not there."""
        if not 0 <= queue_offset < self.max_offset:
            return None
        found = self.units(queue_offset, UNIT_BYTES)
        return UNIT.unpack(found) if found else None

    def next_file_offset(self, queue_offset: int) -> int:
        """Number of the first unit of the file after the one that should hold `queue_offset`."""
        return (queue_offset // self._units_per_file + 1) * self._units_per_file

    def follow_log_minimum(self, log_min_offset: int) -> None:
        """Move the minimum to the first unit that points at or past the start of the log."""
        first = self.file.first
        low = first.base // UNIT_BYTES if first else self.max_offset
        high = self.max_offset
        middle = low
        while low < high:
            unit = self.unit(middle)
            if unit is None or unit[1] == FILLER_SIZE or unit[0] < log_min_offset:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        self.min_offset = low

    def take_ext_files(self) -> list[Path]:
        """Take the files out whose extended units all lie below the minimum; somebody has to remove them."""
        if self.ext is None:
            return []
        unit = self.unit(self.min_offset)
        return self.ext.take_before(unit[2] if unit else ADDRESS_MIN + self.ext.end)

    def offset_at_time(self, log: CommitLog, timestamp_ms: int, upper: bool) -> int:
        """First offset stored at or after a time; with `upper`, the last one stored at or before it (0 when none is)."""
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            store_ms = log.store_ms_at(unit[0]) if unit and unit[1] != FILLER_SIZE else -1
            if store_ms < timestamp_ms or (upper and store_ms == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        if upper:
            return low - 1 if low > self.min_offset else 0
        return low

    def find_end(self) -> bool:
        """After a clean stop: units are dense, so the first empty one of the last file is found by halving.

        False when more units follow, so that this is a hole and not the end.
        """
        self.max_offset = 0
        last = self.file.last
        while last is not None:
            low, high = 0, last.size // UNIT_BYTES
            view = last.open()
            while low < high:
                middle = (low + high) // 2
                log_offset, size, _ = UNIT.unpack_from(view, middle * UNIT_BYTES)
                if log_offset >= 0 and size > 0:
                    low = middle + 1
                else:
                    high = middle
            if low or last is self.file.first:
                self._set_end(last.base // UNIT_BYTES + low)
                self.file.flushed = self.max_offset * UNIT_BYTES
                self._end_ext()
                following = view[low * UNIT_BYTES : low * UNIT_BYTES + _RESERVE_BYTES]
                return following == _ZEROS[: len(following)]
            self.file.truncate(last.base)
            last = self.file.last
        return True

    def adopt(self, log: CommitLog, min_offset: int, max_offset: int) -> bool:
        """After a clean stop: go on as written down then; False when a look at the files contradicts it."""
        last = self.file.segment_at((max_offset - 1) * UNIT_BYTES)
        if max_offset and (last is None or last is not self.file.last):
            return False
        self.max_offset, self.min_offset = max_offset, min_offset
        self.file.flushed = max_offset * UNIT_BYTES
        if last is None:
            return not len(self.file)
        position = (max_offset - 1) * UNIT_BYTES - last.base
        end = last.peek(position, UNIT_BYTES + _LOOK_BYTES)
        self.next_log_offset = _end_of_record(end)
        if self.ext is not None:
            self.ext.end_after(UNIT.unpack_from(end)[2])
        firsts = ((segment.base // UNIT_BYTES, segment.peek(0, UNIT_BYTES)) for segment in self.file)
        return (
            end[UNIT_BYTES:] == _ZEROS[: len(end) - UNIT_BYTES]
            and self._is_contiguous()
            and all(self._leads_home(log, *found, log.wrote) for found in (*firsts, (max_offset - 1, end)))
        )

    def find_end_below(self, log: CommitLog, next_log_offset: int) -> None:
        """After a crash: keep the units of records below `next_log_offset`, as far as they are there one after the other.

        What comes after them may be torn, so neither order nor density can be relied on there.
        """
        kept = 0
        segments = list(self.file)
        while len(segments) > 1 and not self.is_sound(log, segments[-1].base // UNIT_BYTES, next_log_offset):
            segments.pop()
        for segment in segments[-3:]:
            count = _count_sound(segment.open(), next_log_offset)
            kept = segment.base // UNIT_BYTES + count
            if count < self._units_per_file:
                break
        while kept and not self.is_sound(log, kept - 1, next_log_offset):
            kept -= 1
        self.truncate(kept)
        self.file.flushed = kept * UNIT_BYTES
        self._end_ext()

    def find_marked_end(self, log: CommitLog, next_log_offset: int) -> None:
        """As `find_end_below`, by halving: for a mark, which is made only when the units below it are on disk.

        A unit counts only when the record it points at says that it belongs there.
        """
        first, last = self.file.first, self.file.last
        if first is None or last is None:
            return
        low, high = first.base // UNIT_BYTES, last.next_base // UNIT_BYTES
        while low < high:
            middle = (low + high) // 2
            # A damaged record must not pass for the end: one of the next two that is sound proves that this is below it.
            if any(self.is_sound(log, number, next_log_offset) for number in range(middle, middle + 3)):
                low = middle + 1
            else:
                high = middle
        self.truncate(low)
        self.file.flushed = low * UNIT_BYTES
        self._end_ext()

    def is_sound(self, log: CommitLog, queue_offset: int, next_log_offset: int) -> bool:
        """Whether a unit points at its own record below `next_log_offset`, or at one that was deleted since."""
        segment = self.file.segment_at(queue_offset * UNIT_BYTES)
        if segment is None:
            return False
        start = queue_offset * UNIT_BYTES - segment.base
        return self._leads_home(log, queue_offset, segment.open()[start : start + UNIT_BYTES], next_log_offset)

    def _leads_home(self, log: CommitLog, queue_offset: int, unit: Buffer, next_log_offset: int) -> bool:
        log_offset, size, _ = UNIT.unpack_from(unit)
        if size == FILLER_SIZE and log_offset == 0:
            return True
        if size <= 0 or log_offset < 0 or log_offset + size > next_log_offset:
            return False
        if log_offset < log.min_offset:
            return True
        record = log.record_at(log_offset)
        return record is not None and len(record) == size and self._is_own(record, queue_offset)

    def _is_own(self, record: memoryview, queue_offset: int) -> bool:
        if self.topic.startswith(_SHARED_PREFIX):
            return True
        try:
            found = decode_record(record, 0, len(record))
        except CorruptRecord:
            return False
        return (found.topic, found.queue_id, found.queue_offset) == (self.topic, self.queue_id, queue_offset)

    def looks_whole(self, log: CommitLog) -> bool:
        """A look at the seams, where missing, exchanged and emptied files show: no gap, each file starts with its own."""
        if not self.max_offset:
            return True
        numbers = [segment.base // UNIT_BYTES for segment in self.file]
        probes = [number for number in numbers if number < self.max_offset]
        return self._is_contiguous() and all(
            self.is_sound(log, number, log.wrote) for number in (*probes, self.max_offset - 1)
        )

    def _is_contiguous(self) -> bool:
        bases = [segment.base for segment in self.file]
        return all(later - earlier == self.file.segment_bytes for earlier, later in pairwise(bases))

    def truncate(self, queue_offset: int) -> None:
        """Forget the units from `queue_offset` on, for good."""
        self.file.truncate(queue_offset * UNIT_BYTES)
        self._set_end(queue_offset)
        self.min_offset = min(self.min_offset, self.max_offset)

    def count_below(self, log_offset: int) -> int:
        """Number of the first unit of a message at or after `log_offset`: units follow the log."""
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is None or unit[0] < log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def cut_back(self, log_offset: int) -> None:
        """Forget the messages from `log_offset` on: the log does not have them any more."""
        if self.next_log_offset > log_offset:
            self.truncate(self.count_below(log_offset))
            self._end_ext()

    def _set_end(self, queue_offset: int) -> None:
        self.max_offset = queue_offset
        self._tail = None
        self._limit = 0
        found = self.units(queue_offset - 1, UNIT_BYTES) if queue_offset else None
        self.next_log_offset = _end_of_record(found) if found else 0

    def _end_ext(self) -> None:
        """Have new extended units put behind the last one that is listed here."""
        if self.ext is None:
            return
        if self.max_offset:
            unit = self.unit(self.max_offset - 1)
            self.ext.end_after(unit[2] if unit else 0)
        else:
            self.ext.clear()

    def unmap(self) -> None:
        """Let go of all memory; files are mapped again when they are needed."""
        self.file.unmap()
        if self.ext is not None:
            self.ext.file.unmap()

    def flush(self) -> None:
        """Bring the units written so far to the disk; called by the flusher thread."""
        # Cleared before the end is read: a unit written after this makes the queue dirty again.
        self.is_dirty = False
        end = self.max_offset * UNIT_BYTES
        if self.ext is not None:
            self.ext.flush()
        self.file.flush(end)

    def begin_flush(self) -> list[PendingFlush]:
        """As `flush`, for a flusher that flushes the whole disk and then ends each of these."""
        self.is_dirty = False
        pending = [self.file.begin_flush(self.max_offset * UNIT_BYTES)]
        if self.ext is not None:
            pending.append(self.ext.file.begin_flush(self.ext.end))
        return pending

    def dirty_bytes(self) -> int:
        return self.max_offset * UNIT_BYTES - self.file.flushed


def _end_of_record(unit: Buffer) -> int:
    log_offset, size, _ = UNIT.unpack_from(unit)
    return log_offset + size if size != FILLER_SIZE else 0


def _count_sound(view: memoryview, next_log_offset: int) -> int:
    """How many units from the start of a file are there, in ascending order and below `next_log_offset`."""
    count = previous_end = 0
    for log_offset, size, _ in UNIT.iter_unpack(view[: len(view) // UNIT_BYTES * UNIT_BYTES]):
        if size == FILLER_SIZE and log_offset == 0:
            count += 1
            continue
        if size <= 0 or log_offset < previous_end or log_offset + size > next_log_offset:
            break
        previous_end = log_offset + size
        count += 1
    return count
