"""The key index: finds messages by `topic#key`, newest first, through files that are hash tables (`index_file.py`).

Only hashes are stored, so whoever asks checks the key of what is found. Files are named by the local time of their making
and filled one after the other.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from datetime import datetime
from operator import itemgetter
from pathlib import Path

from rocketline.clock import Clock
from rocketline.errors import WrongFiles
from rocketline.protocol.hashing import index_key_hash
from rocketline.protocol.records import index_keys
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.flush.progress import IndexShape
from rocketline.store.index.index_file import IndexFile, index_file_bytes
from rocketline.store.recovery.record_runs import Row

log = logging.getLogger(__name__)

MAX_FOUND = 64

_ROWS_AT_ONCE = 64
_offset_of = itemgetter(0)


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

    def cut_back(self, log_offset: int) -> None:
        """Forget the messages from `log_offset` on: the log does not have them any more."""
        kept: list[IndexFile] = []
        for file in self.files:
            count = file.count_below(log_offset)
            if count == 1 and file.count > 1:
                file.delete()
                continue
            if count < file.count:
                file.cut_back(count)
            kept.append(file)
        self.files = kept
        self._note_end()
        self.note_log_end(log_offset)

    def note_log_end(self, log_offset: int) -> None:
        """Messages from here on are new, whatever a header says that was on disk before the log was."""
        self._indexed_to = min(self._indexed_to, log_offset - 1)

    def put(self, topic: str, log_offset: int, store_ms: int, properties: dict[str, str]) -> None:
        """File a message under its unique id, its keys and its tag, in this order, unless that was done before."""
        if log_offset <= self._indexed_to:
            return
        for key in index_keys(properties):
            files = self.files
            file = files[-1] if files and files[-1].count < self._entries else self._add_file()
            file.put(index_key_hash(topic, key), log_offset, store_ms)
        self._indexed_to = log_offset

    def put_rows(self, rows: list[Row]) -> None:
        """`put` for each row, in the order of the log."""
        done = bisect_right(rows, self._indexed_to, key=_offset_of)
        while done < len(rows):
            if self.files and self.files[-1].count > 1:
                done = self.files[-1].put_rows(rows, done)
                if done:
                    self._indexed_to = max(self._indexed_to, rows[done - 1][0])
            # What begins a file, or does not fit what is reserved of one; in Python all.
            for row in rows[done : done + _ROWS_AT_ONCE]:
                self.put(row[2], row[0], row[6], row[8])
                done += 1

    def put_range(self, log: memoryview, base: int, start: int, end: int) -> bool:
        """File the records from `start` to `end` straight from the log; False when some are left to be `put`."""
        file = self.files[-1] if self.files else None
        if file is None or file.count <= 1 or start <= self._indexed_to:
            return False
        done = start
        while True:
            begin, done = done, file.put_range(log, base, done, end)
            if done > begin:
                # Not the offset of the last record, but one that is not below it, nor above the next one's.
                self._indexed_to = done - 1
            if done == end or not file.reserve_more():
                return done == end

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
        key_hash = index_key_hash(topic, key)
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
