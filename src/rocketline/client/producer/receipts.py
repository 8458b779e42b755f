"""Receipts of sends."""

from __future__ import annotations

from enum import Enum

import msgspec

from rocketline.errors import BrokerError, RemoteProtocolError
from rocketline.message import MessageQueue, QueueOffset
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import SendMessageResponseHeader


class SendStatus(Enum):
    """How safe a stored message is. All but OK mean: stored, but not yet as durable as the broker is set up for."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


_STATUSES: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendReceipt(msgspec.Struct, frozen=True):
    """Where a message was stored, and under which ids."""

    status: SendStatus
    message_id: str
    """The unique id, made by the producer."""
    offset_id: str
    """The id made by the broker; it holds the broker's address and the position in its commit log."""
    queue: MessageQueue
    queue_offset: QueueOffset
    transaction_id: str | None = None
    region: str = "DefaultRegion"
    recall_handle: str | None = None
    trace_on: bool = True
    """Whether the broker wants its messages traced."""


def read_receipt(answer: Command, message_id: str, queue: MessageQueue, address: str) -> SendReceipt:
    """The receipt in a broker's answer; BrokerError when it is a refusal."""
    status = _STATUSES.get(answer.code)
    if status is None:
        raise BrokerError.of(answer.code, _with_hint(answer), address, f"send to {queue}")
    try:
        header = SendMessageResponseHeader.decode(answer)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(
            f"the answer of broker {address} to a send to {queue} cannot be read: {error}. Hint: the message may be stored; "
            "is this a broker of RocketMQ, with nothing between it and us that changes answers?"
        ) from error
    if header.queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
    return SendReceipt(
        status,
        message_id,
        header.msg_id,
        queue,
        header.queue_offset,
        header.transaction_id,
        header.region,
        header.recall_handle,
        header.trace_on,
    )


def _with_hint(answer: Command) -> str | None:
    """A broker's remark, with a hint where it does not say what to do."""
    remark = answer.remark
    if answer.code == ResponseCode.MESSAGE_ILLEGAL and remark and "max delay" in remark:
        return f"{remark}. Hint: send it with a shorter delay, or raise timerMaxDelaySec on the broker"
    return remark


def split_receipt(receipt: SendReceipt, message_ids: list[str]) -> list[SendReceipt]:
    """One receipt per message of a batch: a broker stores them one after the other and joins their ids by commas."""
    offset_ids = receipt.offset_id.split(",")
    if len(offset_ids) != len(message_ids):
        raise RemoteProtocolError(
            f"the answer to a batch of {len(message_ids)} to {receipt.queue} has {len(offset_ids)} ids"
        )
    return [
        msgspec.structs.replace(
            receipt,
            message_id=message_id,
            offset_id=offset_id,
            queue_offset=QueueOffset(receipt.queue_offset + position),
            transaction_id=message_id if receipt.transaction_id else None,
        )
        for position, (message_id, offset_id) in enumerate(zip(message_ids, offset_ids))
    ]
