"""Pop mode for the fake brokers: messages are handed out once, each with its place in the lists of offsets."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import Any

from tests.unit.client.fakes import FakeBroker, FakeCluster

from rocketline.message import MessageQueue
from rocketline.protocol.bodies import (
    BatchAckMessageRequestBody,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    QueueBody,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationHeader,
    NotificationResponseHeader,
    PopMessageHeader,
    PopMessageResponseHeader,
)
from rocketline.protocol.pop_info import encode_message_offsets, encode_start_offsets
from rocketline.transport import Reply


def now_ms() -> int:
    return int(time.time() * 1000)


class FakePops:
    """Gives a fake broker the verbs of pop mode; one group is enough."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.pops: list[PopMessageHeader] = []
        self.acks: list[AckMessageHeader] = []
        self.batches: list[BatchAckMessageRequestBody] = []
        self.changes: list[ChangeInvisibleTimeHeader] = []
        self.notifications: list[NotificationHeader] = []
        self.ahead_ms = 0
        """How far the broker's clock is ahead of ours."""
        self._next: dict[tuple[str, int], int] = defaultdict(int)
        self._arrived = asyncio.Event()
        broker.on |= {
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.ACK_MESSAGE: self._ack,
            RequestCode.BATCH_ACK_MESSAGE: self._ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
            RequestCode.NOTIFICATION: self._notify,
        }

    @property
    def now_ms(self) -> int:
        return now_ms() + self.ahead_ms

    def store(self, topic: str, queue_id: int, body: bytes, **fields: Any) -> int:
        offset = self.broker.store(topic, queue_id, body, **fields)
        self._arrived.set()
        self._arrived = asyncio.Event()
        return offset

    @property
    def acked_offsets(self) -> list[tuple[str, int, int]]:
        """(topic, queue, offset) of everything acknowledged, in whichever way."""
        single = [(ack.topic, ack.queue_id, int(ack.offset)) for ack in self.acks]
        return sorted(
            single + [(ack.topic, ack.queue_id, at) for body in self.batches for ack in body.acks for at in ack.offsets]
        )

    def answer(self, request: Command, records: dict[int, list[int]], **fields: Any) -> Command:
        """Exactly these offsets by queue, whatever was popped before."""
        header = PopMessageHeader.decode(request)
        chosen = {(0, queue_id): offsets for queue_id, offsets in records.items()}
        body = b"".join(
            self.broker.queues[header.topic, queue_id].records[offset]
            for queue_id, offsets in records.items()
            for offset in offsets
        )
        answer = PopMessageResponseHeader(
            fields.get("pop_ms", self.now_ms),
            header.invisible_ms,
            999 if header.order else 3,
            0,
            encode_start_offsets({key: offsets[0] for key, offsets in chosen.items()}),
            encode_message_offsets(chosen),
            fields.get("order_counts"),
        )
        return request.reply(ResponseCode.SUCCESS, answer.encode(), body)

    def nothing(self, request: Command, code: int = ResponseCode.POLLING_TIMEOUT) -> Command:
        header = PopMessageHeader.decode(request)
        return request.reply(code, PopMessageResponseHeader(self.now_ms, header.invisible_ms, 0, 0, "", "").encode())

    def _waiting(self, topic: str, queue_id: int) -> list[tuple[int, int]]:
        return [
            (number, offset)
            for (name, number), queue in sorted(self.broker.queues.items())
            if name == topic and queue_id in (-1, number)
            for offset in range(self._next[topic, number], queue.end)
        ]

    def _pop(self, request: Command) -> Reply:
        header = PopMessageHeader.decode(request)
        self.pops.append(header)
        return self._found(request, header) or self._hold(request, header)

    def _found(self, request: Command, header: PopMessageHeader) -> Command | None:
        records: dict[int, list[int]] = {}
        for queue_id, offset in self._waiting(header.topic, header.queue_id)[: header.max_msg_nums]:
            records.setdefault(queue_id, []).append(offset)
            self._next[header.topic, queue_id] = offset + 1
        return self.answer(request, records) if records else None

    async def _hold(self, request: Command, header: PopMessageHeader) -> Command:
        try:
            async with asyncio.timeout(header.poll_ms / 1000):
                while True:
                    await self._arrived.wait()
                    if (found := self._found(request, header)) is not None:
                        return found
        except TimeoutError:
            return self.nothing(request)

    async def _notify(self, request: Command) -> Command:
        header = NotificationHeader.decode(request)
        self.notifications.append(header)
        try:
            async with asyncio.timeout(header.poll_ms / 1000):
                while not self._waiting(header.topic, header.queue_id):
                    await self._arrived.wait()
        except TimeoutError:
            return request.reply(ResponseCode.SUCCESS, NotificationResponseHeader(False).encode())
        return request.reply(ResponseCode.SUCCESS, NotificationResponseHeader(True).encode())

    def _ack(self, request: Command) -> Command:
        self.acks.append(AckMessageHeader.decode(request))
        return request.reply(ResponseCode.SUCCESS)

    def _ack_batch(self, request: Command) -> Command:
        self.batches.append(decode_body(BatchAckMessageRequestBody, request.body))
        return request.reply(ResponseCode.SUCCESS)

    def _change(self, request: Command) -> Command:
        header = ChangeInvisibleTimeHeader.decode(request)
        self.changes.append(header)
        answer = ChangeInvisibleTimeResponseHeader(self.now_ms, header.invisible_ms, 3)
        return request.reply(ResponseCode.SUCCESS, answer.encode())


class Assignments:
    """Answers to 400: by topic a mode and queues; a topic without an entry is one the broker cannot say anything about."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.by_topic: dict[str, list[MessageQueueAssignment]] = {}
        self.asked: list[QueryAssignmentRequestBody] = []
        for broker in cluster.brokers:
            broker.on[RequestCode.QUERY_ASSIGNMENT] = self._answer

    def set(self, topic: str, mode: str, *queues: tuple[str, int]) -> None:
        self.by_topic[topic] = [
            MessageQueueAssignment(QueueBody.of(MessageQueue(topic, name, queue_id)), mode) for name, queue_id in queues
        ]

    def _answer(self, request: Command) -> Command:
        asked = decode_body(QueryAssignmentRequestBody, request.body)
        self.asked.append(asked)
        body = encode_body(QueryAssignmentResponseBody(self.by_topic.get(asked.topic)))
        return request.reply(ResponseCode.SUCCESS, body=body)
