"""Which parts of which log files the tasks of a job read.

A task reads a `LogRange`: a stretch of one file that begins and ends where records do. Files begin with a record, so a
file is a range by itself. To cut a file into smaller ones, a place must be known where a record begins, and it must be
certain: bytes that look like a record can lie in a message's body. Consume queues know such places without anybody
reading the log; a log without queues is walked by the sizes of its records, which reads it.

How far the log goes is found once, when a job is planned: up to the last sound record at that moment. While a broker is
writing, or after it was killed, what lies behind is unfinished and does not count; otherwise it is damage, and the last
range goes on to the file's end so that whoever reads it finds out.

`plan_ranges` is pure: it asks a `LogView` for what it needs to know.
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
"""Store times ascend, unless somebody sets the clock back: by no more than this, if files are to be skipped by time."""

_QUEUES_ASKED = 16
_CHUNK_BYTES = 4 << 20
_CHECKED_BYTES = 16 << 20
"""How much of a log's end is read record by record when no queue says where its last records are."""


@dataclass(frozen=True)
class LogWindow:
    """Which part of a log is wanted; what is None is open. Ends are exclusive."""

    start_offset: int | None = None
    end_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


EVERYTHING = LogWindow()


@dataclass(frozen=True)
class LogRange:
    """A stretch of one file: the records that begin from `start` on, where one does, and before `end`."""

    path: Path
    base: int
    """Log offset of the file's first byte."""
    start: int
    end: int
    limit: int
    """What belongs to the log ends here in this file: the last record of a range may reach so far."""


class LogView(Protocol):
    """What planning needs to know of a log."""

    @property
    def files(self) -> Sequence[ChainFile]: ...

    @property
    def next_offset(self) -> int:
        """Where the log ends."""

    def first_ms(self, file: ChainFile) -> int:
        """The store time of a file's first record; 0 when that cannot be told."""

    def start_before(self, file: ChainFile, log_offset: int) -> int:
        """The last place up to `log_offset` where a record of this file is known to begin; at worst the file's begin."""


def plan_ranges(log: LogView, window: LogWindow, partition_bytes: int) -> list[LogRange]:
    """The ranges that hold everything in the window, in order, none much larger than `partition_bytes` if that can be had.

    The first may begin before the window, with the record its begin lies in: rows are picked when they are read.
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
    """Places to cut at, ascending; the stretches between them are as even as the known places allow."""
    pieces = -(-(end - start) // partition_bytes)
    previous = start
    for number in range(1, pieces):
        cut = log.start_before(file, start + (end - start) * number // pieces)
        if cut > previous:
            yield cut
            previous = cut


def _files_in_time(log: LogView, window: LogWindow) -> Iterable[ChainFile]:
    """Files that may hold records of the wanted time, by the first record of each and of its successor."""
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
    """The log of a store folder, looked at without changing it. Close it when planning is done."""

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
        starts = self._walk(segment)
        found = int(np.searchsorted(starts, log_offset, "right"))
        return int(starts[found - 1]) if found else segment.base

    def _largest_queues(self) -> list[QueueUnits]:
        """A few queues are enough to know places everywhere: the ones with most files."""
        root = self._folder.root
        if root is None:
            return []
        chains = [chain_files(self._disk, path) for _, _, path in queue_folders(self._disk, root / QUEUE_FOLDER)]
        chains = [chain for chain in chains if chain and not any(file.size % UNIT_BYTES for file in chain)]
        chains.sort(key=lambda chain: sum(file.size for file in chain), reverse=True)
        pool = MapPool(_QUEUES_ASKED)
        return [
            QueueUnits([Segment(self._disk, file.path, file.base, file.size, pool=pool) for file in chain])
            for chain in chains[:_QUEUES_ASKED]
        ]

    def _listed_before(self, segment: Segment, log_offset: int) -> int | None:
        """The last record up to an offset that some queue lists in this file and that is there."""
        listed = {_last_unit_before(queue, log_offset) for queue in self._queues}
        for found in sorted((offset for offset in listed if offset >= segment.base), reverse=True):
            try:
                sound_record(segment, found - segment.base, segment.size)
            except CorruptRecord:
                continue
            return found
        return None

    def _walk(self, segment: Segment) -> Positions:
        """Where the records of a file begin, as far as its sizes lead; remembered for the file asked for last."""
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
        starts = self._walk(segment)
        return int(starts[np.searchsorted(starts, starts[-1] - _CHECKED_BYTES)]) if len(starts) else segment.base

    def _is_unfinished(self) -> bool:
        """Whether a broker has the store open, or was killed; on another machine its lock cannot be seen, its file can."""
        root = self._folder.root
        return root is not None and (is_locked(root / "lock") or self._disk.exists(root / "abort"))


def _walk(segment: Segment) -> Iterator[Positions]:
    position = 0
    while segment.size - position >= MIN_RECORD_BYTES:
        chunk = segment.peek(position, min(_CHUNK_BYTES, segment.size - position))
        starts, stop = record_starts(chunk)
        if not stop:
            # Larger than the chunk, or no record.
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
