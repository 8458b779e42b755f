"""Delivering a popped message again: a copy on the group's retry topic for its topic, or on its dead-letter topic.

The copy keeps body, tags, keys and all other properties, counts one more attempt and says when it was popped first and
by whom. Retry topics belong to a group and a topic, because a pop names one topic; they are made when first needed.
Apache's broker goes on for ever here and leaves giving up to its clients; ours stops after the group's retryMaxTimes,
as it does for pulls.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple

from rocketline.broker.pop.records import PopCheckpoint
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.errors import CorruptRecord, StoreError
from rocketline.message import ORIGIN_MESSAGE_ID, RETRY_PREFIX, RETRY_TOPIC, UNIQ_KEY
from rocketline.protocol.message_ids import offset_id
from rocketline.protocol.names import dlq_topic
from rocketline.protocol.pop_info import FIRST_POP_TIME, RETRY_V1, RETRY_V2, pop_retry_topic
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties, encode_properties
from rocketline.protocol.records import Record, decode_record
from rocketline.store.message_store import AppendStatus, MessageStore, StoreMessage

log = logging.getLogger(__name__)

ORIGIN_GROUP = "ORIGIN_GROUP"
_NEVER_TAKEN = (AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_TOO_LARGE)


class Copy(NamedTuple):
    """What a redelivery is known by."""

    topic: str
    unique_id: str
    reconsume_times: int


class TryAgain(StoreError):
    """The store takes nothing now."""


@wired
class Redelivery:
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    statistics: BrokerStatistics
    stored: Callable[[], None]
    store_host: bytes
    retry_v2: bool
    started_ms: int
    made: Counter[Copy] = field(default_factory=Counter)
    """After a crash: redeliveries that are there already, though their check points are not known to be settled."""
    redelivered: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By group and topic, since the start."""

    def deliver(self, checkpoint: PopCheckpoint, queue_offset: int) -> bool:
        """Store a copy of one message; False when the store will not take it as it is. TryAgain: it takes nothing now."""
        record = self._record(checkpoint, queue_offset)
        if record is None:
            return True
        message = self._copy(checkpoint, record)
        if self.made and checkpoint.pop_ms < self.started_ms and self._was_made(message):
            return True
        result = self.store.append(message)
        if result.status is not AppendStatus.OK:
            if result.status in _NEVER_TAKEN:
                log.error("%s cannot be given offset %d of %s queue %d again: %s", checkpoint.group, queue_offset,
                          checkpoint.topic, checkpoint.queue_id, result.reason)  # fmt: skip
                return False
            raise TryAgain(result.reason or result.status.name)
        self.offsets.save_after(result.next_log_offset)
        self.statistics.put(message.topic, 1, result.size)
        self.redelivered[checkpoint.group, checkpoint.topic] += 1
        self.stored()
        return True

    def _was_made(self, message: StoreMessage) -> bool:
        copy = Copy(message.topic, message.properties.get(UNIQ_KEY, ""), message.reconsume_times)
        if not self.made[copy]:
            return False
        self.made[copy] -= 1
        return True

    def _record(self, checkpoint: PopCheckpoint, queue_offset: int) -> Record | None:
        """The message as it lies in its queue; None when it is no longer there, or is another one."""
        topic, queue_id = checkpoint.topic, checkpoint.queue_id
        unit = self.store.unit_at(topic, queue_id, queue_offset)
        view = self.store.record_at(unit.log_offset) if unit is not None else None
        try:
            record = decode_record(view, 0, len(view)) if view is not None else None
        except CorruptRecord as error:
            log.error("offset %d of %s queue %d is damaged: %s", queue_offset, topic, queue_id, error)
            return None
        if record is None:
            log.warning("offset %d of %s queue %d is gone: %s does not get it again", queue_offset, topic, queue_id,
                        checkpoint.group)  # fmt: skip
            return None
        if record.store_ms > checkpoint.pop_ms:
            log.warning("offset %d of %s queue %d was stored after it was popped: the topic began anew", queue_offset, topic,
                        queue_id)  # fmt: skip
            return None
        return record

    def _copy(self, checkpoint: PopCheckpoint, record: Record) -> StoreMessage:
        group = checkpoint.group
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        added = {ORIGIN_GROUP: group}
        if record.reconsume_times == 0 or FIRST_POP_TIME not in properties:
            added[FIRST_POP_TIME] = str(checkpoint.pop_ms)
        config = self.groups.table.get(group)
        if config is not None and record.reconsume_times >= config.retry_max_times:
            topic = self.topics.require_derived(dlq_topic(group), 1).topic_name
            added[RETRY_TOPIC] = properties.get(RETRY_TOPIC) or _popped_topic(checkpoint)
            added[ORIGIN_MESSAGE_ID] = properties.get(ORIGIN_MESSAGE_ID) or offset_id(
                record.store_host, record.log_offset
            )
            self.statistics.sent_back(group, added[RETRY_TOPIC], dead=True)
        else:
            topic = self._retry_topic(checkpoint)
        raw = encode_properties(properties | added).encode()
        if len(raw) > MAX_PROPERTIES_BYTES:
            raw, added = encode_properties(properties).encode(), {}  # better a message that says less than none
        return StoreMessage(
            topic=topic,
            queue_id=0,
            body=record.body,
            properties=properties | added,
            properties_raw=raw,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_ms=record.born_ms,
            born_host=self.store_host,
            reconsume_times=record.reconsume_times + 1,
        )

    def _retry_topic(self, checkpoint: PopCheckpoint) -> str:
        topic, group = checkpoint.topic, checkpoint.group
        if not topic.startswith(RETRY_PREFIX):
            topic = pop_retry_topic(group, topic, RETRY_V2 if self.retry_v2 else RETRY_V1)
        if self.topics.get(topic) is None:
            self.topics.require_derived(topic, 1)
            if self.offsets.get(group, topic, 0) is None:
                self.offsets.commit("the first redelivery", group, topic, 0, 0)
        return topic


def _popped_topic(checkpoint: PopCheckpoint) -> str:
    """The topic that was asked for when the message was popped."""
    for separator in "_+":
        prefix = f"{RETRY_PREFIX}{checkpoint.group}{separator}"
        if checkpoint.topic.startswith(prefix):
            return checkpoint.topic.removeprefix(prefix)
    return checkpoint.topic
