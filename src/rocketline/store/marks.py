"""Making marks: what was flushed is written down in the checkpoint, the progress file and the table of queue lengths.

The order is what makes them true after any crash: first the data, then the progress file with the checkpoint's next
times, then the checkpoint, and last the table, which says how long every queue was at some earlier mark.
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
from rocketline.store.checkpoint import Checkpoint
from rocketline.store.commit_log import CommitLog
from rocketline.store.config import UNIT_BYTES, StoreConfig
from rocketline.store.disk import Disk
from rocketline.store.dispatch import Dispatched
from rocketline.store.key_index import KeyIndex
from rocketline.store.progress import PROOF_BYTES, Mark, Progress
from rocketline.store.queues import ConsumeQueues

log = logging.getLogger(__name__)

TABLE_NAME = "rocketline.queues"


class Extent(NamedTuple):
    """Which messages a queue has."""

    first_unit: int
    """The first one of the file that has the first message: files before it may go at any time."""
    min_offset: int
    max_offset: int


class QueueTable(msgspec.Struct, frozen=True):
    """Which units every queue had on disk at a mark: it can have more by now, and lose the first ones with the log's."""

    safe: int
    log_min_offset: int
    extents: dict[str, dict[str, Extent]]


class Marks:
    """Used by the queue flusher; `flush_log` brings the log to the disk before a mark speaks of it."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        checkpoint: Checkpoint,
        progress: Progress,
        flush_log: Callable[[], None],
    ) -> None:
        self._path = root / TABLE_NAME
        self._disk = disk
        self._sizes = store_sizes(config)
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._progress = progress
        self._flush_log = flush_log
        self._lock = threading.Lock()
        self._saved_table: QueueTable | None = None
        self._changed_folders: set[Path] = set()

    def make(self, last: LogEntry | Dispatched | None, with_table: bool, closed: bool = False) -> bool:
        """Note that everything up to and including `last` is on disk; nothing is written when nothing changed.

        False when it could not be noted in full.
        """
        self._flush_log()
        if last is not None and self._log.flushed < last.log_offset + last.size:
            return False  # the log's flusher has failed, and has said so
        checkpoint, progress = self._checkpoint, self._progress
        if last is not None:
            checkpoint.queues_ms = checkpoint.index_ms = max(last.store_ms, checkpoint.queues_ms)
        # Taken once: the log flusher may move its time on while this is written.
        times, before = checkpoint.times, checkpoint.saved_times
        if times == before and progress.mark is not None:
            before = progress.mark.times_before
        mark = Mark(
            safe=last.log_offset + last.size if last is not None else self._log.min_offset,
            last_record=self._proof(last),
            sizes=self._sizes,
            index=self._index.shape if self._index is not None else None,
            times=times,
            times_before=before,
            closed=closed,
        )
        if mark != progress.mark:
            progress.save(mark)
        if times != checkpoint.saved_times:
            checkpoint.save(times)
        return not with_table or self._has_saved_table()

    def _has_saved_table(self) -> bool:
        try:
            self.save_table()
        except DiskFull as error:
            # The table before is still true, and asks for a closer look at the next start.
            log.warning("the lengths of queues are noted when there is room again: %s", error)
            return False
        return True

    def _proof(self, last: LogEntry | Dispatched | None) -> tuple[int, int, int]:
        record = self._log.record_at(last.log_offset) if last is not None else None
        if last is None or record is None:
            return 0, 0, 0
        return last.log_offset, last.size, crc32(record[:PROOF_BYTES])

    def note_moved(self, source: Path, target: Path) -> None:
        """A folder of queues was given another name: that must last before a table no longer speaks of them."""
        self._changed_folders.update((source.parent, *target.parents[:3]))

    def save_table(self) -> None:
        """Write down how long every queue is on disk; any thread."""
        # Looked at under the lock as well: a look from before another's deletion must not be written after it.
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
        extents: dict[str, dict[str, Extent]] = {}
        log_min_offset = self._log.min_offset
        for (topic, queue_id), queue in list(self._queues.by_key.items()):
            extent = Extent(queue.first_needed_unit, queue.min_offset, queue.file.flushed // UNIT_BYTES)
            extents.setdefault(topic, {})[str(queue_id)] = extent
        return QueueTable(safe, log_min_offset, extents)


def store_sizes(config: StoreConfig) -> tuple[int, int, int, int, int]:
    return (
        config.log_segment_bytes,
        config.queue_segment_bytes,
        config.ext.segment_bytes,
        config.index_slots,
        config.index_entries,
    )


def load_extents(disk: Disk, root: Path, mark: Mark, log_min_offset: int) -> tuple[dict[tuple[str, int], Extent], bool]:
    """What every queue must have at least by the last table, and whether it has exactly that; nothing when there is none."""
    try:
        table = msgspec.json.decode(disk.read(root / TABLE_NAME) or b"", type=QueueTable)
    except msgspec.DecodeError:
        return {}, False
    if table.safe > mark.safe:
        return {}, False
    # When the log has lost files since, the queues may have as well.
    has_all = table.log_min_offset == log_min_offset
    extents = {
        (topic, queue_id): extent if has_all else Extent(extent.max_offset, extent.max_offset, extent.max_offset)
        for topic, queues in table.extents.items()
        for text, extent in queues.items()
        if (queue_id := read_number(text)) is not None
    }
    return extents, has_all and mark.closed and table.safe == mark.safe
