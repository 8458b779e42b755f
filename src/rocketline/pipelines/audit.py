"""`audit`: checks a store in parallel, with the findings of `rocketline store verify`.

The log is cut into parts where records begin. A task checks one part: checksums, queue offsets without gaps, and the queue
units and index entries that point into it; another kind of task checks the links of one index file. The folder is only read,
and executors must see it under the same path as the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rocketline.pipelines.index_file import are_linked
from rocketline.pipelines.tasks import Progress, parallelism, run_tasks
from rocketline.spark.log.plan import EVERYTHING, StoredLog, plan_ranges
from rocketline.store.config import StoreConfig
from rocketline.store.tools.findings import StoreFinding
from rocketline.store.tools.folder import StoreFolder, index_names
from rocketline.store.tools.inspection import VerifyReport, Walk, verify
from rocketline.store.tools.log_check import LogPart, RangeReport, check_links, check_range
from rocketline.store.tools.queue_check import CheckLimits
from rocketline.store.tools.read_only import ReadOnlyDisk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 16
LEAST_BYTES = 4 << 20
MOST_BYTES = 256 << 20


class AuditTask(msgspec.Struct):
    """One task: to check a part of the log, or the links of the index file with this number."""

    log: str
    root: str | None
    index_shape: tuple[int, int]
    limits: CheckLimits
    stretch: LogPart | None = None
    index_file: int | None = None


class AuditResult(msgspec.Struct):
    report: RangeReport | None = None
    links: list[StoreFinding] = []


def audit(
    spark: SparkSession | None,
    folder: StoreFolder,
    tell: Progress,
    config: StoreConfig | None = None,
    stretch_bytes: int | None = None,
) -> VerifyReport:
    """Check a store; `stretch_bytes` is how much of the log a task reads."""
    return verify(folder, config, ReadOnlyDisk(), _in_parallel(spark, tell, stretch_bytes))


def _in_parallel(spark: SparkSession | None, tell: Progress, stretch_bytes: int | None) -> Walk:
    def walk(
        folder: StoreFolder, config: StoreConfig, limits: CheckLimits
    ) -> tuple[list[RangeReport], list[StoreFinding]]:
        tasks = _tasks(folder, config, limits, lambda whole: stretch_bytes or fair_share(whole, parallelism(spark)))
        results = run_tasks(spark, work, tasks, AuditResult, tell, f"audit of {folder.name}")
        reports = [result.report for result in results if result.report is not None]
        return reports, [link for result in results for link in result.links]

    return walk


def _tasks(
    folder: StoreFolder, config: StoreConfig, limits: CheckLimits, share: Callable[[int], int]
) -> list[AuditTask]:
    root = None if folder.root is None else str(folder.root)
    shape = config.index_slots, config.index_entries
    task = AuditTask(str(folder.log), root, shape, limits)
    files = range(0 if folder.root is None else len(index_names(ReadOnlyDisk(), folder.root / "index")))
    # The tasks for index files take longest: they go first.
    links = [msgspec.structs.replace(task, index_file=number) for number in files]
    return links + [msgspec.structs.replace(task, stretch=stretch) for stretch in stretches(folder, share)]


def stretches(folder: StoreFolder, share: Callable[[int], int]) -> list[LogPart]:
    """The log of a store cut into parts; `share` gives their length for the length of the log."""
    with closing(StoredLog(folder, ReadOnlyDisk())) as log:
        size = log.next_offset - (log.files[0].base if log.files else 0)
        ranges = plan_ranges(log, EVERYTHING, share(size))
    # Parts touch, so that gaps left by missing or shortened files belong to one of them and are found.
    cuts = [None, *(part.start for part in ranges[1:]), None]
    return [LogPart(start, end) for start, end in pairwise(cuts)]


def fair_share(whole: int, cores: int) -> int:
    """
    >>> fair_share(1 << 30, 4) >> 20, fair_share(1000, 4) >> 20
    (16, 4)
    """
    return min(max(-(-whole // (cores * TASKS_PER_CORE)), LEAST_BYTES), MOST_BYTES)


def work(task: AuditTask) -> AuditResult:
    """Do one task, on an executor."""
    folder = StoreFolder(Path(task.log), None if task.root is None else Path(task.root))
    config = StoreConfig(index_slots=task.index_shape[0], index_entries=task.index_shape[1])
    if task.stretch is not None:
        return AuditResult(check_range(folder, config, ReadOnlyDisk(), task.limits, task.stretch))
    assert task.index_file is not None
    return AuditResult(links=check_links(folder, config, ReadOnlyDisk(), task.limits, task.index_file, are_linked))
