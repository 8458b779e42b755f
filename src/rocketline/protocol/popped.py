"""The messages in the answer to a pop, with their receipt handles, and many handles in one acknowledgement.

The broker names the handles only of messages from a retry topic; for the others the client makes them up from the
answer's lists of offsets, as Java's does. Unlike Java's it does not believe a handle that a message brought along from
its producer: whoever could forge one could have other messages acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from rocketline.errors import CorruptRecord, InvalidReceipt, ProtocolError, RemoteProtocolError
from rocketline.message import POP_CK, RETRY_PREFIX, MessageView, QueueOffset
from rocketline.protocol.bodies.pop import BatchAck, encode_bits
from rocketline.protocol.headers import PopMessageHeader, PopMessageResponseHeader
from rocketline.protocol.pop_info import (
    FIRST_POP_TIME,
    NORMAL,
    QueueKey,
    ReceiptHandle,
    parse_message_offsets,
    parse_order_counts,
    parse_start_offsets,
    topic_flag,
)
from rocketline.protocol.records import Buffer, decode_message

log = logging.getLogger(__name__)


def read_popped(
    body: Buffer,
    fields: PopMessageResponseHeader,
    asked: PopMessageHeader,
    broker_name: str,
    *,
    inflates: bool = True,
) -> list[MessageView]:
    """The messages of an answer, each with its handle. A record that is damaged stays away, with those behind it in the
    answer, whose places it leaves in doubt: they come again when their invisible time is over."""
    messages: list[MessageView] = []
    position = 0
    while position < len(body):
        try:
            message = decode_message(body, position, len(body), inflates=inflates)
        except (CorruptRecord, ProtocolError) as error:
            log.error("a message popped from %s at %s cannot be read: %s", asked.topic, broker_name, error)
            break
        position += message.stored_bytes
        message.broker_name = broker_name
        messages.append(message)
    _add_handles(messages, fields, broker_name)
    for message in messages:
        if message.topic.startswith(RETRY_PREFIX):  # popResponseReturnActualRetryTopic: not what was subscribed to
            message.topic = asked.topic
    return messages


def _add_handles(messages: Sequence[MessageView], fields: PopMessageResponseHeader, broker_name: str) -> None:
    starts = parse_start_offsets(fields.start_offset_info)
    offsets = parse_message_offsets(fields.msg_offset_info)
    counts = parse_order_counts(fields.order_count_info)
    by_queue: dict[QueueKey, list[MessageView]] = {}
    for message in messages:
        properties = message.properties
        if not _has_own_handle(message, fields):
            by_queue.setdefault((topic_flag(message.topic), message.queue_id), []).append(message)
        if not message.reconsume_times or FIRST_POP_TIME not in properties:
            properties[FIRST_POP_TIME] = str(fields.pop_ms)
    for (flag, queue_id), group in by_queue.items():
        group.sort(key=lambda message: message.queue_offset)
        start = starts.get((flag, queue_id), group[0].queue_offset)
        listed = offsets.get((flag, queue_id)) or [message.queue_offset for message in group]
        if len(listed) < len(group):
            raise RemoteProtocolError(f"{len(group)} messages of queue {queue_id}, but offsets {listed}")
        for message, offset in zip(group, listed):
            handle = ReceiptHandle(
                start, fields.pop_ms, fields.invisible_ms, fields.revive_queue_id, flag, broker_name, queue_id,
                QueueOffset(offset),
            )  # fmt: skip
            message.properties[POP_CK] = str(handle)
            if counts and flag == NORMAL:
                again = counts.get((flag, queue_id, handle.queue_offset), counts.get((flag, queue_id, None), 0))
                message.reconsume_times = max(message.reconsume_times, again)


def _has_own_handle(message: MessageView, fields: PopMessageResponseHeader) -> bool:
    """Whether the broker itself wrote the handle: it does so for messages of retry topics, and for this very pop."""
    text = message.receipt_handle
    if text is None:
        return False
    try:
        handle = ReceiptHandle.parse(text)
    except InvalidReceipt:
        return False
    return handle.flag != NORMAL and handle.pop_ms == fields.pop_ms


def batch_acks(group: str, handles: Iterable[tuple[str, ReceiptHandle]]) -> list[BatchAck]:
    """Entries of one request (200151) that acknowledge messages, each with the topic that was popped."""
    bits: dict[tuple[str, ReceiptHandle], list[int]] = {}
    for topic, handle in handles:
        # Messages of one check point differ only in their own offsets.
        first = ReceiptHandle(
            handle.ck_start_offset, handle.pop_ms, handle.invisible_ms, handle.revive_queue_id, handle.flag,
            handle.broker_name, handle.queue_id, QueueOffset(handle.ck_start_offset),
        )  # fmt: skip
        bits.setdefault((topic, first), []).append(handle.queue_offset - handle.ck_start_offset)
    return [
        BatchAck(
            group, topic, str(first.flag), first.ck_start_offset, first.queue_id, first.revive_queue_id, first.pop_ms,
            first.invisible_ms, encode_bits(offsets),
        )
        for (topic, first), offsets in bits.items()
    ]  # fmt: skip
