"""The log of an open store as replication sees it: bytes for other brokers, and bytes of another broker's log.

Owner thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from rocketline.errors import FlushFailed, StoreError, StoreReadOnly
from rocketline.protocol.records import Buffer
from rocketline.store.flush.progress import PROOF_BYTES
from rocketline.store.flush.store_threads import StoreThreads
from rocketline.store.log.replica_appender import ReplicaAppender
from rocketline.store.recovery.cutting import cut_store, last_record_below
from rocketline.store.recovery.opening import StoreFiles
from rocketline.store.store_parts import StoreParts


class RecordProof(NamedTuple):
    """A record, to tell whether another log has the same."""

    log_offset: int
    size: int
    crc: int
    """Of its head."""


class LogCopies:
    """Part of a `MessageStore`."""

    def __init__(self, parts: StoreParts, files: StoreFiles, threads: Callable[[], StoreThreads]) -> None:
        """`threads` are those of the open store, or it raises StoreClosed."""
        self._parts = parts
        self._log = parts.log
        self._files = files
        self._threads = threads
        self._asks_to_flush = parts.config.flush.is_sync or not parts.config.flush.log_timed

    @property
    def counted_end(self) -> int:
        """How far this log counts as a copy: with SYNC_FLUSH to where it is on disk."""
        return self._log.flushed if self._parts.config.flush.is_sync else self._log.wrote

    @property
    def is_shorter(self) -> bool:
        """Whether this log ends before what it knew to be confirmed, as far as the last checkpoint tells."""
        checkpoint = self._files.checkpoint
        return checkpoint is not None and checkpoint.confirmed_offset > self._log.wrote

    @property
    def confirmed(self) -> int:
        """Up to where this log was known to be confirmed, as far as the last checkpoint tells; Apache's brokers keep it at
        the same place."""
        checkpoint = self._files.checkpoint
        return min(checkpoint.confirmed_offset, self._log.wrote) if checkpoint is not None else 0

    @confirmed.setter
    def confirmed(self, log_offset: int) -> None:
        """Saved with the next checkpoint."""
        if self._files.checkpoint is not None:
            self._files.checkpoint.confirmed_offset = log_offset

    # For replicas

    def slice(self, start: int, end: int) -> memoryview:
        """Bytes of the log from `start` to at most `end`, to the end of a file at most; empty when there are none."""
        log = self._log
        size = log.file.segment_bytes
        end = min(end, log.readable, (start // size + 1) * size)
        found = log.file.slice(start, end) if end > start else None
        return memoryview(b"") if found is None else found

    def last_file_offset(self) -> int:
        """Where the last file begins."""
        last = self._log.file.last
        return last.base if last is not None else self._log.wrote

    def limit_reads(self, log_offset: int | None) -> None:
        """Make nothing readable from this log offset on, until a later call allows it; None: there is no such limit."""
        self._parts.dispatcher.limit = log_offset

    def has_record(self, proof: RecordProof) -> bool:
        """Whether this log has the same record at the same place."""
        record = self._log.record_at(proof.log_offset)
        return record is not None and len(record) == proof.size and crc32(record[:PROOF_BYTES]) == proof.crc

    # As a replica

    def new_appender(self) -> ReplicaAppender:
        """Takes the bytes of a master's log, given to `append`, from the end of this one on."""
        self._threads()
        return ReplicaAppender(self._log)

    def append(self, appender: ReplicaAppender, log_offset: int, data: Buffer) -> int:
        """Append bytes of a master's log; returns how many records were completed. LogDiverged when they do not fit; any
        other StoreError when the disk does not take them."""
        threads = self._threads()
        if threads.has_failed:
            raise StoreReadOnly("a flush failed")
        try:
            count = appender.append(log_offset, data)
        except FlushFailed as error:
            threads.fail(error)
            raise
        if count and self._asks_to_flush:
            threads.log_flusher.request()
        return count

    def last_record(self) -> RecordProof | None:
        """The last record of the log; None: there is none, or it is not found."""
        self._threads()
        try:
            last = last_record_below(self._parts, self._log.wrote)
        except StoreError:
            return None
        record = self._log.record_at(last.log_offset) if last is not None else None
        if last is None or record is None:
            return None
        return RecordProof(last.log_offset, last.size, crc32(record[:PROOF_BYTES]))

    def cut(self, log_offset: int) -> None:
        """Remove everything from this log offset on, where a record must end: what this log has and its master's never had.

        Blocks for a moment. A StoreError, when no record ends there, leaves all as it was.
        """
        with self._threads().paused():
            assert self._files.progress is not None
            cut_store(self._parts, self._files.progress, log_offset)

    def number_queues(self) -> None:
        """Let this log give numbers to messages: each queue goes on behind the last message it has. All of the log must be
        dispatched; with SYNC_FLUSH that is, flushed before."""
        self._threads()
        if self._log.appended:
            raise StoreError(
                "a part of the log is not readable yet: its messages have numbers that would be given again"
            )
        for key, queue in self._parts.queues.by_key.items():
            self._log.queue_offsets[key] = queue.max_offset
