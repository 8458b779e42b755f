"""Checking a whole store without changing a byte of it.

`verify` walks the log record by record, compares consume queues and key index with it, and then checks the small files. It
works on a read-only mount, on Apache's folders, and on a store in use: then it reads up to the end that the log had when it
began, and records not yet in queues and index are not counted as wrong. After a crash it knows what the next start of a
broker repairs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from rocketline.errors import StoreError
from rocketline.files import backup_of
from rocketline.protocol import fastjson
from rocketline.protocol.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from rocketline.protocol.records import read_start
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk, is_locked
from rocketline.store.files.segment import Segment
from rocketline.store.flush.checkpoint import CHECKPOINT_BYTES
from rocketline.store.log.commit_log import record_store_ms
from rocketline.store.recovery.scan import ScanProgress, no_progress
from rocketline.store.tools.findings import CHECKPOINT, CONFIG, LOG, Findings, StoreFinding
from rocketline.store.tools.folder import (
    INDEX_FOLDER,
    StoreFolder,
    batch_topics,
    chain_files,
    chain_problems,
    index_names,
    segments_of,
)
from rocketline.store.tools.log_check import (
    RangeReport,
    check_links,
    check_range,
    index_contents,
    log_stop,
    merged,
    queue_units,
)
from rocketline.store.tools.queue_check import CheckLimits
from rocketline.store.tools.read_only import ReadOnlyDisk

_CHECKPOINT_FIELDS = struct.Struct(">qqq")
_CHECKPOINT_MARGIN_MS = 3000


class Verdict(Enum):
    """The result of an inspection."""

    SOUND = "sound"
    RECOVERABLE = "recoverable"
    """Not stopped cleanly; the next start of a broker repairs it."""
    DAMAGED = "damaged"


@dataclass
class VerifyReport:
    """What `verify` found."""

    store: str
    is_open: bool = False
    was_killed: bool = False
    log_files: int = 0
    log_min_offset: int = 0
    log_next_offset: int = 0
    records: int = 0
    damaged_stretches: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    checkpoint_ms: dict[str, int] = field(default_factory=dict)
    config_files: int = 0
    notes: list[str] = field(default_factory=list)
    findings: list[StoreFinding] = field(default_factory=list)
    damaged: dict[str, int] = field(default_factory=dict)
    """By part: how many findings no start repairs."""
    healing: dict[str, int] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        if self.damaged:
            return Verdict.DAMAGED
        return Verdict.RECOVERABLE if self.healing or self.was_killed else Verdict.SOUND


Walk = Callable[[StoreFolder, StoreConfig, CheckLimits], tuple[list[RangeReport], list[StoreFinding]]]
"""Checks the ranges of a log and the links of index files, for example in parallel."""


def verify(
    folder: StoreFolder,
    config: StoreConfig | None = None,
    disk: Disk | None = None,
    walk: Walk | None = None,
    progress: ScanProgress = no_progress,
) -> VerifyReport:
    """Check a whole store; StoreError when it cannot be read at all. `config` is needed for index files of unusual sizes;
    `progress` is called while the log is read, unless `walk` reads it."""
    return _Inspection(folder, config or StoreConfig(), disk or ReadOnlyDisk(), progress).run(walk)


class _Inspection:
    def __init__(self, folder: StoreFolder, config: StoreConfig, disk: Disk, progress: ScanProgress) -> None:
        self._folder = folder
        self._root = folder.root
        self._config = config
        self._disk = disk
        self._progress = progress
        self._findings = Findings()
        self._report = VerifyReport(str(folder.name))

    def run(self, walk: Walk | None) -> VerifyReport:
        report, root = self._report, self._root
        if root is not None:
            report.is_open = is_locked(root / "lock")
            report.was_killed = not report.is_open and self._disk.exists(root / "abort")
            self._checkpoint(root / "checkpoint")
        files = chain_files(self._disk, self._folder.log)
        for file, problem in chain_problems(files):
            self._findings.add(LOG, f"file {file.path.name}", problem)
        segments = segments_of(self._disk, files)
        limits = self._limits(segments)
        self._check_files()
        ranges, links = (walk or self._walk)(self._folder, self._config, limits)
        for found in links:
            self._findings.add_finding(found)
        self._sum_up(merged(ranges, limits, self._findings))
        if root is not None:
            self._config_files(root / "config")
        report.log_files = len(files)
        report.log_min_offset = segments[0].base if segments else 0
        report.findings = self._findings.kept
        report.damaged, report.healing = self._findings.by_part()
        if self._findings.not_kept:
            report.notes.append(f"{self._findings.not_kept} more findings are not listed")
        return report

    def _limits(self, segments: Sequence[Segment]) -> CheckLimits:
        end = log_end(segments) if self._report.is_open else None
        if not (self._report.is_open or self._report.was_killed):
            return CheckLimits(None, None)
        safe_ms = min(self._report.checkpoint_ms.values(), default=0) - _CHECKPOINT_MARGIN_MS
        heals_from = segments[0].base if segments else 0
        for segment in segments:
            if segment.size >= MIN_RECORD_BYTES and 0 < record_store_ms(segment.open(), 0) <= safe_ms:
                heals_from = segment.base
        return CheckLimits(end, heals_from)

    def _check_files(self) -> None:
        """Check names and sizes of the files of queues and index."""
        report, root = self._report, self._root
        if root is None:
            report.notes.append("a log alone: there is no store root with queues and index beside it")
            return
        report.queues = len(queue_units(self._disk, root, self._findings))
        if others := batch_topics(self._disk, root):
            report.notes.append(f"queues in batch format are not checked: {', '.join(sorted(others))}")
        contents = index_contents(self._disk, root, self._config, self._findings)
        if not index_names(self._disk, root / INDEX_FOLDER):
            report.notes.append("there is no key index")
        report.index_files = len(contents)
        report.index_entries = sum(file.count - 1 for file in contents)

    def _walk(
        self, folder: StoreFolder, config: StoreConfig, limits: CheckLimits
    ) -> tuple[list[RangeReport], list[StoreFinding]]:
        links = [
            found
            for number in range(self._report.index_files)
            for found in check_links(folder, config, self._disk, limits, number)
        ]
        return [check_range(folder, config, self._disk, limits, progress=self._progress)], links

    def _sum_up(self, whole: RangeReport) -> None:
        report = self._report
        report.damaged_stretches = len(whole.gaps)
        report.records = whole.records
        report.log_next_offset = whole.next_log_offset
        report.units = whole.units
        self._log_end(whole)
        if whole.units_behind:
            report.notes.append(
                f"{whole.units_behind} records at the log's end are in no queue yet; a broker adds them when it starts"
            )
        if whole.of_deleted_topics:
            report.notes.append(f"{whole.of_deleted_topics} records belong to topics that were deleted")
        index = whole.index
        if index is not None and index.behind and report.is_open:
            report.notes.append(f"{index.behind} records are not yet counted by the key index of the running broker")
        if index is not None and index.untagged:
            report.notes.append(
                f"{index.untagged} records are not indexed by their tag, as RocketMQ before 5.4 does it"
            )

    def _log_end(self, whole: RangeReport) -> None:
        for offset in whole.odd_blanks:
            self._findings.add(LOG, f"log offset {offset}", "the blank at the end of the file gives a wrong size")
        stop = log_stop(whole)
        if stop.is_damage or whole.data_follows:
            reason = stop.reason if stop.is_damage else "something that is no record follows the log's end"
            heals = self._report.was_killed or self._report.is_open
            self._findings.add(LOG, f"log offset {stop.log_offset} to the end", reason, heals=heals)

    def _checkpoint(self, path: Path) -> None:
        raw = self._disk.read(path)
        if raw is None:
            self._report.notes.append("there is no checkpoint: after a crash the whole log would be read")
        elif len(raw) != CHECKPOINT_BYTES:
            self._findings.add(CHECKPOINT, str(path.name), f"has {len(raw)} bytes instead of {CHECKPOINT_BYTES}")
        else:
            self._report.checkpoint_ms = dict(zip(("log", "queues", "index"), _CHECKPOINT_FIELDS.unpack_from(raw)))

    def _config_files(self, folder: Path) -> None:
        for name, _, is_folder in self._disk.list(folder):
            if is_folder or not name.endswith(".json"):
                continue
            self._report.config_files += 1
            problem = self._json_problem(folder / name)
            if problem:
                has_backup = not self._json_problem(backup_of(folder / name))
                outcome = "its backup is good" if has_backup else "and it has no good backup"
                self._findings.add(CONFIG, name, f"{problem}, {outcome}", heals=has_backup)

    def _json_problem(self, path: Path) -> str:
        try:
            parsed: Any = fastjson.parse(self._disk.read(path) or b"")
        except (ValueError, StoreError) as error:
            return f"cannot be read: {error}"
        return "" if isinstance(parsed, dict) else "holds no JSON object"


def log_end(segments: Sequence[Segment]) -> int | None:
    """Where the log ends now, found by going from record to record in the last file in use; None when that fails."""
    for segment in reversed(segments):
        view, position = segment.open(), 0
        while segment.size - position >= 8:
            size, magic = read_start(view, position)
            if magic == MAGIC_BLANK:
                return segment.next_base
            if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_RECORD_BYTES <= size <= segment.size - position:
                break
            position += size
        if position:
            is_end = not any(view[position : position + 8])
            return segment.base + position if is_end else None
    return None
