"""Rebuilding consume queues and key index from the commit log.

They are built in a folder beside the old ones and replace them by renaming. The steps, and what a crash leaves:

1. `rebuild.tmp` is filled and flushed                   the old ones; the next open or rebuild deletes `rebuild.tmp`
2. `rebuild.tmp` becomes `rebuild.ready`                 the new ones: the next open or rebuild does what is left of step 3
3. each part: the old one is deleted, the new one moved

Commit log and config are never changed. Damaged parts of the log are skipped, the records around them are listed. A record
whose body alone is damaged is listed too, so that queue offsets stay the same; readers leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import StoreError, StoreInUse
from rocketline.protocol.records import LogEntry
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk, FolderLock, RealDisk
from rocketline.store.files.segment import Segment
from rocketline.store.flush.checkpoint_writer import TABLE_NAME
from rocketline.store.flush.progress import FILE_NAME as PROGRESS_NAME
from rocketline.store.flush.progress import IndexShape, ProgressFile
from rocketline.store.index.index_file import index_count
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.queue.batch_dispatch import put_in_index, put_in_queues
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.recovery.scan import Gap, LogScan, ScanProgress, gc_paused, no_progress
from rocketline.store.tools.folder import (
    INDEX_FOLDER,
    QUEUE_FOLDER,
    StoreFolder,
    batch_topics,
    chain_files,
    chain_problems,
    index_names,
    index_shape,
    queue_file_bytes,
    segments_of,
)

BUILDING = "rebuild.tmp"
READY = "rebuild.ready"
PARTS = (QUEUE_FOLDER, INDEX_FOLDER)

TagsCodeFor = Callable[[LogEntry], int]


@dataclass
class RebuildResult:
    """What a rebuild did."""

    log_bytes: int
    records: int
    gaps: list[Gap]
    """Damaged parts of the log, which were skipped."""
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class RebuildPlan:
    """What a builder needs to fill `folder`; made before anything is written."""

    disk: Disk
    segments: list[Segment]
    folder: Path
    config: StoreConfig
    clock: Clock
    tags_code_for: TagsCodeFor | None
    other_topics: set[str]
    """Topics whose queues have another format and are left out."""


def rebuild(
    folder: StoreFolder,
    config: StoreConfig | None = None,
    tags_code_for: TagsCodeFor | None = None,
    disk: Disk | None = None,
    clock: Clock = SYSTEM_CLOCK,
    build: Callable[[RebuildPlan], RebuildResult] | None = None,
    progress: ScanProgress = no_progress,
) -> RebuildResult:
    """Rebuild queues and index; StoreInUse while a broker has the store.

    `config` gives the file sizes if there are no files yet; `tags_code_for` the tags codes of delayed messages; `build`
    replaces the one walk over the log, during which `progress` is called.
    """
    disk = disk or RealDisk()
    root = folder.root
    if root is None:
        raise StoreError(f"{folder.log} is a log without a store root: move it to a folder of its own as commitlog/")
    lock = _locked(disk, root)
    started = clock.monotonic()
    try:
        finish_rebuild(disk, root)
        plan = _plan(disk, folder.log, root, config or StoreConfig(), tags_code_for, clock)
        result = build(plan) if build is not None else _build(plan, progress)
        disk.move_folder(root / BUILDING, root / READY)
        finish_rebuild(disk, root)
    finally:
        lock.release()
    result.seconds = clock.monotonic() - started
    return result


def _locked(disk: Disk, root: Path) -> FolderLock:
    try:
        return disk.lock(root / "lock")
    except StoreInUse as error:
        raise StoreInUse(f"{error}; stop the broker first, a rebuild needs the store for itself") from error
    except StoreError as error:
        raise StoreError(f"{root} cannot be rebuilt, it is not writable: {error}") from error


def finish_rebuild(disk: Disk, root: Path) -> None:
    """Finish an interrupted rebuild, or remove what it left; the caller has the store's lock."""
    ready = root / READY
    if disk.exists(ready):
        # The saved queue lengths are not those of the new queues, which begin where the log does.
        disk.remove(root / TABLE_NAME)
        for part in PARTS:
            if disk.exists(ready / part):
                disk.remove_tree(root / part)
                disk.move_folder(ready / part, root / part)
        _note_index(disk, root)
        disk.remove_tree(ready)
    if disk.exists(root / BUILDING):
        disk.remove_tree(root / BUILDING)


