"""Delivering a popped message again: a copy on the group's retry topic for its topic, or on its dead-letter topic.

The copy keeps body, tags, keys and all other properties, counts one more attempt and says when it was popped first and
by whom. Retry topics belong to a group and a topic, because a pop names one topic; they are made when first needed.
Apache's broker goes on for ever here and leaves giving up to its clients; ours stops after the group's retryMaxTimes,
as it does for pulls. A message that the store will not take on the retry topic goes to the dead letters, too, as it is.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple

from rocketline.broker.pop.records import PopCheckpoint
from rocketline.broker.retry_copies import dead_copy, origin, own_properties, retry_copies
from rocketline.broker.set_aside import SetAside, store_own
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.errors import BAD_ITEM, Unstorable
from rocketline.message import RETRY_PREFIX, RETRY_TOPIC, UNIQ_KEY
from rocketline.protocol.names import dlq_topic
from rocketline.protocol.pop_info import FIRST_POP_TIME, RETRY_V1, RETRY_V2, pop_retry_topic
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES
from rocketline.protocol.records import Record, decode_record
from rocketline.store.message_store import MessageStore, StoreMessage

log = logging.getLogger(__name__)

WORKER = "redeliveries"
ORIGIN_GROUP = "ORIGIN_GROUP"


class Copy(NamedTuple):
    """What a redelivery is known by."""

    topic: str
    unique_id: str
    reconsume_times: int


@wired
class Redelivery:
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    statistics: BrokerStatistics
    aside: SetAside
    stored: Callable[[], None]
    store_host: bytes
    retry_v2: bool
    started_ms: int
    made: Counter[Copy] = field(default_factory=Counter)
    """After a crash: redeliveries that are there already, though their check points are not known to be settled."""
    redelivered: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By group and topic, since the start."""

    def deliver(self, checkpoint: PopCheckpoint, queue_offset: int) -> None:
        """Store a copy of one message, unless it is gone; a StoreError when the store takes nothing now."""
        unit = self.store.unit_at(checkpoint.topic, checkpoint.queue_id, queue_offset)
        log_offset = unit.log_offset if unit is not None else -1
        try:
            record = self._record(checkpoint, queue_offset, log_offset)
            if record is not None:
                self._deliver(checkpoint, record)
        except BAD_ITEM as error:
            self.aside.message(WORKER, log_offset, error, dlq_topic(checkpoint.group))
            self.offsets.save_after(self.store.log_next_offset)

    def _deliver(self, checkpoint: PopCheckpoint, record: Record) -> None:
        message = self._copy(checkpoint, record)
        if self.made and checkpoint.pop_ms < self.started_ms and self._was_made(message):
            return
        result = store_own(self.store, message)
        self.offsets.save_after(result.next_log_offset)
        self.statistics.put(message.topic, 1, result.size)
        self.redelivered[checkpoint.group, checkpoint.topic] += 1
        self.stored()

    def _was_made(self, message: StoreMessage) -> bool:
        copy = Copy(message.topic, message.properties.get(UNIQ_KEY, ""), message.reconsume_times)
        if not self.made[copy]:
            return False
        self.made[copy] -= 1
        return True

    def _record(self, checkpoint: PopCheckpoint, queue_offset: int, log_offset: int) -> Record | None:
        """The message as it lies in its queue; None when it is no longer there, or is another one."""
        topic, queue_id = checkpoint.topic, checkpoint.queue_id
        view = self.store.record_at(log_offset) if log_offset >= 0 else None
        if view is None:
            log.warning("offset %d of %s queue %d is gone: %s does not get it again", queue_offset, topic, queue_id,
                        checkpoint.group)  # fmt: skip
            return None
        record = decode_record(view, 0, len(view))
        if record.store_ms > checkpoint.pop_ms:
            log.warning("offset %d of %s queue %d was stored after it was popped: the topic began anew", queue_offset, topic,
                        queue_id)  # fmt: skip
            return None
        return record

    def _copy(self, checkpoint: PopCheckpoint, record: Record) -> StoreMessage:
        group = checkpoint.group
        useful = {ORIGIN_GROUP: group}
        if record.reconsume_times == 0 or FIRST_POP_TIME not in own_properties(record):
            useful[FIRST_POP_TIME] = str(checkpoint.pop_ms)
        config = self.groups.table.get(group)
        if config is not None and record.reconsume_times >= config.retry_max_times:
            useful = {**origin(record, _popped_topic(checkpoint)), **useful}
            topic = self.topics.require_derived(dlq_topic(group), 1).topic_name
            message = dead_copy(record, topic, 0, useful)
            self.statistics.sent_back(group, useful[RETRY_TOPIC], dead=True)
        else:
            copies = retry_copies(record, self._retry_topic(checkpoint), 0, {}, useful)
            fitting = (copy for copy in copies if len(copy.properties_raw) <= MAX_PROPERTIES_BYTES)
            if (found := next(fitting, None)) is None:
                raise Unstorable("its properties are no text, and larger than the limit when that is mended")
            message = found
        message.born_host = self.store_host
        return message

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
