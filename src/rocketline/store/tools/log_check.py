"""Checking one range of a log with everything that points into it, so that a store can be checked in parallel.

A range begins with a record. Its records are read and compared with the units and entries that list them; units and entries
that point into the range and match none of its records are checked one by one. Adjacent ranges cover a store: each unit and
each entry belongs to one of them. `merged` adds what needs the whole store:

- where the log ends: in the last range that has records; what lies between two ranges is a gap;
- whether records without a unit are damage: not when the queue offsets of their queue start again in a later range,
  because then their topic was deleted;
- whether the index lacks tags, or only the newest records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rocketline.protocol import fastjson
from rocketline.store.config import UNIT_BYTES, StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.files.segment import MapPool, Segment
from rocketline.store.queue.batch_dispatch import QueueKey
from rocketline.store.recovery.scan import END_OF_LOG, Gap, LogScan, ScanProgress, Stop, gc_paused, no_progress
from rocketline.store.tools.findings import INDEX, LOG, QUEUES, Findings, StoreFinding
from rocketline.store.tools.folder import (
    INDEX_FOLDER,
    QUEUE_FOLDER,
    StoreFolder,
    batch_topics,
    chain_files,
    chain_problems,
    index_names,
    index_shape,
    queue_folders,
    segments_of,
)
from rocketline.store.tools.index_check import AreLinked, IndexCheck, IndexContent, IndexTotals, sum_up
from rocketline.store.tools.queue_check import CheckLimits, LogRecords, QueuesCheck, QueueUnits


class LogPart(msgspec.Struct, frozen=True):
    """A part of the log, between two log offsets; None: where the log begins or ends."""

    start: int | None = None
    end: int | None = None


class QueueNumbers(msgspec.Struct):
    """The queue offsets of one queue in a range, and its records without a unit."""

    topic: str
    queue_id: int
    lowest: int
    highest: int
    began_anew: bool
    missing: list[StoreFinding]


class RangeReport(msgspec.Struct):
    """What was found in one range."""

    records: int = 0
    first_record: int = -1
    next_log_offset: int = 0
    gaps: list[Gap] = []
    odd_blanks: list[int] = []
    tail: Stop | None = None
    """Where and why reading ended before the end of the range."""
    data_follows: bool = False
    units: int = 0
    units_behind: int = 0
    of_deleted_topics: int = 0
    listed_end: int = 0
    queues: list[QueueNumbers] = []
    index: IndexTotals | None = None
    findings: list[StoreFinding] = []
    damaged: dict[str, int] = {}
    healing: dict[str, int] = {}


WHOLE_LOG = LogPart()


@gc_paused()
def check_range(
    folder: StoreFolder,
    config: StoreConfig,
    disk: Disk,
    limits: CheckLimits,
    log_range: LogPart = WHOLE_LOG,
    progress: ScanProgress = no_progress,
) -> RangeReport:
    """Check one range. Wrong names and sizes of files are not reported here, but by `queue_units` and `index_contents`."""
    segments = segments_of(disk, chain_files(disk, folder.log))
    findings, log = Findings(), LogRecords(segments)
    queues = index = None
    if folder.root is not None:
        units = queue_units(disk, folder.root, Findings())
        topics = known_topics(disk, folder.root)
        listing = {key: of.listing(log_range.start, log_range.end) for key, of in units.items()}
        queues = QueuesCheck(listing, log, limits, findings, topics, batch_topics(disk, folder.root))
        contents = index_contents(disk, folder.root, config, Findings())
        if contents:
            index = IndexCheck(contents, log, limits, findings)
            index.limit_to(log_range.start, log_range.end)
    report = RangeReport()
    end = limits.end if log_range.end is None else log_range.end
    _walk(
        LogScan(segments, log.min_offset if log_range.start is None else log_range.start, end=end),
        report,
        queues,
        index,
        progress,
    )
    if queues is not None:
        _sum_queues(report, queues)
    if index is not None:
        index.check_rest()
        report.index = index.totals
    report.findings = findings.kept
    report.damaged, report.healing = dict(findings.damaged), dict(findings.healing)
    for segment in segments:
        segment.close()
    return report


def _walk(
    scan: LogScan,
    report: RangeReport,
    queues: QueuesCheck | None,
    index: IndexCheck | None,
    progress: ScanProgress,
) -> None:
    while True:
        for batch in scan:
            if report.first_record < 0:
                report.first_record = batch[0].log_offset
            if queues is not None:
                queues.follow(batch)
            if index is not None:
                index.follow(batch)
            progress(scan.read_bytes, scan.total_bytes)
        gap = scan.skip()
        if gap is None:
            break
        report.gaps.append(gap)
    stop = scan.stop
    assert stop is not None
    if not scan.is_at_end:
        report.tail, report.data_follows = stop, scan.data_follows()
    report.records, report.next_log_offset, report.odd_blanks = scan.records, scan.next_log_offset, scan.odd_blanks


def _sum_queues(report: RangeReport, queues: QueuesCheck) -> None:
    for (topic, queue_id), check in queues.checks.items():
        if check.lowest >= 0:
            missing = list(check.missing())
            numbers = QueueNumbers(topic, queue_id, check.lowest, check.highest, check.began_anew, missing)
            report.queues.append(numbers)
        check.forget_missing()
    queues.finish()
    report.units, report.units_behind, report.listed_end = queues.listed, queues.behind, queues.listed_end
    report.of_deleted_topics = queues.records_of_deleted_topics


def check_links(
    folder: StoreFolder,
    config: StoreConfig,
    disk: Disk,
    limits: CheckLimits,
    number: int,
    are_linked: AreLinked | None = None,
) -> list[StoreFinding]:
    """What is wrong with slots and links of one index file."""
    assert folder.root is not None
    findings = Findings()
    contents = index_contents(disk, folder.root, config, Findings())
    if number < len(contents):
        contents[number].check_links(limits, findings, are_linked)
    return findings.kept


def merged(reports: Sequence[RangeReport], limits: CheckLimits, findings: Findings) -> RangeReport:
    """One report for adjacent ranges; findings are added to `findings`."""
    whole = RangeReport()
    seen: set[tuple[str, str]] = set()
    pending: dict[QueueKey, tuple[int, list[StoreFinding]]] = {}
    for report in reports:
        join(whole, report)
        for found in report.findings:
            # Two ranges may find the same missing queue, or the same unit: it is reported once.
            if (found.part, found.place) not in seen:
                findings.add_finding(found)
                seen.add((found.part, found.place))
        listed = Counter((found.part, found.heals) for found in report.findings)
        findings.damaged.update({part: count - listed[part, False] for part, count in report.damaged.items()})
        findings.healing.update({part: count - listed[part, True] for part, count in report.healing.items()})
        for numbers in report.queues:
            _follow(pending, numbers)
    for gap in whole.gaps:
        findings.add(LOG, f"log offset {gap.log_offset} to {gap.next_log_offset}", gap.reason)
    for _, missing in pending.values():
        for lacking in missing:
            findings.add_finding(lacking)
    if whole.index is not None:
        sum_up(whole.index, limits, findings, whole.listed_end)
    return whole


def _follow(pending: dict[QueueKey, tuple[int, list[StoreFinding]]], numbers: QueueNumbers) -> None:
    key = numbers.topic, numbers.queue_id
    highest, missing = pending.get(key, (-1, []))
    if numbers.began_anew or numbers.lowest <= highest:
        missing = []
    pending[key] = numbers.highest, missing + numbers.missing


def join(whole: RangeReport, part: RangeReport) -> None:
    """Add the report of the next range to the report of those before it, without findings."""
    gaps = list(part.gaps)
    if part.records:
        if whole.tail is not None:
            # The gap reaches to the first sound record of this range.
            start, reason, is_damage = whole.tail
            if gaps and gaps[0].next_log_offset == part.first_record:
                gaps.pop(0)
            shown = reason if is_damage else f"zeros at log offset {start}, but records follow"
            whole.gaps.append(Gap(start, part.first_record, shown))
        whole.tail, whole.data_follows = part.tail, part.data_follows
        whole.next_log_offset = part.next_log_offset
        whole.first_record = part.first_record if whole.first_record < 0 else whole.first_record
    elif whole.tail is None:
        whole.tail, whole.data_follows = part.tail, part.data_follows
        whole.next_log_offset = part.next_log_offset
    else:
        whole.data_follows |= part.data_follows or (part.tail is not None and part.tail.is_damage)
    whole.gaps += gaps
    whole.odd_blanks += part.odd_blanks
    whole.records += part.records
    whole.units += part.units
    whole.units_behind += part.units_behind
    whole.of_deleted_topics += part.of_deleted_topics
    whole.listed_end = max(whole.listed_end, part.listed_end)
    if part.index is not None:
        whole.index = part.index if whole.index is None else whole.index.plus(part.index)


def queue_units(disk: Disk, root: Path, findings: Findings) -> dict[QueueKey, QueueUnits]:
    """The units of every queue that has files."""
    units: dict[QueueKey, QueueUnits] = {}
    pool = MapPool()
    for topic, queue_id, path in queue_folders(disk, root / QUEUE_FOLDER):
        files = chain_files(disk, path)
        for file, problem in chain_problems(files, UNIT_BYTES):
            findings.add(QUEUES, f"{topic}/{queue_id} file {file.path.name}", problem)
        if files:
            units[topic, queue_id] = QueueUnits([Segment(disk, f.path, f.base, f.size, pool=pool) for f in files])
    return units


def index_contents(disk: Disk, root: Path, config: StoreConfig, findings: Findings) -> list[IndexContent]:
    """The files of the key index whose shape is known."""
    contents = []
    for path, size in index_names(disk, root / INDEX_FOLDER):
        view = disk.open_mapped(path, size, scattered=True).buffer
        shape = index_shape(view, config) if size > 64 else None
        if shape is None:
            problem = f"{size} bytes fit no number of slots and entries; if its settings are unusual, name them"
            findings.add(INDEX, path.name, problem)
            continue
        contents.append(IndexContent(path.name, view, *shape))
    return contents


def known_topics(disk: Disk, root: Path) -> set[str]:
    """Topics in the broker's table; none when there is no table."""
    try:
        table = fastjson.parse(disk.read(root / "config" / "topics.json") or b"{}")
        return set(table["topicConfigTable"])
    except (KeyError, TypeError, ValueError):
        return set()


def log_stop(whole: RangeReport) -> Stop:
    """Where and why reading ended."""
    return whole.tail or Stop(whole.next_log_offset, END_OF_LOG, False)
