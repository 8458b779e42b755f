"""Plans which parts of which log files the tasks of a job read.

A task reads a `LogRange`: a part of one file that begins and ends where records do. Files begin with a record, so a
whole file is a range. To cut a file, the exact start of a record must be known: bytes that look like a record can be
part of a message's body. Consume queues list such starts; in a log without queues, the sizes of its records are
followed, which means reading it.

The end of the log is determined once, when a job is planned: it is the end of the last sound record. While a broker
writes, or after it was killed, bytes behind that are unfinished and ignored; otherwise they are damage, and the last
range extends to the end of the file, so that its reader finds the damage.

`plan_ranges` reads no files itself: it gets all facts from a `LogView`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from rocketline.errors import CorruptRecord
from rocketline.protocol.record_layout import MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from rocketline.protocol.records import read_start
from rocketline.spark.record_table import Positions, record_starts
from rocketline.store.config import UNIT_BYTES
from rocketline.store.files.disk import Disk, is_locked
from rocketline.store.files.segment import MapPool, Segment
from rocketline.store.log.commit_log import record_store_ms
from rocketline.store.recovery.scan import LogScan, sound_record
from rocketline.store.tools.folder import QUEUE_FOLDER, ChainFile, StoreFolder, chain_files, queue_folders, segments_of
from rocketline.store.tools.queue_check import QueueUnits

_CLOCK_STEP_MS = 600_000
"""Files are skipped by time only with this margin: store times ascend, unless a clock was set back."""

_MAX_QUEUES = 16
_CHUNK_BYTES = 4 << 20
_CHECKED_BYTES = 16 << 20
"""How much of the end of a log is checked record by record when no queue lists its last records."""


@dataclass(frozen=True)
class LogWindow:
    """The part of a log to read, by offsets and store times; None means no limit. Ends are exclusive."""

    start_offset: int | None = None
    end_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


EVERYTHING = LogWindow()


@dataclass(frozen=True)
class LogRange:
    """A part of one file: the records that begin from `start` on, where one does, and before `end`."""

    path: Path
    base: int
    """Log offset of the file's first byte."""
    start: int
    end: int
    limit: int
    """The end of the log in this file: the last record of a range may extend to it."""


class LogView(Protocol):
    """The facts about a log that planning needs."""

    @property
    def files(self) -> Sequence[ChainFile]: ...

    @property
    def next_offset(self) -> int:
        """Where the log ends."""

    def first_ms(self, file: ChainFile) -> int:
        """The store time of the first record of a file; 0 when it cannot be read."""

    def start_before(self, file: ChainFile, log_offset: int) -> int:
        """The last known start of a record of this file up to `log_offset`; at worst the start of the file."""


def plan_ranges(log: LogView, window: LogWindow, partition_bytes: int) -> list[LogRange]:
    """The ranges that cover the window, in order, if possible none much larger than `partition_bytes`.

    The first may begin before the window, with the record that contains its start: the reader selects rows.
    """
    end = log.next_offset if window.end_offset is None else min(log.next_offset, window.end_offset)
    ranges: list[LogRange] = []
    for file in _files_in_time(log, window):
        file_end = min(end, file.base + file.size)
        first = max(file.base, window.start_offset or 0)
        if first >= file_end:
            continue
        cuts = [log.start_before(file, first), *_cuts(log, file, first, file_end, partition_bytes), file_end]
        limit = min(log.next_offset, file.base + file.size)
        ranges += [LogRange(file.path, file.base, start, stop, limit) for start, stop in pairwise(cuts)]
    return ranges


