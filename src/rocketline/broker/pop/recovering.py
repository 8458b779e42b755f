"""After a crash: consumer offsets as the revive log knows them.

Offsets are saved every few seconds. What was popped since then has its check points in the log, and maybe its
acknowledgements; if the group began again at the saved offset, all of it would come again, the acknowledged too. So the
check points written since the save are looked at, and an offset that stands in front of one moves behind it. One that
stands elsewhere stays: what lies between was in memory only, or was filtered out, and is popped again.

The same holds for the revive queues. What was delivered again, by check points that are not known to be settled, is
found on the retry topics. What the timer may repeat is found in the revive queues, before the saved offset.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

from rocketline.broker.pop.records import CHECKPOINT_TAG, PopCheckpoint, PopKey, decode_either
from rocketline.broker.pop.redelivery import ORIGIN_GROUP, Copy
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.timer.redirect import TIMER_TOPIC
from rocketline.errors import CorruptRecord
from rocketline.message import REAL_TOPIC, TAGS, UNIQ_KEY
from rocketline.protocol.names import is_derived
from rocketline.protocol.properties import property_in
from rocketline.protocol.records import Record, decode_record, read_start
from rocketline.store.message_store import MessageStore

log = logging.getLogger(__name__)

_tag_of = property_in(TAGS)
_real_topic_of = property_in(REAL_TOPIC)
_unique_id_of = property_in(UNIQ_KEY)
_origin_of = property_in(ORIGIN_GROUP)
_READ = 256

LOOK_BACK_MS = 120_000
"""How far the timer may fall behind what it delivered: its progress is saved every second."""


def move_offsets(store: MessageStore, offsets: ConsumerOffsets, revive_topic: str) -> int:
    """Move offsets behind what was popped since they were saved; returns how many moved."""
    since_ms = offsets.loaded_ms
    found = list(_since(store, TIMER_TOPIC, 0, since_ms, revive_topic))
    for queue_id in store.queue_ids(revive_topic):
        found += _since(store, revive_topic, queue_id, since_ms, revive_topic)
    moved = set()
    for checkpoint in sorted(found, key=lambda checkpoint: (checkpoint.pop_ms, checkpoint.start_offset)):
        topic, group, queue_id = checkpoint.topic, checkpoint.group, checkpoint.queue_id
        after = max(checkpoint.offsets, default=-1) + 1
        committed = offsets.get(group, topic, queue_id)
        if committed is None and checkpoint.start_offset == store.min_offset(topic, queue_id):
            committed = checkpoint.start_offset  # type: ignore[assignment]
        if committed is not None and checkpoint.start_offset <= committed < after <= store.max_offset(topic, queue_id):
            offsets.commit("the revive log", group, topic, queue_id, after)
            moved.add((topic, group, queue_id))
    if moved:
        log.info("%d consumer offsets were behind what had been popped, and were moved", len(moved))
    return len(moved)


def copies_since(store: MessageStore, since_ms: int, topics: Iterable[str]) -> Counter[Copy]:
    """What was delivered again since a time."""
    copies: Counter[Copy] = Counter()
    for topic in topics:
        if not is_derived(topic):
            continue
        for record in _records(store, topic, 0, since_ms):
            properties = record.properties.decode("utf-8", "replace")
            unique_id = _unique_id_of(properties)
            if unique_id is not None and _origin_of(properties) is not None:
                copies[Copy(topic, unique_id, record.reconsume_times)] += 1
    return copies


def settled_keys(
    store: MessageStore, offsets: ConsumerOffsets, revive_topic: str, queue_id: int, next_offset: int
) -> set[PopKey]:
    """Check points of a revive queue before an offset that the timer might bring again."""
    since_ms = offsets.loaded_ms - LOOK_BACK_MS
    keys = set()
    for record in _records(store, revive_topic, queue_id, since_ms):
        if record.queue_offset >= next_offset:
            break
        checkpoint = _checkpoint(record, revive_topic)
        if checkpoint is not None:
            keys.add(checkpoint.key)
    return keys


def _since(store: MessageStore, topic: str, queue_id: int, since_ms: int, revive_topic: str) -> Iterator[PopCheckpoint]:
    """Check points popped after a time, from a queue of the timer or of the revive log."""
    for record in _records(store, topic, queue_id, since_ms):
        checkpoint = _checkpoint(record, revive_topic)
        if checkpoint is not None and checkpoint.pop_ms >= since_ms:
            yield checkpoint


def _checkpoint(record: Record, revive_topic: str) -> PopCheckpoint | None:
    properties = record.properties.decode("utf-8", "replace")
    if _tag_of(properties) != CHECKPOINT_TAG:
        return None
    if record.topic != revive_topic and _real_topic_of(properties) != revive_topic:
        return None
    found = decode_either(CHECKPOINT_TAG, bytes(record.body))
    return found if isinstance(found, PopCheckpoint) else None


def _records(store: MessageStore, topic: str, queue_id: int, since_ms: int) -> Iterator[Record]:
    """Records of a queue stored at or after a time."""
    offset = store.offset_at_time(topic, queue_id, since_ms)
    while True:
        found = store.read(topic, queue_id, offset, _READ)
        for chunk in found.chunks:
            position = 0
            while position < len(chunk):
                size = read_start(chunk, position)[0]
                try:
                    record = decode_record(chunk, position, position + size)
                except CorruptRecord as error:
                    log.warning("a record of %s queue %d is passed over: %s", topic, queue_id, error)
                else:
                    if record.store_ms >= since_ms:
                        yield record
                position += size
        if found.next_queue_offset <= offset:
            return
        offset = found.next_queue_offset
