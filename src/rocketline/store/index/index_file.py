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
from collections.abc import Callable, Sequence
from pathlib import Path

from rocketline._impl import quick
from rocketline.store.files.disk import Disk, MappedFile
from rocketline.store.recovery.record_runs import Row

log = logging.getLogger(__name__)

_HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")
_HASH = struct.Struct(">i16x")
_RESERVE_BYTES = 1 << 20
_LATEST_MS = 1 << 43
_LAST_LOG_OFFSET = 1 << 62

_read_slot = _SLOT.unpack_from
_write_slot = _SLOT.pack_into
_write_entry = _ENTRY.pack_into
_file_keys: Callable[[memoryview, int, int, int, int, list[Row], int], tuple[int, int, int, int]] | None = quick(
    "file_keys"
)
_file_stretch: Callable[..., tuple[int, int, int, int, int]] | None = quick("file_stretch")


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

    def has_room(self, count: int) -> bool:
        """Whether so many more entries fit what is reserved, and others are there already."""
        end = self.count + count
        return self.count > 1 and end <= self._capacity and self._entries_at + end * 20 <= self._reserved

    def put_together(self, hashes: array[int], log_offsets: Sequence[int], store_ms: int) -> None:
        """`put` for some entries of one time; the caller has made sure that there is room for all."""
        number, count = self.count, len(hashes)
        position = self._entries_at + number * 20
        seconds = min((store_ms - self.begin_ms) // 1000, 0x7FFFFFFF) if store_ms > self.begin_ms else 0
        previous = self._chain(hashes, number)
        # An entry is five words; column by column they are made sooner than entry by entry.
        words = array("I", bytes(count * 20))
        words[0::5] = hashes
        words[1::5], words[2::5] = _high_and_low(log_offsets)
        words[3::5] = array("I", [seconds]) * count
        words[4::5] = previous
        self._view[position : position + count * 20] = _turned(words).tobytes()
        self._slots_used += previous.count(0)
        self.count = number + count
        self.end_ms, self.end_log_offset = store_ms, log_offsets[-1]

    def put_run(self, hashes: array[int], log_offsets: Sequence[int], store_times: Sequence[int]) -> None:
        """`put` for many entries; the caller has made sure that there is room for all."""
        first, count = self.count, len(hashes)
        position, end = self._entries_at + first * 20, self._entries_at + (first + count) * 20
        if end > self._reserved:
            self._reserve(end)
        if first == 1:
            self.begin_ms, self.begin_log_offset = store_times[0], log_offsets[0]
        begin_ms = self.begin_ms
        previous = self._chain(hashes, first)
        seconds = [(store_ms - begin_ms) // 1000 if store_ms > begin_ms else 0 for store_ms in store_times]
        if max(seconds) > 0x7FFFFFFF:
            seconds = [min(of, 0x7FFFFFFF) for of in seconds]
        self._view[position:end] = b"".join(map(_ENTRY.pack, hashes, log_offsets, seconds, previous))
        self._slots_used += previous.count(0)
        self.count = first + count
        self.end_ms, self.end_log_offset = store_times[-1], log_offsets[-1]

    def put_rows(self, rows: list[Row], start: int) -> int:
        """File rows from number `start` on as long as there is room; returns the number of the first that is left."""
        assert _file_keys is not None
        limit = min(self._capacity, (self._reserved - self._entries_at) // 20)
        done, count, fresh, last = _file_keys(self._view, self._slots, self.count, limit, self.begin_ms, rows, start)
        if last >= 0:
            self._slots_used += fresh
            self.count = count
            self.end_ms, self.end_log_offset = rows[last][6], rows[last][0]
        return done

    def put_stretch(self, log: memoryview, base: int, start: int, end: int) -> int:
        """File the records of a stretch of the log as long as there is room; returns where the first is that is left."""
        assert _file_stretch is not None
        limit = min(self._capacity, (self._reserved - self._entries_at) // 20)
        done, count, fresh, last, last_ms = _file_stretch(
            self._view, self._slots, self.count, limit, self.begin_ms, log, base, start, end
        )
        if last >= 0:
            self._slots_used += fresh
            self.count = count
            self.end_ms, self.end_log_offset = last_ms, last
        return done

    def _chain(self, hashes: array[int], first: int) -> array[int]:
        """Make the slots point at new entries, numbered from `first`; returns which ones they pointed at before."""
        numbers = range(first, first + len(hashes))
        slots, size, found = self._slot_words, self._slots, array("I")
        found_next = found.append
        for key_hash, number in zip(hashes, _turned(array("I", numbers))):
            slot = key_hash % size
            found_next(slots[slot])
            slots[slot] = number
        if max(_turned(found)) < first:
            return found
        # Two of the new ones share a slot, or it is damaged.
        return array("I", [old if old < new else 0 for old, new in zip(found, numbers)])

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


def _high_and_low(numbers: Sequence[int]) -> tuple[array[int], array[int]]:
    """The upper and the lower half of numbers of 64 bits."""
    halves = array("I", array("Q", numbers).tobytes())
    return (halves[1::2], halves[0::2]) if sys.byteorder == "little" else (halves[0::2], halves[1::2])


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
