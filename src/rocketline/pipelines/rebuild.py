"""`rebuild`: rebuilds consume queues and key index from the log in parallel, with the same bytes as a rebuild in one
process.

1. A task for each part of the log writes a piece: the queue units, in runs of consecutive queue offsets, and the keys with
   their hashes, linked to each other.
2. A task for some queues writes the runs of each queue in the order of the log, with the code that a broker uses. Another
   task writes a file of the index from its keys of all pieces; when files are few, several tasks write one file.

All files are written to a folder that `store.rebuild` moves into place at the end; a failed or killed run leaves the
store as it was. The driver holds the lock of the store. A task that is run again writes the same bytes. Executors must
see the folder under the same path as the driver, and be able to write to it.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np

from rocketline.broker.config import BrokerConfig, parse_delay_levels
from rocketline.broker.delays.delay_levels import deliver_time_codes
from rocketline.pipelines.audit import fair_share, stretches
from rocketline.pipelines.index_file import KEY, KeySlice, link_piece, write_index_file
from rocketline.pipelines.tasks import Progress, parallelism, run_tasks
from rocketline.protocol.hashing import index_key_hash
from rocketline.protocol.record_layout import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rocketline.protocol.records import index_keys
from rocketline.store.config import UNIT_BYTES, StoreConfig
from rocketline.store.files.disk import RealDisk
from rocketline.store.log.append_result import is_storable_topic
from rocketline.store.queue.batch_dispatch import QueueKey, by_queue, with_codes
from rocketline.store.queue.consume_queue import UNIT, QueueRun
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.recovery.record_runs import Row
from rocketline.store.recovery.scan import LogScan, gc_paused
from rocketline.store.tools.folder import INDEX_FOLDER, QUEUE_FOLDER, StoreFolder, chain_files, segments_of
from rocketline.store.tools.log_check import LogPart, RangeReport, join
from rocketline.store.tools.queue_check import SCHEDULE_TOPIC
from rocketline.store.tools.read_only import ReadOnlyDisk
from rocketline.store.tools.rebuild import PARTS, RebuildPlan, RebuildResult, TagsCodeFor
from rocketline.store.tools.rebuild import rebuild as rebuild_store

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

PIECES = "pieces"
PARTS_OF_INDEX = 4
"""Most tasks that write one file: each has to read all keys before its own."""


class ScanTask(msgspec.Struct):
    """A part of the log to scan; its piece files have the number of the task."""

    number: int
    log: str
    stretch: LogPart
    folder: str
    levels_ms: tuple[int, ...]
    other_topics: tuple[str, ...]
    index_slots: int
    """0 without an index."""


class UnitRun(msgspec.Struct, array_like=True):
    """Consecutive units of one queue: their position in the file of units, and where their last record ends."""

    first: int
    count: int
    at: int
    next_log_offset: int


class QueueRuns(msgspec.Struct, array_like=True):
    topic: str
    queue_id: int
    runs: list[UnitRun]


class ScanResult(msgspec.Struct):
    report: RangeReport
    queues: list[QueueRuns]
    keys: int


class QueueWork(msgspec.Struct):
    """A queue to write: its runs with the numbers of their pieces, in the order of the log."""

    topic: str
    queue_id: int
    runs: list[tuple[int, UnitRun]]

    @property
    def units(self) -> int:
        return sum(run.count for _, run in self.runs)


KeySliceRef = tuple[int, int, int]
"""Piece, first key, count."""


class IndexWork(msgspec.Struct):
    """A part of an index file to write: its keys, and the keys of the file before them."""

    name: str
    before: list[KeySliceRef]
    shares: list[KeySliceRef]
    is_last: bool = True


class WriteTask(msgspec.Struct):
    folder: str
    queue_file_bytes: int
    slots: int
    entries: int
    queues: list[QueueWork] = []
    index: IndexWork | None = None


class WriteResult(msgspec.Struct):
    units: int = 0
    queues: int = 0


def rebuild(
    spark: SparkSession | None,
    folder: StoreFolder,
    tell: Progress,
    config: BrokerConfig | None = None,
    stretch_bytes: int | None = None,
) -> RebuildResult:
    """Rebuild queues and index of a stopped store; StoreInUse while a broker has it open."""
    config = config or BrokerConfig()
    levels = parse_delay_levels(config.delay_levels)

    def build(plan: RebuildPlan) -> RebuildResult:
        return _build(spark, folder, plan, levels, stretch_bytes, tell)

    return rebuild_store(folder, config.store, deliver_time_codes(levels), build=build)


def _build(
    spark: SparkSession | None,
    folder: StoreFolder,
    plan: RebuildPlan,
    levels: tuple[int, ...],
    stretch_bytes: int | None,
    tell: Progress,
) -> RebuildResult:
    cores = parallelism(spark)
    pieces = plan.folder / PIECES
    for part in (*PARTS, PIECES):
        plan.disk.make_folder(plan.folder / part)
    parts = stretches(folder, lambda whole: stretch_bytes or fair_share(whole, cores))
    others = tuple(sorted(plan.other_topics))
    slots = plan.config.index_slots if plan.config.index_enabled else 0
    reading = [
        ScanTask(number, str(folder.log), part, str(plan.folder), levels, others, slots)
        for number, part in enumerate(parts)
    ]
    read = run_tasks(spark, scan_stretch, reading, ScanResult, tell, f"reading {folder.log}")
    tasks, index_files = _write_tasks(plan, read, cores)
    written = run_tasks(spark, write_files, tasks, WriteResult, tell, "writing queues and index")
    shutil.rmtree(pieces)
    _make_durable(plan)
    whole = RangeReport()
    for result in read:
        join(whole, result.report)
    return RebuildResult(
        whole.next_log_offset - plan.segments[0].base,
        whole.records,
        whole.gaps,
        sum(result.queues for result in written),
        sum(result.units for result in written),
        index_files,
        sum(result.keys for result in read),
    )


def _write_tasks(plan: RebuildPlan, read: Sequence[ScanResult], cores: int) -> tuple[list[WriteTask], int]:
    config = plan.config
    empty = WriteTask(str(plan.folder), config.queue_segment_bytes, config.index_slots, config.index_entries)
    files = list(_index_files([result.keys for result in read], config, plan.clock.now_ms()))
    parts = min(-(-cores // max(1, len(files))), PARTS_OF_INDEX)
    # Parts of the index are the longest tasks, later parts of a file longer than earlier ones: the longest go first.
    pieces = [part for name, shares in files for part in reversed(_index_parts(name, shares, parts))]
    tasks = [msgspec.structs.replace(empty, index=part) for part in pieces]
    tasks += [msgspec.structs.replace(empty, queues=share) for share in _shared_out(_queues(read), cores * 2)]
    return tasks, len(files)


def _queues(read: Sequence[ScanResult]) -> list[QueueWork]:
    found: dict[tuple[str, int], QueueWork] = {}
    for piece, result in enumerate(read):
        for queue in result.queues:
            key = queue.topic, queue.queue_id
            work = found.setdefault(key, QueueWork(*key, []))
            work.runs += [(piece, run) for run in queue.runs]
    return list(found.values())


def _shared_out(queues: list[QueueWork], shares: int) -> list[list[QueueWork]]:
    """Share queues out so that shares have about the same number of units: the largest first, to the smallest share."""
    loads = [(0, number) for number in range(shares)]
    found: list[list[QueueWork]] = [[] for _ in range(shares)]
    for queue in sorted(queues, key=lambda queue: queue.units, reverse=True):
        load, number = min(loads)
        loads[number] = load + queue.units, number
        found[number].append(queue)
    return [share for share in found if share]


def _index_parts(name: str, shares: list[KeySliceRef], parts: int) -> list[IndexWork]:
    """The tasks of one index file: `parts` for the entries, and one for header and slots, which reads all keys."""
    if parts == 1:
        return [IndexWork(name, [], shares)]
    cuts = sorted({len(shares) * number // parts for number in range(parts + 1)})
    entries = [IndexWork(name, shares[:start], shares[start:end], is_last=False) for start, end in pairwise(cuts)]
    return [*entries, IndexWork(name, shares, [])]


def _index_files(counts: Sequence[int], config: StoreConfig, now_ms: int) -> Iterator[tuple[str, list[KeySliceRef]]]:
    """(name, slices of keys) of each index file. Entry 0 of a file is never used. Names are times that follow each other."""
    ends = list(accumulate(counts))
    room, total = config.index_entries - 1, ends[-1] if ends else 0
    now = datetime.fromtimestamp(now_ms / 1000)
    name = int(f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}")
    for number, start in enumerate(range(0, total, room)):
        shares, at, stop = [], start, min(start + room, total)
        while at < stop:
            piece = bisect_right(ends, at)
            first = at - (ends[piece] - counts[piece])
            count = min(stop, ends[piece]) - at
            shares.append((piece, first, count))
            at += count
        yield str(name + number), shares


def _make_durable(plan: RebuildPlan) -> None:
    """Flush the folders, which hold files that other processes made."""
    for folder in (plan.folder / INDEX_FOLDER, plan.folder / QUEUE_FOLDER, plan.folder):
        plan.disk.sync_folder(folder)


@gc_paused()
def scan_stretch(task: ScanTask) -> ScanResult:
    """Scan a part of the log; units and keys are written to files, the result describes them."""
    segments = segments_of(ReadOnlyDisk(), chain_files(ReadOnlyDisk(), Path(task.log)))
    start = segments[0].base if task.stretch.start is None else task.stretch.start
    scan = LogScan(segments, start, end=task.stretch.end, check_crc=False)
    report = RangeReport()
    pieces = Path(task.folder) / PIECES
    units = _UnitPieces(deliver_time_codes(task.levels_ms), set(task.other_topics))
    found = [np.empty(0, KEY)]
    while True:
        for rows in scan.rows():
            if report.first_record < 0:
                report.first_record = rows[0][0]
            units.add(rows)
            if task.index_slots:
                found.append(_keys(rows))
        gap = scan.skip()
        if gap is None:
            break
        report.gaps.append(gap)
    keys = np.concatenate(found)
    if len(keys):
        link_piece(keys, task.index_slots)
    with _replacing(pieces / f"{task.number}.keys") as key_file:
        key_file.write(keys.tobytes())
    with _replacing(pieces / f"{task.number}.units") as unit_file:
        queues = units.write(unit_file)
    report.records, report.next_log_offset = scan.records, scan.next_log_offset
    if not scan.is_at_end and scan.stop is not None:
        report.tail = scan.stop
    return ScanResult(report, queues, len(keys))


def _keys(rows: Sequence[Row]) -> NDArray[Any]:
    mask, rollback = TRANSACTION_MASK, TRANSACTION_ROLLBACK
    keys = [
        (index_key_hash(row[2], key), row[0], row[6], 0)
        for row in rows
        if row[7] & mask != rollback
        for key in index_keys(row[8])
    ]
    return np.array(keys, KEY)


class _UnitPieces:
    """The units of a part of the log by queue, in runs of consecutive queue offsets."""

    def __init__(self, tags_code_for: TagsCodeFor, other_topics: set[str]) -> None:
        self._tags_code_for = tags_code_for
        self._others = other_topics
        self._units: dict[QueueKey, list[bytes]] = {}
        self._runs: dict[QueueKey, list[UnitRun]] = {}

    def add(self, rows: Sequence[Row]) -> None:
        pack = UNIT.pack
        for key, group in by_queue(rows).items():
            if key[0] in self._others or not is_storable_topic(key[0]) or key[1] < 0:
                continue
            if key[0] == SCHEDULE_TOPIC:
                group = with_codes(group, self._tags_code_for)
            self._units.setdefault(key, []).append(b"".join([pack(row[0], row[1], row[5]) for row in group]))
            self._extend(self._runs.setdefault(key, []), group)

    def _extend(self, runs: list[UnitRun], group: list[Row]) -> None:
        first, last = group[0], group[-1]
        if last[4] - first[4] == len(group) - 1 and [row[4] for row in group] == list(range(first[4], last[4] + 1)):
            self._one_more(runs, first[4], len(group), last[0] + last[1])
            return
        for row in group:
            self._one_more(runs, row[4], 1, row[0] + row[1])

    def _one_more(self, runs: list[UnitRun], first: int, count: int, next_log_offset: int) -> None:
        if runs and runs[-1].first + runs[-1].count == first:
            runs[-1].count += count
            runs[-1].next_log_offset = next_log_offset
        else:
            at = runs[-1].at + runs[-1].count * UNIT_BYTES if runs else 0
            runs.append(UnitRun(first, count, at, next_log_offset))

    def write(self, file: BinaryIO) -> list[QueueRuns]:
        """Write all units, queue after queue; returns the runs with their positions."""
        found = []
        for key, runs in self._runs.items():
            start = file.tell()
            file.writelines(self._units[key])
            for run in runs:
                run.at += start
            found.append(QueueRuns(*key, runs))
        return found


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that appears when it is complete: Spark may run a task again while its first attempt still writes."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        yield file
    draft.replace(path)


def write_files(task: WriteTask) -> WriteResult:
    """Write the files of some queues, or a part of an index file."""
    folder = Path(task.folder)
    if task.index is not None:
        part = task.index
        before, shares = _read_shares(folder, part.before), _read_shares(folder, part.shares)
        path = folder / INDEX_FOLDER / part.name
        write_index_file(path, shares, task.slots, task.entries, before, is_last=part.is_last)
        return WriteResult()
    config = StoreConfig(queue_segment_bytes=task.queue_file_bytes)
    queues = ConsumeQueues(RealDisk(), folder / QUEUE_FOLDER, config)
    try:
        for work in task.queues:
            _write_queue(queues, folder / PIECES, work)
        units = sum(queue.max_offset - queue.min_offset for queue in queues)
        return WriteResult(units, len(queues.by_key))
    finally:
        queues.close()


def _write_queue(queues: ConsumeQueues, pieces: Path, work: QueueWork) -> None:
    queue = queues.obtain(work.topic, work.queue_id)
    for piece, run in work.runs:
        with (pieces / f"{piece}.units").open("rb") as file:
            file.seek(run.at)
            units = file.read(run.count * UNIT_BYTES)
            queue.put_run(QueueRun(run.first, UNIT.unpack_from(units)[0], units, run.next_log_offset))
    queue.flush()


def _read_shares(folder: Path, shares: Iterable[KeySliceRef]) -> Iterator[KeySlice]:
    for piece, first, count in shares:
        yield np.fromfile(folder / PIECES / f"{piece}.keys", KEY, count, offset=first * KEY.itemsize), first