def _cuts(log: LogView, file: ChainFile, start: int, end: int, partition_bytes: int) -> Iterator[int]:
    """Log offsets to cut at, ascending; the parts are as equal as the known starts of records allow."""
    pieces = -(-(end - start) // partition_bytes)
    previous = start
    for number in range(1, pieces):
        cut = log.start_before(file, start + (end - start) * number // pieces)
        if cut > previous:
            yield cut
            previous = cut


def _files_in_time(log: LogView, window: LogWindow) -> Iterable[ChainFile]:
    """Files that may contain records of the wanted time, judged by the first records of a file and of the next one."""
    files = list(log.files)
    if window.since_ms is None and window.until_ms is None:
        return files
    begins = [log.first_ms(file) for file in files]
    last = len(files) - 1
    since = (window.since_ms or 0) - _CLOCK_STEP_MS
    until = None if window.until_ms is None else window.until_ms + _CLOCK_STEP_MS
    return [
        file
        for number, file in enumerate(files)
        if not (number < last and 0 < begins[number + 1] < since) and (until is None or begins[number] < until)
    ]


class StoredLog:
    """The log of a store folder, opened read-only; close it after planning."""

    def __init__(self, folder: StoreFolder, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        found = chain_files(disk, folder.log)
        self._segments = segments_of(disk, found)
        self.files = [ChainFile(file.path, file.base, segment.size) for file, segment in zip(found, self._segments)]
        self._by_base = {segment.base: segment for segment in self._segments}
        self._queues = self._largest_queues()
        self._walked: tuple[int, Positions] = (-1, np.empty(0, np.int64))
        self.next_offset = self._end()

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    def first_ms(self, file: ChainFile) -> int:
        segment = self._by_base[file.base]
        if segment.size < MIN_RECORD_BYTES or read_start(segment.open(), 0)[1] not in (MAGIC_V1, MAGIC_V2):
            return 0
        return record_store_ms(segment.open(), 0)

    def start_before(self, file: ChainFile, log_offset: int) -> int:
        if log_offset <= file.base:
            return file.base
        segment = self._by_base[file.base]
        listed = self._listed_before(segment, log_offset)
        if listed is not None:
            return listed
        starts = self._starts(segment)
        found = int(np.searchsorted(starts, log_offset, "right"))
        return int(starts[found - 1]) if found else segment.base

    def _largest_queues(self) -> list[QueueUnits]:
        """The queues with the most files: a few are enough to find starts of records everywhere."""
        root = self._folder.root
        if root is None:
            return []
        chains = [chain_files(self._disk, path) for _, _, path in queue_folders(self._disk, root / QUEUE_FOLDER)]
        chains = [chain for chain in chains if chain and not any(file.size % UNIT_BYTES for file in chain)]
        chains.sort(key=lambda chain: sum(file.size for file in chain), reverse=True)
        pool = MapPool(_MAX_QUEUES)
        return [
            QueueUnits([Segment(self._disk, file.path, file.base, file.size, pool=pool) for file in chain])
            for chain in chains[:_MAX_QUEUES]
        ]

    def _listed_before(self, segment: Segment, log_offset: int) -> int | None:
        """The last record of this file up to an offset that some queue lists and that is sound."""
        listed = {_last_unit_before(queue, log_offset) for queue in self._queues}
        for found in sorted((offset for offset in listed if offset >= segment.base), reverse=True):
            try:
                sound_record(segment, found - segment.base, segment.size)
            except CorruptRecord:
                continue
            return found
        return None

    def _starts(self, segment: Segment) -> Positions:
        """The starts of all records of a file, found by their sizes; kept for the last file."""
        if self._walked[0] != segment.base:
            self._walked = segment.base, np.concatenate([np.empty(0, np.int64), *_walk(segment)])
        return self._walked[1]

    def _end(self) -> int:
        used = [segment for segment in self._segments if any(segment.peek(0, 8))]
        if not used:
            return self._segments[0].base if self._segments else 0
        segment = used[-1]
        scan = LogScan([segment], self._near_end(segment))
        while True:
            for _ in scan:
                pass
            if scan.skip() is None:
                break
        if not self._is_unfinished() and scan.data_follows():
            return segment.next_base
        return scan.next_log_offset

    def _near_end(self, segment: Segment) -> int:
        listed = self._listed_before(segment, segment.next_base)
        if listed is not None:
            return listed
        starts = self._starts(segment)
        return int(starts[np.searchsorted(starts, starts[-1] - _CHECKED_BYTES)]) if len(starts) else segment.base

    def _is_unfinished(self) -> bool:
        """Whether a broker has the store open or was killed. The lock is visible only on its machine, the abort file
        everywhere."""
        root = self._folder.root
        return root is not None and (is_locked(root / "lock") or self._disk.exists(root / "abort"))


def _walk(segment: Segment) -> Iterator[Positions]:
    position = 0
    while segment.size - position >= MIN_RECORD_BYTES:
        chunk = segment.peek(position, min(_CHUNK_BYTES, segment.size - position))
        starts, stop = record_starts(chunk)
        if not stop:
            # A record larger than the chunk, or no record.
            size, magic = read_start(chunk, 0)
            if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_RECORD_BYTES <= size <= segment.size - position:
                return
            starts, stop = np.zeros(1, np.int64), size
        yield starts + (segment.base + position)
        position += stop


def _last_unit_before(queue: QueueUnits, log_offset: int) -> int:
    """The greatest log offset up to the given one that a queue lists; -1 when there is none."""
    low, high = queue.first, queue.end()
    while low < high:
        middle = (low + high) // 2
        if queue.unit(middle)[0] <= log_offset:
            low = middle + 1
        else:
            high = middle
    return queue.unit(low - 1)[0] if low > queue.first else -1


def plan_folder(folder: StoreFolder, disk: Disk, window: LogWindow, partition_bytes: int) -> list[LogRange]:
    """The ranges of one store."""
    with closing(StoredLog(folder, disk)) as log:
        return plan_ranges(log, window, partition_bytes)
