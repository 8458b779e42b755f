"""The key index: finds messages by `topic#key`, newest first, through a hash table on disk.

    header 40   begin ms 8  end ms 8  begin log offset 8  end log offset 8  slots in use 4  next entry number 4 (from 1)
    slots       4 each: number of the newest entry of that slot, 0 = none
    entries     20 each: key hash 4  log offset 8  seconds after begin ms 4  previous entry of the slot 4

Only hashes are stored, so whoever asks checks the key of what is found. Entry 0 is never used. Files are named by the local
time of their making and filled one after the other.

The header counts. It is written by `flush`, and only after the entries and slots it counts were synced, so after a crash the
entries below it are whole, and those above it are dropped and made again from the log.
"""

from __future__ import annotations

import logging
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import itemgetter, mul
from pathlib import Path

from rocketline._impl import quick
from rocketline.clock import Clock
from rocketline.errors import WrongFiles
from rocketline.message import KEYS, TAGS, UNIQ_KEY
from rocketline.protocol.hashing import index_key_hash, java_string_hash
from rocketline.store.config import StoreConfig
from rocketline.store.disk import Disk, MappedFile
from rocketline.store.key_hashes import LANES, KeyHashes, add_tails
from rocketline.store.progress import IndexShape
from rocketline.store.record_runs import Row

log = logging.getLogger(__name__)

MAX_FOUND = 64
_HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")
_HASH = struct.Struct(">i16x")
_RESERVE_BYTES = 1 << 20
_LATEST_MS = 1 << 43
_LAST_LOG_OFFSET = 1 << 62

_MANY_KEYS = 6
"""Fewer are filed sooner one by one."""
_TAIL_CHARS = 8
_TAIL_POWERS: tuple[int, ...] = tuple(31**exponent for exponent in range(_TAIL_CHARS - 1, -1, -1))
_HEADS_KEPT = 16384
_LONGEST_KEPT = 512
"""Keys that are longer may be anything a peer thinks of, and nothing of them is remembered."""

