"""What goes on beside the owner of an open store: flushing, committing, noting how far that came, removing old files.

Each is a thread of its own. They report what the owner must know through `Told`, which is called from those threads. The
first failure of any of them is final: nothing on a disk that lost writes is relied on, or given away, any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rocketline.clock import Clock
from rocketline.errors import DiskFull, StoreError
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.flush.checkpoint_writer import Marks
from rocketline.store.flush.flusher import Committer, LogFlusher, QueueFlusher, Workers
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.log.staging import Staging
from rocketline.store.log.transient_pool import TransientPool
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.queue.dispatcher import Dispatcher
from rocketline.store.recovery.opening import StoreFiles
from rocketline.store.retention.retention import Retention

log = logging.getLogger(__name__)


class Told(NamedTuple):
    """Whom to tell: of the next log offset that is not flushed, or not committed, yet; and once that the disk failed."""

    flushed: Callable[[int], None]
    committed: Callable[[int], None]
    failed: Callable[[StoreError], None]


class Upkeep:
    """Made when the files of a store are whole; from then on records are staged, if there is a transient pool."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        config: StoreConfig,
        clock: Clock,
        files: StoreFiles,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        told: Told,
        workers: Workers,
    ) -> None:
        checkpoint, progress, flush = files.checkpoint, files.progress, config.flush
        assert checkpoint is not None
        assert progress is not None
        self.has_failed = False
        self._files = files
        self._log = commit_log
        self._dispatcher = dispatcher
        self._told = told
        self._is_timed = flush.log_timed
        self.pool: TransientPool | None = None
        self.committer: Committer | None = None
        if config.transient_pool:
            self._stage(config, clock, workers)
        self.log_flusher = LogFlusher(commit_log, checkpoint, progress, flush, clock, told.flushed, self.fail, workers)
        flush_log = partial(self.log_flusher.run_round, everything=True)
        self.marks = Marks(root, disk, config, commit_log, queues, index, checkpoint, progress, flush_log)
        self.queue_flusher = QueueFlusher(
            commit_log, dispatcher, queues, index, self.marks, flush, clock, self.fail, workers, files.whole
        )
        self.retention = Retention(
            disk,
            commit_log,
            queues,
            index,
            config.retention,
            clock,
            lambda: min(commit_log.flushed, dispatcher.dispatched),
            self._flush_queues,
            self._settle_deleted,
        )

    def _stage(self, config: StoreConfig, clock: Clock, workers: Workers) -> None:
        """From now on messages are written to buffers first."""
        commit_log = self._log
        self.pool = TransientPool(config.transient_pool_size, config.log_segment_bytes)
        staging = Staging(self.pool, commit_log.wrote, commit_log.last_store_ms, config.fail_without_buffer)
        commit_log.stage(staging)
        if not config.flush.is_sync:
            self.committer = Committer(commit_log, config.flush, clock, self._committed, self.fail, workers)
            staging.on_full = self.committer.request

    def start(self) -> None:
        if self._files.must_flush:
            self.mark_now()
            if self.queue_flusher.failure is not None:
                raise self.queue_flusher.failure
        self.log_flusher.start()
        self.queue_flusher.start()
        if self.committer is not None:
            self.committer.start()
        self._log.prepare_first()
        self.retention.remove_folders(self._files.left_over)

    def stop(self) -> None:
        """Return when all threads have ended."""
        self.retention.close()
        with suppress(StoreError):
            self._files.deleted.tidy()
        if self.committer is not None:
            self.committer.stop()
        self.log_flusher.stop()
        self.queue_flusher.stop()

    def finish(self, is_clean: bool) -> None:
        """Bring the rest to the disk, after `stop`, and note that the store was stopped cleanly, if it was."""
        self.log_flusher.run_round(everything=True)
        with suppress(StoreError):
            self._dispatcher.dispatch()
        if self._dispatcher.dispatched >= self._log.wrote:
            is_noted = self.queue_flusher.close(is_clean and not self.has_failed)
            if is_noted and not self.has_failed:
                self._files.note_clean_stop()

    def flush_now(self) -> None:
        """Bring everything appended so far to the disk. Blocks; owner thread."""
        self.log_flusher.run_round(everything=True)
        self._dispatcher.dispatch()
        self.mark_now()

    def mark_now(self) -> None:
        """Write down how far everything is on disk. Blocks; any thread."""
        self.queue_flusher.run_round(everything=True)

    def fail(self, error: StoreError) -> None:
        """The disk failed; any thread."""
        if not self.has_failed:
            self.has_failed = True
            self._told.failed(error)

    def _committed(self, next_log_offset: int) -> None:
        if not self._is_timed:
            self.log_flusher.request()
        self._told.committed(next_log_offset)

    def _flush_queues(self) -> bool:
        self.mark_now()
        return self.queue_flusher.failure is None

    def _settle_deleted(self) -> bool:
        """Whether it is written down that queues of deleted topics are gone; in the thread that removes their files."""
        try:
            if not self.has_failed:
                self.marks.save_table()
        except DiskFull as error:
            log.warning("files of deleted topics stay until there is room again: %s", error)
            return False
        except StoreError as error:
            self.fail(error)
        return not self.has_failed
