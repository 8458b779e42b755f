"""Filing many records in consume queues and key index at once: the same result as one by one, several times as fast.

Entries come from reading the log back, in its order. Queues and index skip what they already have, so doing it twice does no
harm. A name no folder can have is passed over: such a record can only come from a foreign or damaged log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from rocketline.protocol.records import NOT_QUEUED, TRANSACTION_MASK, TRANSACTION_ROLLBACK, LogEntry
from rocketline.store.commit_log import is_storable_topic
from rocketline.store.consume_queue import ConsumeQueues
from rocketline.store.key_index import KeyIndex

QueueKey = tuple[str, int]

log = logging.getLogger(__name__)


def by_queue(entries: Iterable[LogEntry]) -> dict[QueueKey, list[LogEntry]]:
    """The entries that belong into consume queues, by queue."""
    found: dict[QueueKey, list[LogEntry]] = {}
    for entry in entries:
        if not entry[7] & NOT_QUEUED:
            key = (entry[2], entry[3])
            try:
                found[key].append(entry)
            except KeyError:
                found[key] = [entry]
    return found


def put_in_queues(
    queues: ConsumeQueues, entries: Iterable[LogEntry], tags_code_for: Callable[[LogEntry], int] | None = None
) -> set[QueueKey]:
    """Returns the queues that had messages and lacked some between their last one and the first of these."""
    gaps: set[QueueKey] = set()
    for (topic, queue_id), group in by_queue(entries).items():
        if not is_storable_topic(topic) or queue_id < 0:
            first = group[0].log_offset
            log.warning(
                "record at %d is in no queue: no folder can be topic %r, queue %d", first, topic[:300], queue_id
            )
            continue
        if tags_code_for is not None:
            group = [entry._replace(tags_code=tags_code_for(entry)) for entry in group]
        queue = queues.obtain(topic, queue_id)
        if 0 < queue.max_offset < group[0].queue_offset:
            gaps.add((topic, queue_id))
        queue.put_many(group)
    return gaps


def put_in_index(index: KeyIndex, entries: Sequence[LogEntry]) -> None:
    index.put_many([entry for entry in entries if entry[7] & TRANSACTION_MASK != TRANSACTION_ROLLBACK])
