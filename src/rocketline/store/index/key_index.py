"""The key index: finds messages by `topic#key`, newest first, through files that are hash tables (`index_file.py`).

Only hashes are stored, so whoever asks checks the key of what is found. Files are named by the local time of their making
and filled one after the other.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from operator import add, itemgetter, mul
from pathlib import Path

from rocketline._impl import quick
from rocketline.clock import Clock
from rocketline.errors import WrongFiles
from rocketline.message import KEYS, TAGS, UNIQ_KEY
from rocketline.protocol.hashing import index_key_hash, java_string_hash
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.flush.progress import IndexShape
from rocketline.store.index.index_file import IndexFile, index_file_bytes
from rocketline.store.index.key_hashes import END_BYTES, LANES, KeyHashes, add_tails
from rocketline.store.recovery.record_runs import Row

log = logging.getLogger(__name__)

MAX_FOUND = 64

_MANY_KEYS = 6
"""Fewer are filed sooner one by one."""
_END_POWERS: tuple[int, ...] = tuple(31**exponent for exponent in range(END_BYTES - 1, -1, -1))
_SHARES_KEPT = 16384
_LONGEST_KEPT = 512
"""Keys that are longer may be anything a peer thinks of, and nothing of them is remembered."""

_offset_of = itemgetter(0)
_is_compiled = quick("file_keys") is not None


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


def _name(topic: str, key: str) -> bytes:
    return f"{topic}#{key}".encode("utf-8", "replace")


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
        self._shares: dict[bytes, int] = {}
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
            self._put(_name(topic, unique), log_offset, store_ms)
        if keys := properties.get(KEYS):
            for key in keys.split():
                self._put(_name(topic, key), log_offset, store_ms)
        if tags := properties.get(TAGS):
            self._put(_name(topic, f"T#{tags}"), log_offset, store_ms)
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

    def put_noted(self, starts: list[bytes], ends: list[bytes], owners: list[int], store_ms: int, last: int) -> None:
        """File records, which were stored together, under `topic#key` each, cut before its last eight bytes; `owners` are
        the log offsets of those who have the keys, `last` is that of the last record."""
        if owners and owners[0] <= self._indexed_to:
            left = bisect_right(owners, self._indexed_to)
            starts, ends, owners = starts[left:], ends[left:], owners[left:]
        file = self.files[-1] if self.files else None
        if len(owners) >= _MANY_KEYS and file is not None and file.has_room(len(owners)):
            file.put_together(self._hashes_of(starts, ends), owners, store_ms)
        else:
            for start, end, log_offset in zip(starts, ends, owners):
                self._put(start + end, log_offset, store_ms)
                self._indexed_to = log_offset - 1  # it may have more keys
        self._indexed_to = max(self._indexed_to, last)

    def _hashes_of(self, starts: list[bytes], ends: list[bytes]) -> array[int]:
        """`_hash` of each."""
        text = b"".join(ends)
        if len(starts) > LANES or len(text) != END_BYTES * len(starts) or not text.isascii():
            return array("I", map(self._hash, map(add, starts, ends)))
        known = self._shares
        try:
            shares = [known[start] for start in starts]
        except KeyError:
            shares = [self._share(start) for start in starts]
        return add_tails(text, shares)

    def put_many(self, rows: Sequence[Row]) -> None:
        """`put` for each row of a stretch of the log, in a fraction of the time."""
        rows = rows[bisect_right(rows, self._indexed_to, key=_offset_of) :]
        if _is_compiled:
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

    def _put(self, name: bytes, log_offset: int, store_ms: int) -> None:
        files = self.files
        file = files[-1] if files and files[-1].count < self._entries else self._add_file()
        file.put(self._hash(name), log_offset, store_ms)

    def _hash(self, name: bytes) -> int:
        """`index_key_hash` of `topic#key`."""
        end = name[-END_BYTES:]
        if len(end) < END_BYTES or not end.isascii():
            return index_key_hash(*name.decode("utf-8", "replace").split("#", 1))
        start = name[:-END_BYTES]
        share = self._shares.get(start)
        if share is None:
            share = self._share(start)
        total: int = (share + sum(map(mul, end, _END_POWERS))) & 0xFFFFFFFF
        if total < 0x80000000:
            return total
        return 0x100000000 - total if total > 0x80000000 else 0

    def _share(self, start: bytes) -> int:
        """What all but the last eight bytes add to the hash, remembered.

        Unique ids of one producer differ only in their end, a millisecond and a counter, for a minute at a time.
        """
        share = self._shares.get(start)
        if share is None:
            share = java_string_hash(start.decode("utf-8", "replace")) * 31**END_BYTES & 0xFFFFFFFF
            if len(start) <= _LONGEST_KEPT:
                if len(self._shares) >= _SHARES_KEPT:
                    self._shares.clear()
                self._shares[start] = share
        return share

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
        key_hash = self._hash(_name(topic, key))
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
