"""What a store has: how far its log reaches, and of each queue which offsets, since when, and where a message lies.

Owner thread only, except for the positions in the log.
"""

from __future__ import annotations

from rocketline.message import LogOffset
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.queue.dispatcher import Dispatcher
from rocketline.store.queue.tags_codes import TagsCodes
from rocketline.store.reading.read_result import QueueUnit


class StoreLookups:
    """The part of a message store that only looks; a queue that does not exist is an empty one."""

    _log: CommitLog
    _queues: ConsumeQueues
    _codes: TagsCodes
    _dispatcher: Dispatcher

    @property
    def log_min_offset(self) -> int:
        return self._log.min_offset

    @property
    def log_next_offset(self) -> int:
        """Where the next record will be put."""
        return self._log.wrote

    @property
    def committed_offset(self) -> int:
        """Everything in the log below this is in the files; with a transient pool the rest is in its buffers only."""
        return self._log.readable

    @property
    def flushed_offset(self) -> int:
        """Everything in the log below this is on disk."""
        return self._log.flushed

    @property
    def lasting_offset(self) -> int:
        """Everything in the log below this is on disk, and on all replicas that must have it: it is never cut off."""
        flushed, limit = self._log.flushed, self._dispatcher.limit
        return flushed if limit is None else min(flushed, limit)

    @property
    def dispatched_offset(self) -> int:
        """Everything in the log below this is readable."""
        return self._dispatcher.dispatched

    @property
    def last_store_ms(self) -> int:
        return self._log.last_store_ms

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
        if queue is None or unit is None:
            return None
        log_offset, size, code = unit
        return QueueUnit(LogOffset(log_offset), size, self._codes.real(queue, log_offset, code))

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

    def queue_counts(self) -> dict[str, int]:
        """How many queues each of those topics has at least."""
        counts: dict[str, int] = {}
        for topic, queue_id in self._queues.by_key:
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        return counts

    def queue_ids(self, topic: str) -> list[int]:
        return sorted(queue_id for name, queue_id in self._queues.by_key if name == topic)
