"""One file of the key index: a hash table on disk, of chains through entries that are only ever added.

    header 40   begin ms 8  end ms 8  begin log offset 8  end log offset 8  slots in use 4  next entry number 4 (from 1)
    slots       4 each: number of the newest entry of that slot, 0 = none
    entries     20 each: key hash 4  log offset 8  seconds after begin ms 4  previous entry of the slot 4

Entry 0 is never used. The header counts. It is written by `flush`, and only after the entries and slots it counts were
synced, so after a crash the entries below it are whole, and those above it are dropped and made again from the log.
"""

from __future__ import annotations

import logging
import struct
import sys
from array import array
from pathlib import Path
from typing import NamedTuple

from rocketline._impl import compiled
from rocketline.store.files.disk import Disk, MappedFile
from rocketline.store.recovery.record_runs import Row

log = logging.getLogger(__name__)

_HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")
_HASH = struct.Struct(">i16x")
_RESERVE_BYTES = 1 << 20
_RECORD_ENTRIES = 1 << 14
"""Of one record at most: it has 32 KiB of properties, and each key takes two."""
_LATEST_MS = 1 << 43
_LAST_LOG_OFFSET = 1 << 62

_read_slot = _SLOT.unpack_from
_write_slot = _SLOT.pack_into
_write_entry = _ENTRY.pack_into


class IndexState(NamedTuple):
    """A file of the index to which entries are added."""

    view: memoryview
    slots: int
    number: int
    """Of the next entry."""
    limit: int
    """Entries with numbers below this fit into what is reserved of the file."""
    begin_ms: int


@compiled
def index_rows(state: IndexState, rows: list[Row], start: int) -> tuple[int, int, int, int]:
    """Add entries for rows from number `start` on, as long as those of a whole row fit; rolled back ones have none.

    (next row, next number, slots taken that were free, last row that has entries or -1). In Python it adds none, and the
    caller puts one after the other.
    """
    return start, state.number, 0, -1


@compiled
def index_range(state: IndexState, log: memoryview, base: int, start: int, end: int) -> tuple[int, int, int, int, int]:
    """The same for records of the log from `start` to `end`; `log` is the file that begins at `base`.

    (where it stopped, next number, slots taken, offset and store time of the last record that has entries or -1)
    """
    return start, state.number, 0, -1, 0