def _note_index(disk: Disk, root: Path) -> None:
    """Note the new index in the progress file: recovery cuts an index back to what the mark there describes."""
    if not disk.exists(root / PROGRESS_NAME):
        return
    paths = [path for path, _ in index_names(disk, root / INDEX_FOLDER)]
    progress = ProgressFile(disk, root / PROGRESS_NAME)
    shape = IndexShape(paths[0].name, paths[-1].name, index_count(disk, paths[-1]), len(paths)) if paths else None
    progress.note_index(shape)
    progress.close()


def _plan(
    disk: Disk, log: Path, root: Path, config: StoreConfig, tags_code_for: TagsCodeFor | None, clock: Clock
) -> RebuildPlan:
    files = chain_files(disk, log)
    if not files:
        raise StoreError(f"{log} has no log files: nothing can be rebuilt from it")
    for file, problem in chain_problems(files):
        raise StoreError(f"{file.path} {problem}; put the log in order first, `store verify` shows all of it")
    queue_bytes = queue_file_bytes(disk, root / QUEUE_FOLDER, config.queue_segment_bytes)
    slots, entries = _index_shape(disk, root / INDEX_FOLDER, config)
    config = replace(config, queue_segment_bytes=queue_bytes, index_slots=slots, index_entries=entries)
    folder = root / BUILDING
    return RebuildPlan(disk, segments_of(disk, files), folder, config, clock, tags_code_for, batch_topics(disk, root))


def _index_shape(disk: Disk, folder: Path, config: StoreConfig) -> tuple[int, int]:
    for path, size in index_names(disk, folder):
        file = disk.open_mapped(path, size)
        shape = index_shape(file.buffer, config) if size > 64 else None
        file.close()
        if shape is not None:
            return shape
    return config.index_slots, config.index_entries


def _build(plan: RebuildPlan, progress: ScanProgress) -> RebuildResult:
    for part in PARTS:
        plan.disk.make_folder(plan.folder / part)
    queues = ConsumeQueues(plan.disk, plan.folder / QUEUE_FOLDER, plan.config)
    index = KeyIndex(plan.disk, plan.folder / INDEX_FOLDER, plan.config, plan.clock)
    try:
        result = _list_all(plan, queues, index if plan.config.index_enabled else None, progress)
        for queue in queues:
            queue.flush()
        index.flush()
        result.queues = len(queues.by_key)
        result.units = sum(queue.max_offset - queue.min_offset for queue in queues)
        result.index_files = len(index.files)
        result.index_entries = sum(file.count - 1 for file in index.files)
    finally:
        queues.close()
        index.close()
    return result


@gc_paused()
def _list_all(
    plan: RebuildPlan, queues: ConsumeQueues, index: KeyIndex | None, progress: ScanProgress
) -> RebuildResult:
    """Walk the log once and list every record found."""
    others = plan.other_topics
    gaps: list[Gap] = []
    scan = LogScan(plan.segments, plan.segments[0].base, check_crc=False)
    while True:
        for batch in scan.rows():
            kept = [row for row in batch if row[2] not in others] if others else batch
            put_in_queues(queues, kept, plan.tags_code_for)
            if index is not None:
                put_in_index(index, batch)
            progress(scan.read_bytes, scan.total_bytes)
        gap = scan.skip()
        if gap is None:
            return RebuildResult(scan.next_log_offset - plan.segments[0].base, scan.records, gaps)
        gaps.append(gap)