_read_slot = _SLOT.unpack_from
_write_slot = _SLOT.pack_into
_write_entry = _ENTRY.pack_into
_pack_entry = _ENTRY.pack
_offset_of = itemgetter(0)
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

    def put_together(self, hashes: Sequence[int], log_offsets: Sequence[int], store_ms: int) -> None:
        """`put` for some entries of one time; the caller has made sure that there is room for all."""
        view, slots, number = self._view, self._slots, self.count
        position = self._entries_at + number * 20
        seconds = min((store_ms - self.begin_ms) // 1000, 0x7FFFFFFF) if store_ms > self.begin_ms else 0
        entries: list[bytes] = []
        for key_hash, log_offset in zip(hashes, log_offsets):
            slot_at = 40 + key_hash % slots * 4
            previous = _read_slot(view, slot_at)[0]
            if not 0 < previous < number:
                previous = 0
                self._slots_used += 1
            _write_slot(view, slot_at, number)
            entries.append(_pack_entry(key_hash, log_offset, seconds, previous))
            number += 1
        view[position : position + len(entries) * 20] = b"".join(entries)
        self.count = number
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

    def _chain(self, hashes: array[int], first: int) -> list[int]:
        """Make the slots point at new entries, numbered from `first`; returns which ones they pointed at before."""
        numbers = array("i", range(first, first + len(hashes)))
        ours, size = _in_file_order(numbers), self._slots
        found: list[int] = []
        add = found.append
        # One number at a time through `struct` would take twice as long.
        with self._view[_HEADER.size : self._entries_at].cast("i") as slots:
            for key_hash, number in zip(hashes, ours):
                slot = key_hash % size
                add(slots[slot])
                slots[slot] = number
        return [old if 0 < old < new else 0 for old, new in zip(_in_file_order(array("i", found)), numbers)]

    def _write_slots(self, slots: array[int]) -> None:
        end = self._entries_at
        self._reserve(max(end, self._reserved))
        self._view[_HEADER.size : end] = _in_file_order(slots).tobytes()

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
        slots = _in_file_order(array("i", bytes(self._view[_HEADER.size : end])))
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


def _in_file_order(numbers: array[int]) -> array[int]:
    """Numbers with their bytes turned round, from ours to the file's order or back."""
    turned = array(numbers.typecode, numbers)
    if sys.byteorder == "little":
        turned.byteswap()
    return turned


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


def keys_of(rows: Sequence[Row]) -> tuple[list[tuple[str, str]], list[Row]]:
    """(topic, key) of everything the rows are filed under, in order, and for each the row."""
    keys: list[tuple[str, str]] = []
    owners: list[Row] = []
    add_key, add_owner, unique_name = keys.append, owners.append, UNIQ_KEY
    for row in rows:
        properties = row[8]
        unique = properties.get(unique_name)
        if unique:
            add_key((row[2], unique))
            add_owner(row)
            if len(properties) == 1:
                continue
        for word in properties.get(KEYS, "").split():
            add_key((row[2], word))
            add_owner(row)
        if tags := properties.get(TAGS):
            add_key((row[2], "T#" + tags))
            add_owner(row)
    return keys, owners


def _is_index_name(name: str) -> bool:
    return name.isascii() and name.isdigit()


class KeyIndex:
    """The chain of index files, oldest first."""

    def __init__(self, disk: Disk, folder: Path, config: StoreConfig, clock: Clock) -> None:
        self.files: list[IndexFile] = []
        self._disk = disk
        self._folder = folder
        self._slots = config.index_slots
        self._entries = config.index_entries
        self._clock = clock
        self._indexed_to = -1
        self._heads: dict[str, int] = {}
        self._hashes = KeyHashes()

    def load(self, can_rebuild: bool = False) -> bool:
        """Take up the files that are there. One of a wrong size: False when it can be built anew, else a StoreError."""
        wanted = index_file_bytes(self._slots, self._entries)
        for name, size, is_folder in self._disk.list(self._folder):
            if is_folder or not _is_index_name(name):
                continue
            if size == 0:
                self._disk.remove(self._folder / name)
                continue
            if size != wanted:
                problem = (
                    f"{self._folder / name} has {size} bytes, but index files of {wanted} bytes are configured "
                    f"({self._slots} slots, {self._entries} entries); start with the settings it was written with"
                )
                if not can_rebuild:
                    raise WrongFiles(problem)
                log.warning("%s", problem)
                return False
            self.files.append(IndexFile(self._disk, self._folder / name, self._slots, self._entries))
        self._note_end()
        return not (can_rebuild and any(file.is_damaged for file in self.files))

    def _note_end(self) -> None:
        self._indexed_to = max((file.end_log_offset for file in self.files if file.count > 1), default=-1)

    def recover_from_crash(self, safe_ms: int) -> int | None:
        """Keep what is whole. Returns the log offset from which entries are missing besides those after `safe_ms`."""
        missing_from: int | None = None
        kept: list[IndexFile] = []
        for file in self.files:
            whole = file.count > 1 and file.end_ms <= safe_ms and (not kept or kept[-1].is_full)
            if whole:
                if not file.is_full:
                    file.drop_uncounted()
                kept.append(file)
                continue
            if file.is_damaged:
                missing_from = 0
            elif file.count > 1 and (missing_from is None or file.begin_log_offset < missing_from):
                missing_from = file.begin_log_offset
            file.delete()
        self.files = kept
        self._note_end()
        # The header may have been written between two keys of its last message: that one is filed again.
        self._indexed_to -= 1
        return missing_from

    @property
    def shape(self) -> IndexShape | None:
        """What of the index is on disk; called by the flusher thread."""
        files = list(self.files)
        if not files:
            return None
        newest = next((file for file in files if file.is_dirty), files[-1])
        return IndexShape(files[0].path.name, newest.path.name, newest.flushed_count, files.index(newest) + 1)

    def lacks(self, shape: IndexShape | None, log_min_offset: int) -> bool:
        """Whether something of what was once on disk is missing."""
        if shape is None:
            return False
        counts = {file.path.name: file.count for file in self.files}
        if counts.get(shape.newest, 0) < shape.newest_count:
            return True
        if shape.oldest not in counts:
            return self.files[0].begin_log_offset > log_min_offset
        return sum(int(name) <= int(shape.newest) for name in counts) < shape.file_count

    def keep_marked(self, shape: IndexShape | None) -> None:
        """After a crash of our own: keep what was on disk at the mark; the rest is filed again from the log.

        Later headers are not believed. They may be in the page cache only, or count entries of messages the log has lost.
        """
        kept: list[IndexFile] = []
        for file in self.files:
            if shape is None or int(file.path.name) > int(shape.newest):
                file.delete()
                continue
            if file.path.name == shape.newest:
                file.cut_back(shape.newest_count)
            kept.append(file)
        self.files = kept
        self._note_end()
        # The mark may have been made between two keys of its last message: that one is filed again.
        self._indexed_to -= 1

    def note_log_end(self, log_offset: int) -> None:
        """Messages from here on are new, whatever a header says that was on disk before the log was."""
        self._indexed_to = min(self._indexed_to, log_offset - 1)

    def put(self, topic: str, log_offset: int, store_ms: int, properties: dict[str, str]) -> None:
        """File a message under its unique id, its keys and its tag, in this order, unless that was done before."""
        if log_offset <= self._indexed_to:
            return
        if unique := properties.get(UNIQ_KEY):
            self._put(f"{topic}#{unique}", log_offset, store_ms)
        if keys := properties.get(KEYS):
            for key in keys.split():
                self._put(f"{topic}#{key}", log_offset, store_ms)
        if tags := properties.get(TAGS):
            self._put(f"{topic}#T#{tags}", log_offset, store_ms)
        self._indexed_to = log_offset

    def put_at_once(self, rows: list[Row]) -> int:
        """File as many of the first rows as there is room for, without asking the disk for more; returns how many.

        The compiled twin's; rolled back ones are passed over. All lie behind what was filed before.
        """
        file = self.files[-1] if self.files else None
        if file is None or file.count <= 1 or not rows or rows[0][0] <= self._indexed_to:
            return 0
        done = file.put_rows(rows, 0)
        if done:
            self._indexed_to = rows[done - 1][0]
        return done

    def put_stretch(self, log: memoryview, base: int, start: int, end: int) -> bool:
        """File records straight from the log, without asking the disk for more; False when some are left to be `put`.

        The compiled twin's. They lie behind what was filed before, or have to be `put` as well.
        """
        file = self.files[-1] if self.files else None
        if file is None or file.count <= 1 or start <= self._indexed_to:
            return False
        done = file.put_stretch(log, base, start, end)
        if done > start:
            # Not the offset of the last record, but one that is not below it, nor above the next one's.
            self._indexed_to = done - 1
        return done == end

    def put_noted(self, texts: list[str], owners: list[int], store_ms: int, last: int) -> None:
        """File records, which were stored together, under `topic#key` each; `owners` are the log offsets of those who have
        the keys, `last` is that of the last record."""
        if owners and owners[0] <= self._indexed_to:
            left = bisect_right(owners, self._indexed_to)
            texts, owners = texts[left:], owners[left:]
        file = self.files[-1] if self.files else None
        if len(texts) >= _MANY_KEYS and file is not None and file.has_room(len(texts)):
            file.put_together(self._hashes_of(texts), owners, store_ms)
        else:
            for text, log_offset in zip(texts, owners):
                self._put(text, log_offset, store_ms)
                self._indexed_to = log_offset - 1  # it may have more keys
        self._indexed_to = max(self._indexed_to, last)

    def _hashes_of(self, texts: list[str]) -> Sequence[int]:
        """`_hash` of each."""
        tails = "".join([text[-_TAIL_CHARS:] for text in texts])
        if len(texts) <= LANES and len(tails) == _TAIL_CHARS * len(texts) and tails.isascii():
            heads = self._heads
            try:
                return add_tails(tails.encode(), [heads[text[:-_TAIL_CHARS]] for text in texts])
            except KeyError:
                pass
        return [self._hash(text) for text in texts]

    def put_many(self, rows: Sequence[Row]) -> None:
        """`put` for each row of a stretch of the log, in a fraction of the time."""
        rows = rows[bisect_right(rows, self._indexed_to, key=_offset_of) :]
        if _file_keys is not None:
            self._put_rows(list(rows))
            return
        keys, owners = keys_of(rows)
        self._put_run(self._hashes.of(keys), [row[0] for row in owners], [row[6] for row in owners])
        if rows:
            self._indexed_to = max(self._indexed_to, rows[-1][0])

    def _put_rows(self, rows: list[Row]) -> None:
        """The compiled road; what begins a file, or does not fit what is reserved of one, goes the usual one."""
        done = 0
        while done < len(rows):
            if self.files and self.files[-1].count > 1:
                done = self.files[-1].put_rows(rows, done)
                if done:
                    self._indexed_to = max(self._indexed_to, rows[done - 1][0])
            if done < len(rows):
                row = rows[done]
                self.put(row[2], row[0], row[6], row[8])
                done += 1

    def _put_run(self, hashes: array[int], log_offsets: list[int], store_times: list[int]) -> None:
        done = 0
        while done < len(hashes):
            files = self.files
            file = files[-1] if files and files[-1].count < self._entries else self._add_file()
            end = done + self._entries - file.count
            file.put_run(hashes[done:end], log_offsets[done:end], store_times[done:end])
            done = end

    def _put(self, text: str, log_offset: int, store_ms: int) -> None:
        files = self.files
        file = files[-1] if files and files[-1].count < self._entries else self._add_file()
        file.put(self._hash(text), log_offset, store_ms)

    def _hash(self, text: str) -> int:
        """`index_key_hash` of `topic#key`, with the share of all but the last characters remembered.

        Unique ids of one producer differ only in their end, a millisecond and a counter, for a minute at a time.
        """
        if not text.isascii() or not _TAIL_CHARS < len(text) <= _LONGEST_KEPT:
            return index_key_hash(*text.split("#", 1))
        head = text[:-_TAIL_CHARS]
        share = self._heads.get(head)
        if share is None:
            if len(self._heads) >= _HEADS_KEPT:
                self._heads.clear()
            share = self._heads[head] = java_string_hash(head) * 31**_TAIL_CHARS & 0xFFFFFFFF
        total: int = (share + sum(map(mul, text[-_TAIL_CHARS:].encode(), _TAIL_POWERS))) & 0xFFFFFFFF
        if total < 0x80000000:
            return total
        return 0x100000000 - total if total > 0x80000000 else 0

    def _add_file(self) -> IndexFile:
        self._disk.make_folder(self._folder)
        file = IndexFile(self._disk, self._folder / self._new_name(), self._slots, self._entries)
        self.files.append(file)
        return file

    def _new_name(self) -> str:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000)
        name = int(f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}")
        if self.files:
            # Names sort as the files were made, also when the clock was set back.
            name = max(name, int(self.files[-1].path.name) + 1)
        return str(name)

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Log offsets of messages whose key has the right hash, newest first."""
        found: list[int] = []
        key_hash = self._hash(f"{topic}#{key}")
        for file in reversed(self.files):
            if file.overlaps(begin_ms, end_ms):
                file.find(key_hash, begin_ms, end_ms, limit, found)
            if len(found) >= limit or (file.count > 1 and file.begin_ms < begin_ms):
                break
        return found

    @property
    def updated(self) -> tuple[int, int]:
        """(store time, log offset) of the last message indexed."""
        if not self.files:
            return 0, 0
        return self.files[-1].end_ms, self.files[-1].end_log_offset

    def flush(self) -> None:
        """Bring all entries to the disk, older files first; called by the flusher thread."""
        for file in list(self.files):
            if file.is_dirty:
                file.flush()

    def take_below(self, log_min_offset: int) -> list[Path]:
        """Let go of the files that only know messages below an offset, except the last; the caller removes them."""
        taken: list[Path] = []
        # One that the flusher still has to write is left to it.
        while len(self.files) > 1 and self.files[0].end_log_offset < log_min_offset and not self.files[0].is_dirty:
            file = self.files.pop(0)
            file.close()
            taken.append(file.path)
        return taken

    def destroy(self) -> None:
        for file in self.files:
            file.close()
        self.files.clear()
        for name, _, is_folder in self._disk.list(self._folder):
            if not is_folder and _is_index_name(name):
                self._disk.remove(self._folder / name)
        self._note_end()

    def close(self) -> None:
        for file in self.files:
            file.close()
