"""A client that pops: requests as Java's clients make them, and what their answers say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.unit.broker.parts import Parts, Peer, send_request

from rocketline.message import MessageView
from rocketline.protocol.bodies import BatchAck, BatchAckMessageRequestBody, encode_body
from rocketline.protocol.bodies.pop import encode_bits
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    NotificationHeader,
    PopMessageHeader,
    PopMessageResponseHeader,
)
from rocketline.protocol.pop_info import (
    ReceiptHandle,
    parse_message_offsets,
    parse_start_offsets,
    real_topic,
    topic_flag,
)
from rocketline.protocol.records import decode_messages
from rocketline.testing.disks import MemoryDisk

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
TIMER_TOPIC = "rmq_sys_wheel_timer"


@dataclass
class Popped:
    """One message in a consumer's hands."""

    message: MessageView
    handle: ReceiptHandle
    group: str = "readers"
    asked: str = "orders"

    @property
    def body(self) -> bytes:
        return self.message.body

    @property
    def topic(self) -> str:
        """Where it really lies."""
        return real_topic(self.group, self.asked, self.handle.flag)


def pop_request(
    topic: str = "orders",
    group: str = "readers",
    *,
    queue_id: int = -1,
    count: int = 32,
    invisible_ms: int = 60_000,
    poll_ms: int = 0,
    **more: Any,
) -> Command:
    header = PopMessageHeader(group, topic, queue_id, count, invisible_ms, poll_ms, **more)
    return Command(RequestCode.POP_MESSAGE, header.encode())


def notification_request(
    topic: str = "orders", group: str = "readers", *, queue_id: int = -1, poll_ms: int = 0, **more: Any
) -> Command:
    return Command(RequestCode.NOTIFICATION, NotificationHeader(group, topic, queue_id, poll_ms, **more).encode())


def popped(answer: Command, group: str = "readers", asked: str = "orders") -> list[Popped]:
    """The messages of an answer with the handles that a client makes from its header."""
    header = PopMessageResponseHeader.decode(answer)
    starts = parse_start_offsets(header.start_offset_info)
    listed = {key: list(offsets) for key, offsets in parse_message_offsets(header.msg_offset_info).items()}
    found = []
    for message in decode_messages(answer.body):
        if message.receipt_handle is not None:
            handle = ReceiptHandle.parse(message.receipt_handle)
        else:
            key = (topic_flag(message.topic), message.queue_id)
            assert message.queue_offset in listed[key]
            handle = ReceiptHandle(
                starts[key],
                header.pop_ms,
                header.invisible_ms,
                header.revive_queue_id,
                key[0],
                "broker-a",
                message.queue_id,
                message.queue_offset,
            )
        found.append(Popped(message, handle, group, asked))
    assert sum(map(len, listed.values())) == len(found), "every offset is listed, and no other"
    return found


class Popper:
    """A client of one group."""

    def __init__(self, parts: Parts, group: str = "readers", topic: str = "orders") -> None:
        self.parts, self.group, self.topic = parts, group, topic
        self.peer: Peer = parts.peer()

    def pop(self, count: int = 32, **settings: Any) -> list[Popped]:
        answer = self.peer.ask(pop_request(self.topic, self.group, count=count, **settings))
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), answer
        self.parts.dispatch()
        return popped(answer, self.group, self.topic) if answer.code == ResponseCode.SUCCESS else []

    def ack(self, taken: Popped, **changed: Any) -> Command:
        answer = self.peer.ask(ack_request(taken, **changed))
        self.parts.dispatch()
        return answer

    def ack_all(self, taken: list[Popped]) -> None:
        for one in taken:
            assert self.ack(one).code == ResponseCode.SUCCESS

    def ack_batch(self, taken: list[Popped], **changed: Any) -> Command:
        """All of one pop and queue."""
        body = BatchAckMessageRequestBody(changed.pop("broker_name", "broker-a"), [batch_entry(taken, **changed)])
        answer = self.peer.ask(Command(RequestCode.BATCH_ACK_MESSAGE, {}, encode_body(body)))
        self.parts.dispatch()
        return answer

    def change(self, taken: Popped, invisible_ms: int) -> Popped:
        """The message under its new handle."""
        answer = self.peer.ask(change_request(taken, invisible_ms))
        assert answer.code == ResponseCode.SUCCESS, answer
        assert answer.ext is not None
        self.parts.dispatch()
        handle = taken.handle.changed(
            int(answer.ext["popTime"]), int(answer.ext["invisibleTime"]), int(answer.ext["reviveQid"])
        )
        return Popped(taken.message, handle, taken.group, taken.asked)


