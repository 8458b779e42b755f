"""The message store as a broker sees it.

One owner thread calls everything here; no call waits for the disk. `append` stores, `dispatch` makes stored messages
findable, `read` and its relatives find them again. Two flusher threads bring data to the disk; with a transient pool a third
one commits. Who opens the store may listen to what happens (`StoreEvents`).

    store = MessageStore(Path("data"), StoreConfig(), encode_host("127.0.0.1", 10911))
    store.open()
    store.append(message)
    store.dispatch()
    store.read("orders", 0, 0, 32)
    store.close()

Folder: `commitlog/`, `consumequeue/TOPIC/QUEUE/`, `consumequeue_ext/TOPIC/QUEUE/`, `index/`, `checkpoint`, `lock`, and
`abort` while the store is open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import FlushFailed, StoreBusy, StoreClosed, StoreError, StoreReadOnly
from rocketline.protocol.records import BatchItem
from rocketline.protocol.subscription import TagTest
from rocketline.store.config import FlushConfig, FlushDiskType, ReadConfig, RetentionConfig, StoreConfig
from rocketline.store.copies import LogCopies
from rocketline.store.events import NO_EVENTS, StoreEvents
from rocketline.store.files.disk import Disk, DiskUsage, RealDisk
from rocketline.store.flush.flusher import StoreCallbacks, ThreadWorker, WorkerFactory
from rocketline.store.flush.store_threads import StoreThreads
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.index.key_query import KeyQuery
from rocketline.store.log.append_result import AppendResult, AppendStatus, RecordLimits, StoreMessage, copy_of, refused
from rocketline.store.log.commit_log import CommitLog, Room
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.queue.dispatcher import Dispatcher, TagsCodeFor
from rocketline.store.queue.tags_codes import AcceptExt, AcceptTags, BitmapFor, TagsCodes
from rocketline.store.reading.damage import Damage
from rocketline.store.reading.lookups import StoreLookups
from rocketline.store.reading.read_result import QueryResult, QueueUnit, ReadResult, ReadStatus
from rocketline.store.reading.reader import MAX_READ_BYTES, AcceptRecord, Reader, no_such_queue
from rocketline.store.recovery.opening import StoreFiles
from rocketline.store.recovery.report import RecoveryReport
from rocketline.store.retention.retention import CleanUp
from rocketline.store.store_parts import StoreParts

__all__ = [
    "AppendResult",
    "AppendStatus",
    "CleanUp",
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
    "StoreEvents",
    "StoreMessage",
    "copy_of",
]

_FOREVER_MS = (1 << 63) - 1
_NOT_OPEN = "the store is not open"
_NO_POOL = (1 << 31) - 1
"""What Apache's runtime information says of free buffers when there is no pool."""

log = logging.getLogger(__name__)


