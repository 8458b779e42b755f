"""Background threads of an open store: flushing, committing, writing the checkpoint, removing old files.

They report through `StoreCallbacks`, which are called from these threads. The first failure of any of them is final: a disk
that lost writes is not trusted any more, and nothing on it is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from rocketline.errors import DiskFull, StoreError
from rocketline.store.flush.checkpoint_writer import CheckpointWriter
from rocketline.store.flush.flusher import Committer, LogFlusher, QueueFlusher, StoreCallbacks, WorkerFactory
from rocketline.store.log.staging import Staging
from rocketline.store.log.transient_pool import TransientPool
from rocketline.store.recovery.opening import StoreFiles
from rocketline.store.retention.removal import RemovalChecks
from rocketline.store.retention.retention import Retention
from rocketline.store.store_parts import StoreParts

log = logging.getLogger(__name__)


class StoreThreads:
    """Made when recovery is done. With a transient pool, records are written to its buffers from then on."""

    def __init__(
        self, parts: StoreParts, files: StoreFiles, callbacks: StoreCallbacks, new_worker: WorkerFactory
    ) -> None:
        checkpoint, progress = files.checkpoint, files.progress
        assert checkpoint is not None
        assert progress is not None
        self.has_failed = False
        self.pool: TransientPool | None = None
        self.committer: Committer | None = None
        self._files = files
        self._log = parts.log
        self._dispatcher = parts.dispatcher
        self._callbacks = callbacks
        self._is_timed = parts.config.flush.log_timed
        own = StoreCallbacks(callbacks.flushed, self._committed, self.fail)
        if parts.config.transient_pool:
            self._stage(parts, own, new_worker)
        self.log_flusher = LogFlusher(parts, checkpoint, progress, own, new_worker)
        flush_log = partial(self.log_flusher.run_round, everything=True)
        self.checkpoint_writer = CheckpointWriter(parts, checkpoint, progress, flush_log)
        self.queue_flusher = QueueFlusher(parts, self.checkpoint_writer, files.file_system, own, new_worker)
        self.retention = Retention(parts, RemovalChecks(self._flush_queues, self._save_table))

    def _stage(self, parts: StoreParts, callbacks: StoreCallbacks, new_worker: WorkerFactory) -> None:
        """Write messages to buffers first, from now on."""
        commit_log, config = parts.log, parts.config
        self.pool = TransientPool(config.transient_pool_size, config.log_segment_bytes)
        staging = Staging(self.pool, commit_log.wrote, commit_log.last_store_ms, config.fail_without_buffer)
        commit_log.stage(staging)
        if not config.flush.is_sync:
            self.committer = Committer(parts, callbacks, new_worker)
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
        """After `stop`: flush the rest, and note a clean stop if it was one."""
        self.log_flusher.run_round(everything=True)
        with suppress(StoreError):
            self._dispatcher.dispatch()
        if self._dispatcher.dispatched >= self._log.wrote:
            is_noted = self.queue_flusher.close(is_clean and not self.has_failed)
            if is_noted and not self.has_failed:
                self._files.note_clean_stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No background task flushes or commits meanwhile; waits for rounds that have begun."""
        tasks = (self.committer, self.queue_flusher, self.log_flusher)
        with ExitStack() as stack:
            for task in tasks:
                if task is not None:
                    stack.enter_context(task.paused())
            yield

    def flush_now(self) -> None:
        """Flush everything appended so far. Blocks; owner thread."""
        self.log_flusher.run_round(everything=True)
        self._dispatcher.dispatch()
        self.mark_now()

    def mark_now(self) -> None:
        """Flush queues and index, and write the checkpoint. Blocks; any thread."""
        self.queue_flusher.run_round(everything=True)

    def fail(self, error: StoreError) -> None:
        """Report that the disk failed, once; any thread."""
        if not self.has_failed:
            self.has_failed = True
            self._callbacks.failed(error)

    def _committed(self, next_log_offset: int) -> None:
        if not self._is_timed:
            self.log_flusher.request()
        self._callbacks.committed(next_log_offset)

    def _flush_queues(self) -> bool:
        self.mark_now()
        return self.queue_flusher.failure is None

    def _save_table(self) -> bool:
        """Save a table without the queues of deleted topics; False when that failed. Runs in the removing thread."""
        try:
            if not self.has_failed:
                self.checkpoint_writer.save_table()
        except DiskFull as error:
            log.warning("files of deleted topics stay until the disk has room again: %s", error)
            return False
        except StoreError as error:
            self.fail(error)
        return not self.has_failed