def ack_request(taken: Popped, **changed: Any) -> Command:
    fields: dict[str, Any] = {
        "consumer_group": taken.group,
        "topic": taken.topic,
        "queue_id": taken.handle.queue_id,
        "extra_info": str(taken.handle),
        "offset": taken.handle.queue_offset,
    }
    return Command(RequestCode.ACK_MESSAGE, AckMessageHeader(**fields | changed).encode())


def change_request(taken: Popped, invisible_ms: int, **changed: Any) -> Command:
    fields: dict[str, Any] = {
        "consumer_group": taken.group,
        "topic": taken.topic,
        "queue_id": taken.handle.queue_id,
        "extra_info": str(taken.handle),
        "offset": taken.handle.queue_offset,
        "invisible_ms": invisible_ms,
    }
    return Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeHeader(**fields | changed).encode())


def batch_entry(taken: list[Popped], **changed: Any) -> BatchAck:
    first = taken[0].handle
    fields: dict[str, Any] = {
        "consumer_group": taken[0].group,
        "topic": taken[0].asked,
        "retry": str(first.flag),
        "start_offset": first.ck_start_offset,
        "queue_id": first.queue_id,
        "revive_queue_id": first.revive_queue_id,
        "pop_ms": first.pop_ms,
        "invisible_ms": first.invisible_ms,
        "bits": encode_bits(one.handle.queue_offset - first.ck_start_offset for one in taken),
    }
    return BatchAck(**fields | changed)


def put(
    parts: Parts, *bodies: bytes, topic: str = "orders", queue_id: int = 0, queue_count: int = 1, **properties: str
) -> None:
    """Messages in a queue of a topic that gets so many queues when it is new."""
    if parts.topics.get(topic) is None:
        parts.put_topic(topic, queue_count)
    for body in bodies:
        answer = parts.peer().ask(
            send_request(topic, body, queue_id=queue_id, properties={"UNIQ_KEY": f"U-{body.decode()}"} | properties)
        )
        assert answer.code == ResponseCode.SUCCESS
    parts.dispatch()


def bodies(taken: list[Popped]) -> list[bytes]:
    return [one.body for one in taken]


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def revive_records(parts: Parts) -> list[MessageView]:
    """Check points and acknowledgements that were ever written, in order, wherever the timer has them."""
    parts.dispatch()
    found: list[MessageView] = []
    waiting: list[MessageView] = parts.messages(TIMER_TOPIC)
    while waiting:
        found += waiting
        waiting = parts.messages(TIMER_TOPIC, queue_offset=len(found))
    return [message for message in found if message.properties.get("REAL_TOPIC") == REVIVE_TOPIC]


def killed(parts: Parts, disk: MemoryDisk) -> MemoryDisk:
    """The disk as a killed process leaves it: the log is as it was, tables are as they were saved last."""
    parts.store.flush_now()
    after = disk.crash()
    parts.close()  # its threads end; what they still write is not on the disk after the kill
    return after


def save(parts: Parts) -> None:
    """What a broker saves every few seconds."""
    for table in (parts.offsets, parts.timers, parts.pops.ordered):
        while (data := table.take_changes()) is not None:
            table.write(data)  # type: ignore[arg-type]


def stop(parts: Parts) -> None:
    """A clean stop, in a broker's order."""
    parts.pops.checkpoints.write_all()
    parts.store.flush_now()
    save(parts)
    parts.close()