class IndexFile:
    """One file of the index, all of it mapped."""

    def __init__(self, disk: Disk, path: Path, slots: int, entries: int) -> None:
        self.path = path
        self._disk = disk
        self._slots = slots
        self._capacity = entries
        self._entries_at = _HEADER.size + slots * _SLOT.size
        self._file: MappedFile = disk.open_mapped(path, index_file_bytes(slots, entries), pinned=True, scattered=True)
        self._view = self._file.buffer
        # One number at a time through `struct` would take twice as long.
        self._slot_words = self._view[_HEADER.size : self._entries_at].cast("I")
        self._reserved = 0
        header: tuple[int, ...] = _HEADER.unpack_from(self._view, 0)
        self.is_damaged = not _is_possible(header, entries)
        if self.is_damaged:
            log.warning("%s does not begin as an index file does: nothing in it is used", path)
            header = (0,) * len(header)
        self.begin_ms, self.end_ms, self.begin_log_offset, self.end_log_offset, self._slots_used, count = header
        # A file without a header holds nothing; Java starts counting at 1.
        self.count = min(max(count, 1), entries)
        self.flushed_count = self.count

    @property
    def is_full(self) -> bool:
        return self.count >= self._capacity

    @property
    def is_dirty(self) -> bool:
        return self.count != self.flushed_count

    def put(self, key_hash: int, log_offset: int, store_ms: int) -> None:
        """Add an entry; the caller has made sure that the file is not full."""
        view = self._view
        number = self.count
        position = self._entries_at + number * 20
        if position + 20 > self._reserved:
            self._reserve(position + 20)
        slot_at = 40 + key_hash % self._slots * 4
        previous = _read_slot(view, slot_at)[0]
        if not 0 < previous < number:
            previous = 0
            self._slots_used += 1
        if number == 1:
            self.begin_ms = store_ms
            self.begin_log_offset = log_offset
        seconds = (store_ms - self.begin_ms) // 1000 if store_ms > self.begin_ms else 0
        _write_entry(view, position, key_hash, log_offset, min(seconds, 0x7FFFFFFF), previous)
        _write_slot(view, slot_at, number)
        self.count = number + 1
        self.end_ms = store_ms
        self.end_log_offset = log_offset

    def put_rows(self, rows: list[Row], start: int) -> int:
        """`put` for the keys of rows from number `start` on, as long as that is simple; returns the first that is left."""
        done, count, fresh, last = index_rows(self._state, rows, start)
        if last >= 0:
            self._note(count, fresh, rows[last][0], rows[last][6])
        return done

    def put_range(self, log: memoryview, base: int, start: int, end: int) -> int:
        """The same for records of the log; returns where the first is that is left."""
        done, count, fresh, last, last_ms = index_range(self._state, log, base, start, end)
        if last >= 0:
            self._note(count, fresh, last, last_ms)
        return done

    def reserve_more(self) -> bool:
        """Whether there is more room now, because there was too little for any record."""
        end = self._entries_at + self.count * _ENTRY.size
        if self._reserved - end >= _RECORD_ENTRIES * _ENTRY.size or self._reserved >= self._file.size:
            return False
        self._reserve(max(self._reserved, end) + 1)
        return True

    @property
    def _state(self) -> IndexState:
        limit = min(self._capacity, (self._reserved - self._entries_at) // _ENTRY.size)
        return IndexState(self._view, self._slots, self.count, limit, self.begin_ms)

    def _note(self, count: int, fresh: int, log_offset: int, store_ms: int) -> None:
        self._slots_used += fresh
        self.count = count
        self.end_ms, self.end_log_offset = store_ms, log_offset

    def _write_slots(self, slots: array[int]) -> None:
        end = self._entries_at
        self._reserve(max(end, self._reserved))
        self._view[_HEADER.size : end] = _turned(slots).tobytes()

    def _reserve(self, end: int) -> None:
        end = min(-(-end // _RESERVE_BYTES) * _RESERVE_BYTES, self._file.size)
        self._file.reserve(self._reserved, end)
        self._file.forget(self._entries_at, self._reserved - _RESERVE_BYTES)
        self._reserved = end

    def find(self, key_hash: int, begin_ms: int, end_ms: int, limit: int, found: list[int]) -> None:
        """Add log offsets of matching entries, newest first, until `found` has `limit`."""
        view = self._view
        number = _read_slot(view, 40 + key_hash % self._slots * 4)[0]
        bound = self.count
        # Each entry points to an older one; anything else is damage, and following it could go round for ever.
        while 0 < number < bound and len(found) < limit:
            entry_hash, log_offset, seconds, previous = _ENTRY.unpack_from(view, self._entries_at + number * 20)
            # A message may be filed twice: it names the key twice, or a crash or a full disk came between two of its keys.
            is_new = not found or found[-1] != log_offset
            if is_new and entry_hash == key_hash and begin_ms <= self.begin_ms + seconds * 1000 <= end_ms:
                found.append(log_offset)
            bound, number = number, previous

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return self.count > 1 and self.begin_ms <= end_ms and self.end_ms >= begin_ms

    def flush(self) -> None:
        """Sync the entries, then the header that counts them. Safe to call from the flusher thread."""
        # The count is taken first: entries added while the sync runs are left to the next one.
        header = (
            self.begin_ms, self.end_ms, self.begin_log_offset, self.end_log_offset, self._slots_used, self.count,
        )  # fmt: skip
        self._file.sync()
        _HEADER.pack_into(self._view, 0, *header)
        self._file.sync()
        self.flushed_count = header[-1]
        self._file.forget(0, self._file.size)

    def drop_uncounted(self) -> None:
        """After a crash: make no slot point at an entry the header does not count."""
        end = self._entries_at
        slots = _turned(array("i", bytes(self._view[_HEADER.size : end])))
        if not slots or max(slots) < self.count:
            return
        slots = array("i", bytes(len(slots) * slots.itemsize))
        counted = self._view[end + 20 : end + self.count * 20]
        for number, (key_hash,) in enumerate(_HASH.iter_unpack(counted), 1):
            slots[key_hash % self._slots] = number
        self._write_slots(slots)

    def count_below(self, log_offset: int) -> int:
        """Number of the first entry of a message at or after `log_offset`: entries follow the log."""
        low, high = 1, self.count
        while low < high:
            middle = (low + high) // 2
            if _ENTRY.unpack_from(self._view, self._entries_at + middle * 20)[1] < log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def cut_back(self, count: int) -> None:
        """Forget the entries from number `count` on; the next flush brings the header in line."""
        self.count = min(self.count, max(count, 1))
        self._slots_used = min(self._slots_used, self.count)
        if self.count > 1:
            last = _ENTRY.unpack_from(self._view, self._entries_at + (self.count - 1) * 20)
            self.end_log_offset = last[1]
            # Entries know seconds: rather too late than too early, or a search by time would pass the file over.
            self.end_ms = self.begin_ms + last[2] * 1000 + 999
        self.drop_uncounted()
        self.flushed_count = 0

    def close(self) -> None:
        self._file.close()

    def delete(self) -> None:
        self.close()
        self._disk.remove(self.path)


def _turned(numbers: array[int]) -> array[int]:
    """Turn the bytes of each number round, from our order to the file's or back; the same array."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _is_possible(header: tuple[int, ...], entries: int) -> bool:
    """Whether numbers can be those of a header: an end far beyond the log would keep new messages out of the index."""
    begin_ms, end_ms, begin_log_offset, end_log_offset, slots_used, count = header
    return (
        min(header) >= 0
        and max(begin_ms, end_ms) <= _LATEST_MS
        and max(begin_log_offset, end_log_offset) <= _LAST_LOG_OFFSET
        and max(slots_used, count) <= entries
    )


def index_count(disk: Disk, path: Path) -> int:
    """The number the next entry of a file gets, by its header."""
    count: int = _HEADER.unpack(disk.read_range(path, 0, _HEADER.size))[-1]
    return max(count, 1)


def index_file_bytes(slots: int, entries: int) -> int:
    return _HEADER.size + slots * _SLOT.size + entries * _ENTRY.size
