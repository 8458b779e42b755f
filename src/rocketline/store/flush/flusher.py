"""Background tasks that bring data to the disk. Each runs in its own thread, because a sync takes milliseconds and the
owner of the store must not wait for it.

`LogFlusher` syncs the commit log. Under SYNC_FLUSH every append asks for a sync, and one sync serves all appends made before
it began; appends made while it runs wait for the next one. Under ASYNC_FLUSH it runs at intervals, when enough pages are
dirty or the last sync was long ago. `QueueFlusher` does the same for consume queues, key index and checkpoint.

With a transient pool and ASYNC_FLUSH a `Committer` copies what was written from the buffers to the log files, at intervals
and whenever a file is full. Only committed data is flushed and read. Under SYNC_FLUSH there is no such thread: the flusher
commits before it syncs.

After a failed sync the kernel may have dropped the dirty pages, and the next sync would report success for data that is
lost. So a failure is final: `flushed` never moves again, the thread ends, and `StoreCallbacks.failed` is called.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from rocketline.errors import StoreError
from rocketline.store.files.file_system import FileSystem
from rocketline.store.files.mapped_file import PAGE_BYTES
from rocketline.store.flush.checkpoint import Checkpoint
from rocketline.store.flush.checkpoint_writer import CheckpointWriter
from rocketline.store.flush.progress import ProgressFile
from rocketline.store.queue.consume_queue import ConsumeQueue
from rocketline.store.store_parts import StoreParts

PARALLEL_FLUSHES = 8
PARALLEL_FROM = 64
"""From this many dirty queues on, several are flushed at the same time."""
FLUSH_ALL_FROM = 256
"""From this many dirty queues on, the whole file system is flushed with one call."""
MAX_CHECKPOINT_FILES = 8
"""A checkpoint is written after this many log files at the latest: Apache's broker reads back ten files at most after a
crash."""


class StoreCallbacks(NamedTuple):
    """What the background tasks report, from their own threads."""

    flushed: Callable[[int], None]
    """Called with the next log offset that is not flushed yet."""
    committed: Callable[[int], None]
    """Called with the next log offset that is not committed yet."""
    failed: Callable[[StoreError], None]
    """The disk failed."""


class Worker(Protocol):
    """Runs the rounds of one background task, one after the other, until it is stopped or a round fails."""

    def start(self) -> None: ...

    def wake(self) -> None:
        """Ask for a round now; any thread."""

    def stop(self) -> None:
        """Return when the current round, if there is one, has ended."""


WorkerFactory = Callable[["BackgroundTask"], Worker]
"""Makes the worker of a task: a thread; in a simulation, timers in virtual time."""


class ThreadWorker:
    """A thread that waits for the interval of its task, or for `wake`, and then runs a round."""

    def __init__(self, task: BackgroundTask) -> None:
        self._task = task
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=task.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        task = self._task
        while not self._stopping and task.failure is None:
            if task.prepare_wait():
                self._wake.wait(task.interval_s)
                self._wake.clear()
            task.prepare_round()
            if not self._stopping:
                task.run_round()


class BackgroundTask(ABC):
    """Work done in rounds, by a worker or by a direct call of `run_round`, until a round fails."""

    def __init__(
        self, name: str, interval_s: float, on_failed: Callable[[StoreError], None], new_worker: WorkerFactory
    ) -> None:
        self.name = name
        self.interval_s = interval_s
        self.failure: StoreError | None = None
        self._on_failed = on_failed
        self._busy = threading.Lock()
        self._worker = new_worker(self)

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        """Return when the current round, if there is one, has ended."""
        self._worker.stop()

    def prepare_wait(self) -> bool:
        """Called by the worker before it waits for the interval; False when there is work already."""
        return True

    def prepare_round(self) -> None:  # noqa: B027 (most tasks have nothing to prepare)
        """Called by the worker before each round."""

    def run_round(self, everything: bool = False) -> None:
        """Run one round in the calling thread; does nothing after a failure."""
        with self._busy:
            if self.failure is not None:
                return
            try:
                self._round(everything)
            except StoreError as error:
                self.failure = error
            except Exception as error:
                self.failure = StoreError(f"flushing ended by {error!r}")
        if self.failure is not None:
            self._on_failed(self.failure)

    def paused(self) -> AbstractContextManager[object]:
        """No round runs meanwhile."""
        return self._busy

    @abstractmethod
    def _round(self, everything: bool) -> None:
        """The work; a StoreError ends the task for good."""


class LogFlusher(BackgroundTask):
    """Syncs the commit log."""

    def __init__(
        self,
        parts: StoreParts,
        checkpoint: Checkpoint,
        progress: ProgressFile,
        callbacks: StoreCallbacks,
        new_worker: WorkerFactory,
    ) -> None:
        config = parts.config.flush
        super().__init__("rocketline-flush-log", config.log_interval_ms / 1000, callbacks.failed, new_worker)
        self._log = parts.log
        self._checkpoint = checkpoint
        self._progress = progress
        self._config = config
        self._clock = parts.clock
        self._on_flushed = callbacks.flushed
        self._last_flush = parts.clock.monotonic()
        self._is_idle = False
        self._is_asked = False

    def request(self) -> None:
        """Ask for everything appended so far to be flushed soon; called for each append, so it does little."""
        self._is_asked = True
        if self._is_idle:
            self._is_idle = False
            self._worker.wake()

    def prepare_wait(self) -> bool:
        # Idle is set before requests are looked for: a request in between sees it and wakes the worker.
        self._is_idle = True
        return not self._is_asked

    def prepare_round(self) -> None:
        self._is_idle = False
        # Cleared before the round reads the log's end: a later request means another round.
        self._is_asked = False

    def _round(self, everything: bool) -> None:
        log, config = self._log, self._config
        if everything or config.is_sync:
            log.commit()
        # The time is read before the end: so it may be too old for what is flushed, but never too new.
        store_ms = log.readable_ms
        end = log.readable
        dirty = end - log.flushed
        if dirty <= 0:
            return
        now = self._clock.monotonic()
        if not (everything or config.is_sync or self._is_due(dirty, now)):
            return
        log.file.flush(end)
        self._progress.note_flushed(end)
        self._last_flush = now
        self._checkpoint.log_ms = store_ms
        self._on_flushed(end)

    def _is_due(self, dirty: int, now: float) -> bool:
        config = self._config
        if dirty >= config.log_least_pages * PAGE_BYTES:
            return True
        return now - self._last_flush >= config.log_thorough_ms / 1000


class Committer(BackgroundTask):
    """Copies records from the buffers of the transient pool to the log files."""

    def __init__(self, parts: StoreParts, callbacks: StoreCallbacks, new_worker: WorkerFactory) -> None:
        config = parts.config.flush
        super().__init__("rocketline-commit-log", config.commit_interval_ms / 1000, callbacks.failed, new_worker)
        self._log = parts.log
        self._least_bytes = config.commit_least_pages * PAGE_BYTES
        self._thorough_s = config.commit_thorough_ms / 1000
        self._clock = parts.clock
        self._on_committed = callbacks.committed
        self._last_commit = parts.clock.monotonic()

    def request(self) -> None:
        """Ask for a round now."""
        self._worker.wake()

    def _round(self, everything: bool) -> None:
        log = self._log
        committed, end = log.readable, log.wrote
        if end <= committed:
            return
        now = self._clock.monotonic()
        file_bytes = log.file.segment_bytes
        has_full_file = end // file_bytes > committed // file_bytes
        is_due = end - committed >= self._least_bytes or now - self._last_commit >= self._thorough_s
        if everything or has_full_file or is_due:
            log.commit()
            self._last_commit = now
            self._on_committed(log.readable)


class QueueFlusher(BackgroundTask):
    """Flushes consume queues and key index, and writes the checkpoint."""

    def __init__(
        self,
        parts: StoreParts,
        checkpoint_writer: CheckpointWriter,
        file_system: FileSystem | None,
        callbacks: StoreCallbacks,
        new_worker: WorkerFactory,
    ) -> None:
        config = parts.config.flush
        super().__init__("rocketline-flush-queues", config.queue_interval_ms / 1000, callbacks.failed, new_worker)
        self._log = parts.log
        self._dispatcher = parts.dispatcher
        self._queues = parts.queues
        self._index = parts.index
        self._checkpoint_writer = checkpoint_writer
        self._file_system = file_system
        self._config = config
        self._clock = parts.clock
        self._last_thorough = parts.clock.monotonic()
        self._last_checkpoint = parts.dispatcher.dispatched
        self._closes = self._is_noted = False
        self._checkpoint_bytes = min(config.checkpoint_log_bytes, MAX_CHECKPOINT_FILES * parts.log.file.segment_bytes)

    def close(self, is_clean: bool) -> bool:
        """Run the last round in the calling thread; True when all is on disk and noted as a clean stop."""
        self._closes = is_clean
        self._is_noted = False
        self.run_round(everything=True)
        return is_clean and self._is_noted and self.failure is None

    def _round(self, everything: bool) -> None:
        now = self._clock.monotonic()
        is_late = now - self._last_thorough >= self._config.queue_thorough_ms / 1000
        # Read before anything is flushed: what is dispatched meanwhile is not covered by this checkpoint.
        last = self._dispatcher.last
        dispatched = last.log_offset + last.size if last is not None else 0
        thorough = everything or is_late or dispatched - self._last_checkpoint >= self._checkpoint_bytes
        self._log.forget_cold()
        self._flush_queues(0 if thorough else self._config.queue_least_pages * PAGE_BYTES)
        if not thorough:
            return
        if self._index is not None:
            self._index.flush()
        self._is_noted = self._checkpoint_writer.write(last, with_table=everything or is_late, closed=self._closes)
        self._last_checkpoint = dispatched
        if everything or is_late:
            self._last_thorough = now

    def _flush_queues(self, least_bytes: int) -> None:
        dirty = self._queues.dirty
        due: list[ConsumeQueue] = []
        waiting: list[ConsumeQueue] = []
        for _ in range(len(dirty)):
            queue = dirty.popleft()
            (waiting if queue.dirty_bytes() < least_bytes else due).append(queue)
        _flush_all(due, self._file_system)
        # Still marked dirty, so the owner did not put them back itself.
        dirty.extend(waiting)


def _flush_all(queues: list[ConsumeQueue], file_system: FileSystem | None) -> None:
    """Flush many queues: a disk does several flushes at once in about the time of one, and `syncfs` covers all of them."""
    if len(queues) >= FLUSH_ALL_FROM and file_system is not None and _flush_file_system(queues, file_system):
        return
    if len(queues) < PARALLEL_FROM:
        for queue in queues:
            queue.flush()
        return
    with ThreadPoolExecutor(PARALLEL_FLUSHES, "rocketline-flush-queue") as threads:
        for _ in threads.map(ConsumeQueue.flush, queues):
            pass


def _flush_file_system(queues: list[ConsumeQueue], file_system: FileSystem) -> bool:
    pending = [part for queue in queues for part in queue.begin_flush()]
    if not file_system.sync():
        return False
    for part in pending:
        part.file.end_flush(part)
    return True
