"""The message store as a broker sees it.

One owner thread calls everything here; no call waits for the disk. `append` stores, `dispatch` makes stored messages
findable and reports them through `on_arrivals`, `read` and its relatives find them again. Two flusher threads bring data to
the disk and report through `on_flushed` and `on_flush_failed`, which are called from those threads.

    store = MessageStore(Path("data"), StoreConfig(), encode_host("127.0.0.1", 10911))
    store.open()
    store.append(message)
    store.dispatch()
    store.read("orders", 0, 0, 32)
    store.close()

Folder: `commitlog/`, `consumequeue/TOPIC/QUEUE/`, `index/`, `checkpoint`, `lock`, and `abort` while the store is open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import StoreClosed, StoreError, StoreInUse, StoreReadOnly
from rocketline.message import KEYS, TAGS, UNIQ_KEY, LogOffset
from rocketline.protocol.records import BatchItem, LogEntry, decode_record, log_entry
from rocketline.store.checkpoint import Checkpoint
from rocketline.store.commit_log import AppendResult, AppendStatus, CommitLog, StoreMessage, refused
from rocketline.store.config import FlushConfig, FlushDiskType, ReadConfig, StoreConfig
from rocketline.store.consume_queue import ConsumeQueues
from rocketline.store.disk import Disk, FolderLock, RealDisk
from rocketline.store.dispatch import Dispatcher, OnArrivals, TagsCodeFor
from rocketline.store.flush import LogFlusher, QueueFlusher
from rocketline.store.key_index import MAX_FOUND, KeyIndex
from rocketline.store.read_result import QueryResult, QueueUnit, ReadResult, ReadStatus
from rocketline.store.reading import MAX_READ_BYTES, AcceptRecord, AcceptTags, Reader, no_such_queue
from rocketline.store.rebuild import finish_rebuild
from rocketline.store.recovery import Recovery, RecoveryReport

__all__ = [
    "AppendResult",
    "AppendStatus",
    "FlushConfig",
    "FlushDiskType",
    "MessageStore",
    "QueryResult",
    "QueueUnit",
    "ReadConfig",
    "ReadResult",
    "ReadStatus",
    "RecoveryReport",
    "StoreConfig",
    "StoreMessage",
]

_FOREVER_MS = (1 << 63) - 1
_QUERY_ROUNDS = 3
_NOT_OPEN = "the store is not open"


class MessageStore:
    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        store_host: bytes,
        *,
        disk: Disk | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tags_code_for: TagsCodeFor | None = None,
    ) -> None:
        self.root = root
        self.config = config
        self.on_flushed: Callable[[int], None] | None = None
        """Told the next log offset that is not yet on disk; from the flusher thread."""
        self.on_flush_failed: Callable[[StoreError], None] | None = None
        """Told once, from the flusher thread, that the disk failed and the store is read-only now."""
        self._disk = disk or RealDisk()
        self._clock = clock
        self._lock: FolderLock | None = None
        self._checkpoint: Checkpoint | None = None
        self._refusal = _NOT_OPEN
        self._is_open = False
        self._has_failed = False
        self._log = CommitLog(self._disk, root / "commitlog", config, store_host, clock)
        self._queues = ConsumeQueues(self._disk, root / "consumequeue", config)
        self._index = KeyIndex(self._disk, root / "index", config, clock) if config.index_enabled else None
        self._dispatcher = Dispatcher(self._log, self._queues, self._index, tags_code_for, config.flush.is_sync)
        self._reader = Reader(self._log, config.reads)
        self._asks_to_flush = config.flush.is_sync or not config.flush.log_timed
        self._log_flusher: LogFlusher | None = None
        self._queue_flusher: QueueFlusher | None = None

    # Opening and closing

    def open(self) -> RecoveryReport:
        """Lock the folder, make the store whole, start the flushers. On a StoreError the folder is left unlocked."""
        if self._refusal is not _NOT_OPEN:
            raise StoreError(f"the store {self.root} was opened before; make a new one to open it again")
        self._refusal = "the store could not be opened"
        self._disk.make_folder(self.root)
        self._take_lock()
        try:
            report = self._recover()
        except BaseException:
            self._release()
            raise
        self._is_open = True
        self._refusal = ""
        return report

    def _take_lock(self) -> None:
        running = self._disk.read(self.root / "abort") or b""
        try:
            self._lock = self._disk.lock(self.root / "lock")
        except StoreInUse as error:
            pid = running.decode("ascii", "replace").strip()
            by = f" (its abort file names process {pid})" if pid.isdigit() else ""
            raise StoreInUse(f"{error}{by}; stop that one first or use another folder") from error

    def _recover(self) -> RecoveryReport:
        finish_rebuild(self._disk, self.root)
        abort = self.root / "abort"
        after_crash = self._disk.exists(abort)
        self._log.load()
        self._queues.load(after_crash)
        if self._index is not None:
            self._index.load()
        self._disk.write_atomic(abort, str(os.getpid()).encode())
        checkpoint = self._checkpoint = Checkpoint(self._disk, self.root / "checkpoint")
        recovery = Recovery(self._log, self._queues, self._index, self._dispatcher, checkpoint, self.config.check_crc)
        report = recovery.run(after_crash)
        flush = self.config.flush
        self._log_flusher = LogFlusher(
            self._log, checkpoint, flush, self._clock, self._flushed_from_thread, self._failed_from_thread
        )
        self._queue_flusher = QueueFlusher(
            self._log,
            self._dispatcher,
            self._queues,
            self._index,
            checkpoint,
            flush,
            self._clock,
            self._failed_from_thread,
        )
        if report.after_crash:
            self._queue_flusher.run_round(everything=True)
            if self._queue_flusher.failure is not None:
                raise self._queue_flusher.failure
        self._log_flusher.start()
        self._queue_flusher.start()
        return report

    def close(self) -> None:
        """Flush everything and let go of the folder. Without failure the next open is quick. Idempotent."""
        if not self._is_open:
            return
        assert self._log_flusher is not None
        assert self._queue_flusher is not None
        self._is_open = False
        self._dispatcher.on_arrivals = None
        self._log_flusher.stop()
        self._queue_flusher.stop()
        try:
            self._log_flusher.run_round(everything=True)
            with suppress(StoreError):
                self._dispatcher.dispatch()
            if self._dispatcher.dispatched >= self._log.wrote:
                self._queue_flusher.run_round(everything=True)
                if not self._has_failed:
                    self._disk.remove(self.root / "abort")
        finally:
            self._refusal = "the store is closed"
            self._release()

    def _release(self) -> None:
        self._log.close()
        self._queues.close()
        if self._index is not None:
            self._index.close()
        if self._checkpoint is not None:
            self._checkpoint.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _flushed_from_thread(self, next_log_offset: int) -> None:
        if self.on_flushed is not None:
            self.on_flushed(next_log_offset)

    def _failed_from_thread(self, error: StoreError) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        self._refusal = f"read-only since a flush failed: {error}"
        if self.on_flush_failed is not None:
            self.on_flush_failed(error)

    # Writing

    def append(self, message: StoreMessage) -> AppendResult:
        """Store one message; never raises for what a client or the disk may do wrong, the result says it."""
        if self._refusal:
            return refused(AppendStatus.NOT_AVAILABLE, self._refusal)
        try:
            result = self._log.append(message)
        except StoreError as error:
            return refused(AppendStatus.NOT_AVAILABLE, str(error))
        if self._asks_to_flush:
            self._ask_to_flush()
        return result

    def append_batch(self, common: StoreMessage, items: Sequence[BatchItem]) -> AppendResult:
        """Store the messages of a batch, all or none, with consecutive queue offsets."""
        if self._refusal:
            return refused(AppendStatus.NOT_AVAILABLE, self._refusal)
        try:
            result = self._log.append_batch(common, items)
        except StoreError as error:
            return refused(AppendStatus.NOT_AVAILABLE, str(error))
        if self._asks_to_flush:
            self._ask_to_flush()
        return result

    def _ask_to_flush(self) -> None:
        assert self._log_flusher is not None
        self._log_flusher.request()

    def dispatch(self) -> int:
        """Make appended messages readable; returns how many. Call it after appends, and after flushes with SYNC_FLUSH.

        A StoreError (a full disk) leaves the rest for the next call.
        """
        self._require_open()
        return self._dispatcher.dispatch()

    @property
    def on_arrivals(self) -> OnArrivals | None:
        """Called by `dispatch` with the messages that have just become readable, all of them at once."""
        return self._dispatcher.on_arrivals

    @on_arrivals.setter
    def on_arrivals(self, callback: OnArrivals | None) -> None:
        self._dispatcher.on_arrivals = callback

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic; its records leave with the log files they are in."""
        self._require_open()
        for queue_id in self._queues.delete_topic(topic):
            self._log.queue_offsets.pop((topic, queue_id), None)

    # Reading by queue

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        accept_tags: AcceptTags | None = None,
        accept_record: AcceptRecord | None = None,
        max_bytes: int = MAX_READ_BYTES,
    ) -> ReadResult:
        """Messages of a queue from `queue_offset` on, as slices of the log, and how to go on."""
        queue = self._queues.by_key.get((topic, queue_id))
        if queue is None:
            self._require_open()
            return no_such_queue()
        return self._reader.read(queue, queue_offset, max_messages, accept_tags, accept_record, max_bytes)

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.get(topic, queue_id)
        return queue.min_offset if queue else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset the next readable message will have."""
        queue = self._queues.get(topic, queue_id)
        return queue.max_offset if queue else 0

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> QueueUnit | None:
        """Where one message lies; None when it is not there."""
        queue = self._queues.get(topic, queue_id)
        unit = queue.unit(queue_offset) if queue else None
        return QueueUnit(LogOffset(unit[0]), unit[1], unit[2]) if unit else None

    def earliest_store_ms(self, topic: str, queue_id: int) -> int:
        """When the oldest message of a queue was stored; -1 when it has none."""
        return self.store_ms_of(topic, queue_id, self.min_offset(topic, queue_id))

    def store_ms_of(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored; -1 when it is not there."""
        queue = self._queues.get(topic, queue_id)
        unit = queue.unit(queue_offset) if queue else None
        return self._log.store_ms_at(unit[0]) if unit else -1

    def offset_at_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """First offset stored at or after a time (the maximum when all are older); `upper`: last one at or before it."""
        queue = self._queues.get(topic, queue_id)
        return queue.offset_at_time(self._log, timestamp_ms, upper) if queue else 0

    def topics(self) -> set[str]:
        """Topics that have a consume queue."""
        return self._queues.topics()

    def queue_ids(self, topic: str) -> list[int]:
        return sorted(queue_id for name, queue_id in self._queues.by_key if name == topic)

    # Reading by log offset and by key

    def record_at(self, log_offset: int) -> memoryview | None:
        """The record at a log offset; None when no record starts there."""
        self._require_open()
        return self._log.record_at(log_offset)

    def in_memory(self, log_offset: int) -> bool:
        """Whether a record is so near the log end that the page cache should still have it."""
        return self._reader.in_memory(log_offset)

    def query(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
        index_type: str = "",
    ) -> QueryResult:
        """Newest messages with a key, oldest first; `index_type` "U": unique ids, "T": a tag, else: unique ids and keys."""
        self._require_open()
        if self._index is None:
            return QueryResult([], 0, 0)
        index_key = f"T#{key}" if index_type == "T" else key
        records: list[memoryview] = []
        for _ in range(_QUERY_ROUNDS):
            offsets = sorted(set(self._index.find(topic, index_key, begin_ms, end_ms, min(max_count, MAX_FOUND))))
            candidates = [self._log.record_at(log_offset) for log_offset in offsets]
            records = [found for found in candidates if found and _has_key(found, topic, key, index_type)]
            if records or not offsets:
                break
            # Only strangers with the same hash: look at what is older than they are.
            end_ms = self._log.store_ms_at(offsets[0]) - 1
        return QueryResult(records, *self._index.updated)

    # State

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreClosed(f"the store {self.root} is not open")

    @property
    def is_writable(self) -> bool:
        return not self._refusal

    @property
    def reason(self) -> str:
        """Why the store is not writable; empty when it is."""
        return self._refusal

    @property
    def log_min_offset(self) -> int:
        return self._log.min_offset

    @property
    def log_next_offset(self) -> int:
        """Where the next record will be put."""
        return self._log.wrote

    @property
    def flushed_offset(self) -> int:
        """Everything in the log below this is on disk."""
        return self._log.flushed

    @property
    def dispatched_offset(self) -> int:
        """Everything in the log below this is readable."""
        return self._dispatcher.dispatched

    @property
    def last_store_ms(self) -> int:
        return self._log.last_store_ms

    def flush_now(self) -> None:
        """Return when everything appended so far is on disk. Blocks: for tools and tests, not for an event loop."""
        self._require_open()
        assert self._log_flusher is not None
        assert self._queue_flusher is not None
        self._log_flusher.run_round(everything=True)
        self._dispatcher.dispatch()
        self._queue_flusher.run_round(everything=True)
        if self._has_failed:
            raise StoreReadOnly(self._refusal)


def _has_key(record: memoryview, topic: str, key: str, index_type: str) -> bool:
    """The index knows only hashes; this is the message itself."""
    entry: LogEntry = log_entry(decode_record(record, 0, len(record)))
    if entry.topic != topic:
        return False
    if index_type == "T":
        return entry.properties.get(TAGS) == key
    if entry.properties.get(UNIQ_KEY) == key:
        return True
    return index_type != "U" and key in entry.properties.get(KEYS, "").split()
