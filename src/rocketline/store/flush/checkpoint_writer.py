"""Writing down how far everything is on disk: in the checkpoint, the progress file and the table of queue lengths.

The order makes them true after any crash: first the data is flushed, then the progress file is written with the next times
of the checkpoint, then the checkpoint, and last the table, which says how long every queue was at some earlier mark.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from rocketline.errors import DiskFull, StoreError
from rocketline.protocol.numbers import read_number
from rocketline.protocol.records import LogEntry
from rocketline.store.config import UNIT_BYTES, StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.flush.checkpoint import Checkpoint
from rocketline.store.flush.progress import PROOF_BYTES, ProgressFile, ProgressMark
from rocketline.store.queue.dispatcher import Dispatched
from rocketline.store.store_parts import StoreParts

log = logging.getLogger(__name__)

TABLE_NAME = "rocketline.queues"


class QueueExtent(NamedTuple):
    """Which messages a queue has."""

    first_unit: int
    """First unit of the file that has the first message; files before it may be removed at any time."""
    min_offset: int
    max_offset: int


class QueueTable(msgspec.Struct, frozen=True):
    """The units every queue had on disk at a mark. It may have more by now, and may have lost the first ones with the log's
    oldest files."""

    safe: int
    log_min_offset: int
    extents: dict[str, dict[str, QueueExtent]]


class CheckpointWriter:
    """Writes the three files. Used by the queue flusher; `flush_log` flushes the log before a mark covers it."""

    def __init__(
        self, parts: StoreParts, checkpoint: Checkpoint, progress: ProgressFile, flush_log: Callable[[], None]
    ) -> None:
        self._path = parts.root / TABLE_NAME
        self._disk = parts.disk
        self._sizes = store_sizes(parts.config)
        self._log = parts.log
        self._queues = parts.queues
        self._index = parts.index
        self._checkpoint = checkpoint
        self._progress = progress
        self._flush_log = flush_log
        self._lock = threading.Lock()
        self._saved_table: QueueTable | None = None
        self._changed_folders: set[Path] = set()

    def write(self, last: LogEntry | Dispatched | None, with_table: bool, closed: bool = False) -> bool:
        """Note that everything up to and including `last` is on disk; nothing is written when nothing changed.

        False when it could not be noted in full.
        """
        self._flush_log()
        if last is not None and self._log.flushed < last.log_offset + last.size:
            return False  # the log flusher has failed, and has reported it
        checkpoint = self._checkpoint
        if last is not None:
            checkpoint.queues_ms = checkpoint.index_ms = max(last.store_ms, checkpoint.queues_ms)
        times = checkpoint.times  # read once: the log flusher may move its time on meanwhile
        mark = self._mark(last, times, closed)
        if mark != self._progress.mark:
            self._progress.save(mark)
        if times != checkpoint.saved_times:
            checkpoint.save(times)
        return not with_table or self._try_save_table()

    def _mark(self, last: LogEntry | Dispatched | None, times: tuple[int, int, int], closed: bool) -> ProgressMark:
        before = self._checkpoint.saved_times
        if times == before and self._progress.mark is not None:
            before = self._progress.mark.times_before
        return ProgressMark(
            safe=last.log_offset + last.size if last is not None else self._log.min_offset,
            last_record=self._proof(last),
            sizes=self._sizes,
            index=self._index.shape if self._index is not None else None,
            times=times,
            times_before=before,
            closed=closed,
        )

    def _try_save_table(self) -> bool:
        try:
            self.save_table()
        except DiskFull as error:
            # The former table is still true; it only makes the next start check more.
            log.warning("the queue lengths are saved when the disk has room again: %s", error)
            return False
        return True

    def _proof(self, last: LogEntry | Dispatched | None) -> tuple[int, int, int]:
        record = self._log.record_at(last.log_offset) if last is not None else None
        if last is None or record is None:
            return 0, 0, 0
        return last.log_offset, last.size, crc32(record[:PROOF_BYTES])

    def note_moved(self, source: Path, target: Path) -> None:
        """A folder of queues was renamed: the rename must be durable before a table leaves these queues out."""
        self._changed_folders.update((source.parent, *target.parents[:3]))

    def save_table(self) -> None:
        """Save how long every queue is on disk; any thread."""
        # The lengths are read under the lock too: lengths from before a deletion must not be written after it.
        with self._lock:
            self._sync_changed()
            mark = self._progress.mark
            table = self._table(mark.safe) if mark is not None else None
            if table is not None and table != self._saved_table:
                self._disk.write_atomic(self._path, msgspec.json.encode(table))
                self._saved_table = table

    def _sync_changed(self) -> None:
        while self._changed_folders:
            folder = self._changed_folders.pop()
            try:
                self._disk.sync_folder(folder)
            except StoreError:
                self._changed_folders.add(folder)
                raise

    def _table(self, safe: int) -> QueueTable:
        extents: dict[str, dict[str, QueueExtent]] = {}
        log_min_offset = self._log.min_offset
        for (topic, queue_id), queue in list(self._queues.by_key.items()):
            extent = QueueExtent(queue.first_needed_unit, queue.min_offset, queue.file.flushed // UNIT_BYTES)
            extents.setdefault(topic, {})[str(queue_id)] = extent
        return QueueTable(safe, log_min_offset, extents)


def store_sizes(config: StoreConfig) -> tuple[int, int, int, int, int]:
    """The sizes of a store's files, as a mark holds them."""
    return (
        config.log_segment_bytes,
        config.queue_segment_bytes,
        config.ext.segment_bytes,
        config.index_slots,
        config.index_entries,
    )


def load_extents(
    disk: Disk, root: Path, mark: ProgressMark, log_min_offset: int
) -> tuple[dict[tuple[str, int], QueueExtent], bool]:
    """What every queue must have at least, by the last table, and whether it has exactly that; empty without a table."""
    try:
        table = msgspec.json.decode(disk.read(root / TABLE_NAME) or b"", type=QueueTable)
    except msgspec.DecodeError:
        return {}, False
    if table.safe > mark.safe:
        return {}, False
    # When log files were removed since, queue files may be gone as well.
    has_all = table.log_min_offset == log_min_offset
    extents = {
        (topic, queue_id): extent if has_all else QueueExtent(extent.max_offset, extent.max_offset, extent.max_offset)
        for topic, queues in table.extents.items()
        for text, extent in queues.items()
        if (queue_id := read_number(text)) is not None
    }
    return extents, has_all and mark.closed and table.safe == mark.safe
