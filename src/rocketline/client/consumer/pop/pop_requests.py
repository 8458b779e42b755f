"""Pop mode on the wire: requests to one broker, and the messages of an answer with their receipt handles.

The broker names the handles only of messages from a retry topic; for the others the client makes them up from the
answer's lists of offsets, as Java's does. Unlike Java's it does not believe a handle that a message brought along from
its producer: whoever could forge one could have other messages acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rocketline.client.remote_broker import RemoteBroker
from rocketline.errors import BrokerError, CorruptRecord, InvalidReceipt, ProtocolError, RemoteProtocolError
from rocketline.message import POP_CK, RETRY_PREFIX, MessageView, QueueOffset
from rocketline.protocol.bodies import BatchAckMessageRequestBody, encode_body
from rocketline.protocol.bodies.pop import BatchAck, encode_bits
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeResponseHeader,
    Header,
    NotificationHeader,
    NotificationResponseHeader,
    PopMessageHeader,
    PopMessageResponseHeader,
)
from rocketline.protocol.pop_info import (
    FIRST_POP_TIME,
    NORMAL,
    QueueKey,
    ReceiptHandle,
    parse_message_offsets,
    parse_order_counts,
    parse_start_offsets,
    real_topic,
    topic_flag,
)
from rocketline.protocol.records import decode_message

log = logging.getLogger(__name__)

_SUCCESS = int(ResponseCode.SUCCESS)
_NOTHING = frozenset({ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})


@dataclass(frozen=True, slots=True)
class PopAnswer:
    """What a pop brought; `pop_ms` is the broker's time, and `too_many` says that it holds no more requests."""

    pop_ms: int
    rest: int = 0
    messages: list[MessageView] = field(default_factory=list)
    too_many: bool = False


async def pop(broker: RemoteBroker, header: PopMessageHeader, timeout_s: float) -> PopAnswer:
    """Take messages; none is an answer too, everything else an error."""
    answer = await broker.call(Command(RequestCode.POP_MESSAGE, header.encode()), timeout_s)
    if answer.code != _SUCCESS and answer.code not in _NOTHING:
        doing = f"pop of {header.topic} at {broker.name} for group {header.consumer_group}"
        raise BrokerError.of(answer.code, answer.remark, broker.address, doing)
    fields = PopMessageResponseHeader.decode(answer)
    if answer.code != _SUCCESS:
        return PopAnswer(fields.pop_ms, fields.rest_num, too_many=answer.code == ResponseCode.POLLING_FULL)
    messages = read_popped(answer.body, fields, header, broker.name)
    return PopAnswer(fields.pop_ms, fields.rest_num, messages)


async def wait_for_messages(broker: RemoteBroker, header: NotificationHeader, timeout_s: float) -> tuple[bool, bool]:
    """(whether a pop would find something, whether the broker holds no more requests); takes nothing."""
    doing = f"wait for messages of {header.topic} at {broker.name} for group {header.consumer_group}"
    answer = await _ask(broker, RequestCode.NOTIFICATION, header, doing, timeout_s)
    fields = NotificationResponseHeader.decode(answer)
    return fields.has_msg, fields.polling_full


async def acknowledge(broker: RemoteBroker, group: str, topic: str, handle: ReceiptHandle) -> None:
    """One message is done; `topic` is the one that was popped."""
    place = real_topic(group, topic, handle.flag)
    header = AckMessageHeader(
        group, place, handle.queue_id, str(handle), handle.queue_offset, broker_name=handle.broker_name
    )
    await _ask(broker, RequestCode.ACK_MESSAGE, header, f"ack of {handle} in {place} for group {group}")


async def acknowledge_all(broker: RemoteBroker, group: str, handles: Iterable[tuple[str, ReceiptHandle]]) -> None:
    """Messages of one broker are done, all with one request."""
    bits: dict[tuple[str, ReceiptHandle], list[int]] = {}
    for topic, handle in handles:
        # Messages of one check point differ only in their own offsets.
        first = ReceiptHandle(
            handle.ck_start_offset, handle.pop_ms, handle.invisible_ms, handle.revive_queue_id, handle.flag,
            handle.broker_name, handle.queue_id, QueueOffset(handle.ck_start_offset),
        )  # fmt: skip
        bits.setdefault((topic, first), []).append(handle.queue_offset - handle.ck_start_offset)
    acks = [
        BatchAck(
            group, topic, str(first.flag), first.ck_start_offset, first.queue_id, first.revive_queue_id, first.pop_ms,
            first.invisible_ms, encode_bits(offsets),
        )
        for (topic, first), offsets in bits.items()
    ]  # fmt: skip
    body = encode_body(BatchAckMessageRequestBody(broker.name, acks))
    doing = f"ack of {sum(map(len, bits.values()))} messages for group {group}"
    await _ask(broker, RequestCode.BATCH_ACK_MESSAGE, None, doing, body=body)


async def change_invisible(
    broker: RemoteBroker, group: str, topic: str, handle: ReceiptHandle, invisible_ms: int
) -> ReceiptHandle | None:
    """Have a message come again that much later from now; the handle that counts then. None: it was done before."""
    place = real_topic(group, topic, handle.flag)
    header = ChangeInvisibleTimeHeader(
        group, place, handle.queue_id, str(handle), handle.queue_offset, invisible_ms, handle.broker_name
    )
    doing = f"change of {handle} in {place} for group {group}"
    answer = await _ask(broker, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, doing)
    fields = ChangeInvisibleTimeResponseHeader.decode(answer)
    if not fields.pop_ms:
        return None
    return handle.changed(fields.pop_ms, fields.invisible_ms, fields.revive_queue_id)


async def _ask(
    broker: RemoteBroker,
    code: int,
    header: Header | None,
    doing: str,
    timeout_s: float | None = None,
    body: bytes = b"",
) -> Command:
    command = Command(code, header.encode() if header is not None else {}, body)
    answer = await broker.call(command, timeout_s or broker.timeout_s)
    if answer.code != _SUCCESS:
        raise BrokerError.of(answer.code, answer.remark, broker.address, doing)
    return answer


def read_popped(
    body: bytes, fields: PopMessageResponseHeader, asked: PopMessageHeader, broker_name: str
) -> list[MessageView]:
    """The messages of an answer, each with its handle. One that cannot be read stays away, with those behind it in
    the answer: they come again when their invisible time is over."""
    messages: list[MessageView] = []
    position = 0
    while position < len(body):
        try:
            message = decode_message(body, position, len(body))
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