class MessageStore(StoreLookups):
    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        store_host: bytes,
        *,
        disk: Disk | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tags_code_for: TagsCodeFor | None = None,
        bitmap_for: BitmapFor | None = None,
        workers: WorkerFactory = ThreadWorker,
    ) -> None:
        """`workers` make what flushes and commits: threads, unless a simulation has other ideas of time."""
        self.root = root
        self.config = config
        self._events = NO_EVENTS
        self._disk = disk or RealDisk()
        self._workers = workers
        self.damage = Damage()
        """What was found to be damaged."""
        self._refusal = _NOT_OPEN
        self._is_open = False
        self._failure = ""
        self._role: tuple[AppendStatus, str] = AppendStatus.OK, ""
        self._log = CommitLog(self._disk, root / "commitlog", config, store_host, clock)
        self._queues = ConsumeQueues(self._disk, root / "consumequeue", config)
        self._index = KeyIndex(self._disk, root / "index", config, clock) if config.index_enabled else None
        self._codes = TagsCodes(self._log, self._queues, tags_code_for, bitmap_for)
        code_for = self._codes.extended if config.ext.enabled else tags_code_for
        self._dispatcher = Dispatcher(self._log, self._queues, self._index, code_for, config.flush.is_sync)
        self._parts = StoreParts(
            root=root,
            disk=self._disk,
            config=config,
            clock=clock,
            log=self._log,
            queues=self._queues,
            index=self._index,
            codes=self._codes,
            dispatcher=self._dispatcher,
            damage=self.damage,
        )
        self._files = StoreFiles(self._parts)
        self.copies = LogCopies(self._parts, self._files, lambda: self._opened)
        """What replication does with the log."""
        self._reader = Reader(self._log, config.reads, self._codes, self.damage, config.check_crc_on_read)
        self._keys = KeyQuery(self._log, self._index, self._reader) if self._index is not None else None
        # What is only in a buffer cannot be flushed: with a pool the committer asks, after each commit.
        self._asks_to_flush = config.flush.is_sync or not (config.flush.log_timed or config.transient_pool)
        self._ask_to_flush: Callable[[], None] = self._require_open
        """Asks the log's flusher, once there is one."""
        self._threads: StoreThreads | None = None

    # Opening and closing

    def open(self, events: StoreEvents = NO_EVENTS) -> RecoveryReport:
        """Lock the folder, make the store whole, start the flushers. On a StoreError the folder is left unlocked.

        What recovery makes readable is not reported as arrived.
        """
        if self._refusal is not _NOT_OPEN:
            raise StoreError(f"the store {self.root} was opened before; make a new one to open it again")
        self._refusal = "the store could not be opened"
        report = self._files.open()
        self._events = events
        self._dispatcher.on_arrivals, self._dispatcher.on_left_out = events.arrived, events.left_out
        try:
            self._start_threads()
        except BaseException:
            self._files.close()
            raise
        self._is_open = True
        self._refusal = self._role[1]
        return report

    def _start_threads(self) -> None:
        callbacks = StoreCallbacks(self._events.flushed, self._events.committed, self._disk_failed)
        threads = self._threads = StoreThreads(self._parts, self._files, callbacks, self._workers)
        self._ask_to_flush = threads.log_flusher.request
        threads.start()

    def wait_prepared(self) -> None:
        """Return when the next log file, if one is being made, is there. Blocks; any thread."""
        self._log.file.wait_prepared()

    def close(self, is_clean: bool = True) -> None:
        """Flush everything and let go of the folder. Without failure the next open is quick. Idempotent.

        `is_clean`: False has the next open recover as after a crash, because its owner could not write down all it knows.
        """
        if not self._is_open:
            return
        threads = self._opened
        self._is_open = False
        self._dispatcher.on_arrivals = self._dispatcher.on_left_out = None
        threads.stop()
        try:
            threads.finish(is_clean)
        finally:
            self._refusal = "the store is closed"
            self._files.close()

    def _disk_failed(self, error: StoreError) -> None:
        self._failure = self._refusal = f"read-only since a flush failed: {error}"
        self._events.flush_failed(error)

    # Writing

    def append(self, message: StoreMessage) -> AppendResult:
        """Store one message; never raises for what a client or the disk may do wrong, the result says it."""
        if self._refusal:
            return self._refused_now()
        try:
            result = self._log.append(message)
        except StoreError as error:
            return self._refused_by(error)
        if self._asks_to_flush:
            self._ask_to_flush()
        return result

    def reserve(self, size: int) -> Room | None:
        """Room for about `size` bytes of records that the caller writes itself; None when there is none, or messages are
        refused now. Not with a transient pool. Followed by `append_reserved` or `abandon`, before any other append."""
        return None if self._refusal else self._log.reserve(size)

    def append_reserved(self, room: Room, end: int, topics: set[str]) -> None:
        """Sound records of these topics fill the room up to `end`, with the next numbers of their queues."""
        self._log.append_reserved(room, end, topics)
        if self._asks_to_flush:
            self._ask_to_flush()

    def abandon(self, room: Room) -> None:
        """Writing into a room failed half way: what is in it does not count."""
        self._log.abandon(room)

    @property
    def record_limits(self) -> RecordLimits:
        return self._log.limits

    def append_batch(self, common: StoreMessage, items: Sequence[BatchItem]) -> AppendResult:
        """Store the messages of a batch, all or none, with consecutive queue offsets."""
        if self._refusal:
            return self._refused_now()
        try:
            result = self._log.append_batch(common, items)
        except StoreError as error:
            return self._refused_by(error)
        if self._asks_to_flush:
            self._ask_to_flush()
        return result

    def _refused_now(self) -> AppendResult:
        status, reason = self._role
        return refused(status if self._refusal is reason else AppendStatus.NOT_AVAILABLE, self._refusal)

    def _refused_by(self, error: StoreError) -> AppendResult:
        if isinstance(error, FlushFailed):
            self._opened.fail(error)
        status = AppendStatus.BUSY if isinstance(error, StoreBusy) else AppendStatus.NOT_AVAILABLE
        return refused(status, str(error))

    # Replicas

    def take_messages(self) -> None:
        """Let messages be appended again, as far as the store itself can."""
        self.refuse_messages(AppendStatus.OK, "")

    def refuse_messages(self, status: AppendStatus, reason: str) -> None:
        """Append no messages from now on, because of what this store is among others. What comes from a master (`copies`)
        is not concerned."""
        former, self._role = self._role[1], (status, reason)
        if self._is_open and (self._refusal is former or not self._refusal):
            self._refusal = reason
        if self._failure:
            self._refusal = self._failure

    def dispatch(self) -> int:
        """Make appended messages readable; returns how many. Call it after appends, flushes (SYNC_FLUSH) and commits (pool).

        A StoreError (a full disk) leaves the rest for the next call.
        """
        self._require_open()
        return self._dispatcher.dispatch()

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic, their files a little later; its records leave with the log files they are in."""
        threads = self._opened
        ids, folders = self._queues.take_topic(topic)
        for queue_id in ids:
            self._log.queue_offsets.pop((topic, queue_id), None)
        for folder in folders:
            self._files.deleted.delete(folder, threads.checkpoint_writer, threads.retention)

    # Old files and a full disk

    def clean_up(self, wait: bool = False) -> CleanUp:
        """Let old files go and see whether the disk has room for messages; to be called every now and then.

        Big files leave the disk in a thread; `wait`: return when they are gone, which blocks: for tools and tests.
        """
        threads = self._opened
        usage = threads.retention.measure()
        self._note_room(threads.retention.refusal(usage))
        if threads.has_failed:
            # A disk that lost writes may have lost more: nothing on it is given away.
            return CleanUp(usage)
        return threads.retention.run(usage, wait)

    def trim_queues(self) -> bool:
        """Go on with what `clean_up` left undone in order not to take long; False when there is still more to do."""
        threads = self._opened
        return threads.has_failed or threads.retention.follow()

    def delete_expired(self) -> None:
        """Let the next passes of `clean_up` delete expired files, whatever the hour."""
        self._opened.retention.ask()

    def disk_usage(self) -> DiskUsage:
        """Of the disk the log is on."""
        return self._opened.retention.measure()

    def set_retention(self, config: RetentionConfig) -> None:
        """Keep old files by other rules from now on."""
        self.config = replace(self.config, retention=config)
        if self._threads is not None:
            self._threads.retention.config = config

    def _note_room(self, reason: str) -> None:
        """Refuse messages for a reason that may pass, or, when it is empty, take them again."""
        if reason and not self._refusal:
            log.error("messages are refused: %s", reason)
        elif self._refusal and not (reason or self._failure or self._refusal is self._role[1]):
            log.warning("messages are taken again, the disk has room")
        if not self._failure:
            self._refusal = reason or self._role[1]
        # A flush may have failed, in its own thread, since the line above asked.
        if self._failure:
            self._refusal = self._failure

    def mark_now(self) -> None:
        """Write down how far everything is on disk. Blocks; any thread. A failure makes the store read-only, as ever."""
        assert self._threads is not None
        self._threads.mark_now()

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
        accept_ext: AcceptExt | None = None,
    ) -> ReadResult:
        """Messages of a queue from `queue_offset` on, as slices of the log, and how to go on.

        A message is left out when one of its filters says no; `accept_ext` is asked only where an extended unit is kept.
        """
        queue = self._queues.by_key.get((topic, queue_id))
        if queue is None:
            self._require_open()
            return no_such_queue()
        return self._reader.read(queue, queue_offset, max_messages, accept_tags, accept_record, max_bytes, accept_ext)

    def read_verified(
        self, key: tuple[str, int], queue_offset: int, count: int, max_bytes: int, test: TagTest | None
    ) -> ReadResult | None:
        """`read` for those who read very often and have their limits from `limited`; None when there may be something to
        repair or to explain."""
        queue = self._queues.by_key.get(key)
        return None if queue is None else self._reader.read_verified(queue, queue_offset, count, max_bytes, test)

    def is_at_end(self, key: tuple[str, int], queue_offset: int) -> bool:
        """Whether the next message of a queue that there is gets this offset."""
        queue = self._queues.by_key.get(key)
        return queue is not None and queue_offset == queue.max_offset

    @property
    def usual_messages(self) -> int:
        """The most messages of a read that is no bulk read."""
        return self._reader.usual_messages

    def limited(self, max_messages: int, max_bytes: int) -> tuple[int, int]:
        """How many messages and bytes somebody gets who asks for so many, of what is in memory."""
        return self._reader.limited(max_messages, max_bytes)

    # Reading by log offset and by key

    def record_at(self, log_offset: int) -> memoryview | None:
        """The record at a log offset; None when no record starts there, or a damaged one."""
        self._require_open()
        return self._reader.record_at(log_offset)

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
        if self._keys is None:
            return QueryResult([], 0, 0)
        return self._keys.find(topic, key, max_count, begin_ms, end_ms, index_type)

    # State

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreClosed(f"the store {self.root} is not open")

    @property
    def _opened(self) -> StoreThreads:
        self._require_open()
        assert self._threads is not None
        return self._threads

    @property
    def is_writable(self) -> bool:
        return not self._refusal

    @property
    def reason(self) -> str:
        """Why the store is not writable; empty when it is."""
        return self._refusal

    @property
    def has_failed(self) -> bool:
        """Whether a flush failed: then nothing is stored until the next start."""
        return self._threads is not None and self._threads.has_failed

    @property
    def free_buffers(self) -> int:
        """Buffers of the transient pool that are not in use; 2147483647 without a pool."""
        pool = self._threads.pool if self._threads is not None else None
        return _NO_POOL if pool is None else pool.free_count

    def flush_now(self) -> None:
        """Return when everything appended so far is on disk. Blocks: for tools and tests, not for an event loop."""
        threads = self._opened
        threads.flush_now()
        if threads.has_failed:
            raise StoreReadOnly(self._refusal)
