"""The dispatcher follows the commit log and keeps consume queues and key index in step with it.

Appends hand over what the indexes need (`LogEntry`), so nothing is parsed twice; at start, recovery reads the same entries
back from the log. A record is dispatched once it counts as stored: at once, or under SYNC_FLUSH when it is on disk. Being
stopped half way is harmless, because queues and index skip what they already have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from rocketline.errors import StoreError
from rocketline.protocol.records import (
    INNER_BATCH,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    LogEntry,
)
from rocketline.store.commit_log import CommitLog, is_storable_topic
from rocketline.store.consume_queue import ConsumeQueue, ConsumeQueues
from rocketline.store.key_index import KeyIndex

TagsCodeFor = Callable[[LogEntry], int]
OnArrivals = Callable[[list[LogEntry]], None]

log = logging.getLogger(__name__)

# Prepared and rolled back messages are in no queue. A batch kept as one record belongs into a queue of another format.
_NOT_QUEUED = TRANSACTION_PREPARED | INNER_BATCH


class Dispatcher:
    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        tags_code_for: TagsCodeFor | None = None,
        waits_for_flush: bool = False,
    ) -> None:
        self.on_arrivals: OnArrivals | None = None
        self.dispatched = 0
        """Everything below this log offset is in queues and index."""
        self.dispatched_ms = 0
        """Store time of the last message dispatched."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._tags_code_for = tags_code_for
        self._waits_for_flush = waits_for_flush

    def dispatch(self) -> int:
        """Handle what has been appended and confirmed; returns how many records. A StoreError leaves the rest for later."""
        ready = self._take()
        done = 0
        handle = self._handle
        try:
            for entry in ready:
                handle(entry)
                done += 1
        finally:
            if done < len(ready):
                self._log.entries.extendleft(reversed(ready[done:]))
                del ready[done:]
            if ready and self.on_arrivals is not None:
                self.on_arrivals(ready)
        return done

    def _take(self) -> list[LogEntry]:
        entries = self._log.entries
        if not self._waits_for_flush:
            ready = list(entries)
            entries.clear()
            return ready
        ready = []
        flushed = self._log.flushed
        while entries and entries[0].log_offset + entries[0].size <= flushed:
            ready.append(entries.popleft())
        return ready

    def replay(self, entries: Sequence[LogEntry]) -> None:
        """Handle entries read back from the log at start: nobody is told, and a name no folder can have is passed over."""
        for entry in entries:
            try:
                self._handle(entry)
            except StoreError as error:
                # Anything else is the disk's fault: passing it over would leave the message out of its queue for good.
                if is_storable_topic(entry.topic) and entry.queue_id >= 0:
                    raise
                log.warning("record at %d is in no queue: %s", entry.log_offset, error)

    def _handle(self, entry: LogEntry) -> None:
        log_offset, size, topic, queue_id, queue_offset, tags_code, store_ms, sys_flag, properties = entry
        if not sys_flag & _NOT_QUEUED:
            queue: ConsumeQueue | None = self._queues.by_key.get((topic, queue_id))
            if queue is None:
                queue = self._queues.obtain(topic, queue_id)
            if self._tags_code_for is not None:
                tags_code = self._tags_code_for(entry)
            queue.put(queue_offset, log_offset, size, tags_code)
        if self._index is not None and sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            self._index.put(topic, log_offset, store_ms, properties)
        self.dispatched = log_offset + size
        self.dispatched_ms = store_ms
