"""Bringing data to the disk, in threads of their own, because a sync takes milliseconds and the owner must not wait.

`LogFlusher` syncs the commit log. Under SYNC_FLUSH every append asks for it, and one sync serves all appends made until it
began: while it runs others queue up for the next. Under ASYNC_FLUSH it runs by the clock, when enough pages are dirty or the
last sync was long ago. `QueueFlusher` does the same for consume queues, key index and checkpoint.

With a transient pool and ASYNC_FLUSH a `Committer` brings what was written from the buffers to the log files, by the clock
and whenever a file is full; only that is flushed and read. Under SYNC_FLUSH there is no such thread: the flusher commits
before it syncs.

After a failed sync the kernel may have thrown the dirty pages away and the next sync would report success for data that is
lost. So a failure is final: `flushed` never moves again, the thread ends, and whoever assembled this is told.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from rocketline.clock import Clock
from rocketline.errors import StoreError
from rocketline.store.config import FlushConfig
from rocketline.store.files.mapped_file import PAGE_BYTES
from rocketline.store.flush.checkpoint import Checkpoint
from rocketline.store.flush.checkpoint_writer import Marks
from rocketline.store.flush.progress import Progress
from rocketline.store.flush.whole_disk import WholeDisk
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.consume_queue import ConsumeQueue
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.queue.dispatcher import Dispatcher

_AT_ONCE, _AT_ONCE_FROM = 8, 64
_MARK_FILES = 8
WHOLE_FROM = 256
"""So many dirty queues are flushed together with all else on their disk."""


class Worker(Protocol):
    """Does the rounds of one kind of work, one after the other, until it is stopped or one fails."""

    def start(self) -> None: ...

    def wake(self) -> None:
        """A round is wanted now; called from any thread."""

    def stop(self) -> None:
        """Return when the round under way, if any, has ended."""


Workers = Callable[["Rounds"], Worker]
"""Makes the worker for some rounds: a thread, unless a simulation has other ideas of time."""


class ThreadWorker:
    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=rounds.name, daemon=True)

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
        rounds = self._rounds
        while not self._stopping and rounds.failure is None:
            if rounds.may_wait():
                self._wake.wait(rounds.interval_s)
                self._wake.clear()
            rounds.waited()
            if not self._stopping:
                rounds.run_round()


class Rounds(ABC):
    """Work that is done again and again, by a worker or by hand, until a round fails."""

    def __init__(
        self, name: str, interval_s: float, on_failed: Callable[[StoreError], None], workers: Workers = ThreadWorker
    ) -> None:
        self.name = name
        self.interval_s = interval_s
        self.failure: StoreError | None = None
        self._on_failed = on_failed
        self._busy = threading.Lock()
        self._worker = workers(self)

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        """Return when the round under way, if any, has ended."""
        self._worker.stop()

    def may_wait(self) -> bool:
        """The worker is about to wait for its interval; False: there is work already."""
        return True

    def waited(self) -> None:  # noqa: B027 (nothing to do is a fine answer)
        """The worker is about to begin a round."""

    def run_round(self, everything: bool = False) -> None:
        """One round now, in the calling thread; does nothing after a failure."""
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

    @abstractmethod
    def _round(self, everything: bool) -> None:
        """The work; a StoreError ends it for good."""


class LogFlusher(Rounds):
    def __init__(
        self,
        log: CommitLog,
        checkpoint: Checkpoint,
        progress: Progress,
        config: FlushConfig,
        clock: Clock,
        on_flushed: Callable[[int], None],
        on_failed: Callable[[StoreError], None],
        workers: Workers = ThreadWorker,
    ) -> None:
        super().__init__("rocketline-flush-log", config.log_interval_ms / 1000, on_failed, workers)
        self._log = log
        self._checkpoint = checkpoint
        self._progress = progress
        self._config = config
        self._clock = clock
        self._on_flushed = on_flushed
        self._last_flush = clock.monotonic()
        self._is_idle = False
        self._is_asked = False

    def request(self) -> None:
        """Ask for everything appended so far to be flushed soon; called for each append, so it does little."""
        self._is_asked = True
        if self._is_idle:
            self._is_idle = False
            self._worker.wake()

    def may_wait(self) -> bool:
        # Idle is declared before looking for requests: one that comes in between sees it and wakes the worker.
        self._is_idle = True
        return not self._is_asked

    def waited(self) -> None:
        self._is_idle = False
        # Forgotten before the round looks at the log's end: a later request means another round.
        self._is_asked = False

    def _round(self, everything: bool) -> None:
        log, config = self._log, self._config
        if everything or config.is_sync:
            log.commit()
        # The time before the end: the time may then be too old, never too young, for what gets flushed.
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


class Committer(Rounds):
    def __init__(
        self,
        log: CommitLog,
        config: FlushConfig,
        clock: Clock,
        on_committed: Callable[[int], None],
        on_failed: Callable[[StoreError], None],
        workers: Workers = ThreadWorker,
    ) -> None:
        super().__init__("rocketline-commit-log", config.commit_interval_ms / 1000, on_failed, workers)
        self._log = log
        self._least_bytes = config.commit_least_pages * PAGE_BYTES
        self._thorough_s = config.commit_thorough_ms / 1000
        self._clock = clock
        self._on_committed = on_committed
        self._last_commit = clock.monotonic()

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


class QueueFlusher(Rounds):
    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        marks: Marks,
        config: FlushConfig,
        clock: Clock,
        on_failed: Callable[[StoreError], None],
        workers: Workers = ThreadWorker,
        whole: WholeDisk | None = None,
    ) -> None:
        super().__init__("rocketline-flush-queues", config.queue_interval_ms / 1000, on_failed, workers)
        self._log = log
        self._dispatcher = dispatcher
        self._queues = queues
        self._index = index
        self._marks = marks
        self._whole = whole
        self._config = config
        self._clock = clock
        self._last_thorough = clock.monotonic()
        self._last_mark = dispatcher.dispatched
        self._closes = self._is_noted = False
        # Apache's broker looks back ten files at most after a crash: by then a mark should be made.
        self._mark_bytes = min(config.checkpoint_log_bytes, _MARK_FILES * log.file.segment_bytes)

    def close(self, is_clean: bool) -> bool:
        """The last round, by hand; whether all is on disk, and noted as what a clean stop left."""
        self._closes = is_clean
        self._is_noted = False
        self.run_round(everything=True)
        return is_clean and self._is_noted and self.failure is None

    def _round(self, everything: bool) -> None:
        now = self._clock.monotonic()
        is_late = now - self._last_thorough >= self._config.queue_thorough_ms / 1000
        # Taken before anything is flushed: what is dispatched meanwhile is not in the mark.
        last = self._dispatcher.last
        dispatched = last.log_offset + last.size if last is not None else 0
        thorough = everything or is_late or dispatched - self._last_mark >= self._mark_bytes
        self._log.forget_cold()
        self._flush_queues(0 if thorough else self._config.queue_least_pages * PAGE_BYTES)
        if not thorough:
            return
        if self._index is not None:
            self._index.flush()
        self._is_noted = self._marks.make(last, with_table=everything or is_late, closed=self._closes)
        self._last_mark = dispatched
        if everything or is_late:
            self._last_thorough = now

    def _flush_queues(self, least_bytes: int) -> None:
        dirty = self._queues.dirty
        due: list[ConsumeQueue] = []
        waiting: list[ConsumeQueue] = []
        for _ in range(len(dirty)):
            queue = dirty.popleft()
            (waiting if queue.dirty_bytes() < least_bytes else due).append(queue)
        _flush_all(due, self._whole)
        # Still marked dirty, so the owner did not put them back itself.
        dirty.extend(waiting)


def _flush_all(queues: list[ConsumeQueue], whole: WholeDisk | None) -> None:
    """Many at once: a disk takes several flushes together in about the time of one, and all of them with one call."""
    if len(queues) >= WHOLE_FROM and whole is not None and _flush_whole(queues, whole):
        return
    if len(queues) < _AT_ONCE_FROM:
        for queue in queues:
            queue.flush()
        return
    with ThreadPoolExecutor(_AT_ONCE, "rocketline-flush-queue") as threads:
        for _ in threads.map(ConsumeQueue.flush, queues):
            pass


def _flush_whole(queues: list[ConsumeQueue], whole: WholeDisk) -> bool:
    pending = [part for queue in queues for part in queue.begin_flush()]
    if not whole.sync():
        return False
    for part in pending:
        part.file.end_flush(part)
    return True
