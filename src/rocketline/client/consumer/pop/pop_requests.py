"""Pop mode on the wire: requests to one broker. `protocol/popped.py` reads the messages of an answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rocketline.client.remote_broker import RemoteBroker
from rocketline.errors import BrokerError
from rocketline.message import MessageView
from rocketline.protocol.bodies import BatchAckMessageRequestBody, encode_body
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
    ReceiptHandle,
    real_topic,
)
from rocketline.protocol.popped import batch_acks, read_popped

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
    settled = list(handles)
    acks = batch_acks(group, settled)
    body = encode_body(BatchAckMessageRequestBody(broker.name, acks))
    doing = f"ack of {len(settled)} messages for group {group}"
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
