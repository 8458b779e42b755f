"""Bodies about queues: locks, and statistics in maps keyed by queue.

Such maps have string keys here: `queue_key` makes one and `parse_queue_key` reads it, in any form a peer writes.
"""

from __future__ import annotations

from msgspec import field

from rocketline.message import MessageQueue
from rocketline.protocol.bodies.json_body import Body, Int32, Int64, QueueBody, decode_body, encode_body, queue_key
from rocketline.protocol.fastjson import FastJsonError, parse


class LockBatchRequestBody(Body):
    """41: lock these queues for this client."""

    consumer_group: str
    client_id: str
    mq_set: list[QueueBody] = field(default_factory=list)
    only_this_broker: bool = False


class UnlockBatchRequestBody(LockBatchRequestBody):
    """42: unlock these queues."""


class LockBatchResponseBody(Body):
    """The queues that are locked for the client now."""

    lock_ok_mq_set: list[QueueBody] = field(default_factory=list, name="lockOKMQSet")


class TopicOffset(Body):
    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(Body):
    offset_table: dict[str, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


class OffsetWrapper(Body):
    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


class ConsumeStats(Body):
    consume_tps: float = 0.0
    offset_table: dict[str, OffsetWrapper] = field(default_factory=dict)


class ConsumerStatus(Body):
    """221 and 223: the offset of each queue of a client."""

    consumer_table: dict[str, dict[str, Int64]] = field(default_factory=dict)
    message_queue_table: dict[str, Int64] = field(default_factory=dict)


class ResetOffsetBody(Body):
    """220 and 222: new offsets by queue."""

    offset_table: dict[str, Int64] = field(default_factory=dict)


class _QueueOffset(Body):
    topic: str
    broker_name: str
    queue_id: Int32
    offset: Int64


class _ResetOffsetList(Body):
    offset_table: list[_QueueOffset] = field(default_factory=list)


def encode_reset_list(offsets: dict[MessageQueue, int]) -> bytes:
    """New offsets as C++ clients read them: a list, because their JSON has no objects as keys."""
    items = [_QueueOffset(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in offsets.items()]
    return encode_body(_ResetOffsetList(items))


def decode_reset_offsets(data: bytes) -> ResetOffsetBody:
    """A ResetOffsetBody from the map form or from the list form that brokers send to C++ clients."""
    try:
        plain = parse(data)
    except FastJsonError:
        plain = None
    if isinstance(plain, dict) and isinstance(plain.get("offsetTable"), list):
        items = decode_body(_ResetOffsetList, data).offset_table
        queues = ((MessageQueue(item.topic, item.broker_name, item.queue_id), item.offset) for item in items)
        return ResetOffsetBody({queue_key(queue): offset for queue, offset in queues})
    return decode_body(ResetOffsetBody, data)
