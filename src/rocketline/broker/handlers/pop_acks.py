"""Popped messages are acknowledged (200051, in batches 200151), or their invisible time is changed (200053).

A receipt handle says where its check point is found; topic, queue and offset come with the request. Nothing is
remembered about handles, so an acknowledgement that comes twice or too late is answered like any other and changes
nothing. A handle that cannot be ours is refused: another broker's, one for another queue, one with a revive queue that
does not exist, one whose invisible time is longer than a pop may ask for. The invisible time is changed only while the
handle is valid: a new check point for what was delivered again already would deliver it twice.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import field
from functools import lru_cache, partial

from rocketline.broker.durability import Durability
from rocketline.broker.handlers.send import answer_when_durable
from rocketline.broker.pop.gathering import AckedCheckpoint, AckedTogether, AckGathering
from rocketline.broker.pop.pops import Pops
from rocketline.broker.pop.records import PopKey, new_checkpoint
from rocketline.broker.pop.reviver import GRACE_MS
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.errors import InvalidReceipt, RequestRejected
from rocketline.protocol.bodies import BatchAck, BatchAckMessageRequestBody, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeResponseHeader,
)
from rocketline.protocol.names import MAX_OLD_GROUP_CHARS, group_problem
from rocketline.protocol.pop_info import NORMAL, ORDER_REVIVE_QUEUE, RETRY_V1, RETRY_V2, ReceiptHandle, real_topic
from rocketline.store.message_store import AppendResult, MessageStore
from rocketline.transport import AtReadEnd, Channel, Handler, Reply

MAX_ACKS = 1024
"""Entries of one batch."""
_FLAGS = {"0": NORMAL, "1": RETRY_V1, "2": RETRY_V2}


@wired
class PopAckHandlers:
    pops: Pops
    store: MessageStore
    topics: Topics
    offsets: ConsumerOffsets
    statistics: BrokerStatistics
    clock: Clock
    durability: Durability | None
    """What to wait for under SYNC_FLUSH."""
    broker_name: str
    max_invisible_ms: int
    gathering: AckGathering = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gathering", AckGathering(self.pops.checkpoints))

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    # 200051

    def ack(self, channel: Channel, request: Command) -> Reply:
        header = AckMessageHeader.decode(request)
        first, end = self._bounds(header.topic, header.queue_id)
        if not first <= header.offset <= end:
            raise RequestRejected(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset}, store:{first}~{end}",
            )
        handle = self._handle(header.extra_info, header.consumer_group, header.queue_id)
        if handle.is_ordered:
            self._ack_ordered(header.topic, header.consumer_group, header.queue_id, header.offset, handle.pop_ms)
            return request.reply(ResponseCode.SUCCESS)
        key = self._key(header.topic, header.consumer_group, header.queue_id, handle)
        place = AckedCheckpoint(key, handle.revive_queue_id, handle.pop_ms + handle.invisible_ms)
        return _Acked(self, request, key, self.gathering.add(place, header.offset))

    def _bounds(self, topic_name: str, queue_id: int) -> tuple[int, int]:
        """(first offset, next offset) of a queue that must exist."""
        topic = self.topics.get(topic_name)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic_name}] not exist, apply first please!")
        if not 0 <= queue_id < topic.read_queue_nums:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        return self.store.min_offset(topic_name, queue_id), self.store.max_offset(topic_name, queue_id)

    def _handle(self, text: str, group: str, queue_id: int) -> ReceiptHandle:
        try:
            handle = ReceiptHandle.parse(text)
        except InvalidReceipt as error:
            raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if handle.queue_id != queue_id:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL, f"the receipt handle is of queue {handle.queue_id}, not of {queue_id}"
            )
        self._check_origin(group, handle.broker_name, handle.revive_queue_id, handle.next_visible_ms)
        return handle

    def _check_origin(self, group: str, broker_name: str, revive_queue_id: int, visible_ms: int) -> None:
        if problem := _problem_of(group):  # it becomes a part of what is written
            raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        if broker_name != self.broker_name:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the receipt handle is of broker {broker_name[:80]!r}, this is {self.broker_name!r}",
            )
        revive_queue_count = self.pops.config.revive_queue_count
        if revive_queue_id != ORDER_REVIVE_QUEUE and not 0 <= revive_queue_id < revive_queue_count:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the receipt handle names revive queue {revive_queue_id}, there are {revive_queue_count}",
            )
        if visible_ms - self.clock.now_ms() > self.max_invisible_ms:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the receipt handle was never handed out: it would hide its message until {visible_ms} ms, longer than "
                f"{self.max_invisible_ms} ms (timerMaxDelaySec) from now",
            )

    def _key(self, topic: str, group: str, queue_id: int, handle: ReceiptHandle) -> PopKey:
        return PopKey(topic, group, queue_id, handle.ck_start_offset, handle.pop_ms, self.broker_name)

    def answer(
        self, written: AppendResult | None, request: Command, ext: dict[str, str] | None = None
    ) -> Command | Awaitable[Command | None]:
        """Success, once what was written is as durable as it has to be."""
        if self.durability is None or written is None:
            return request.reply(ResponseCode.SUCCESS, ext)
        return answer_when_durable(self.durability.wait(written.next_log_offset), partial(_durable, request, ext))

    def _ack_ordered(self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int) -> None:
        committed = self.offsets.get(group, topic, queue_id) or 0
        if offset < committed:
            return  # acknowledged before, or given up by a reset
        after = self.pops.ordered.ack(topic, group, queue_id, offset, pop_ms)
        if after is None:
            return
        self.statistics.acked(group, topic, 1)
        self.offsets.commit("an ordered ack", group, topic, queue_id, after)
        if not self.pops.ordered.blocked_ms(topic, group, queue_id, None):
            self.pops.queue_free(topic, group, queue_id)

    # 200151

    def ack_batch(self, channel: Channel, request: Command) -> Reply:
        body = decode_body(BatchAckMessageRequestBody, request.body) if request.body else None
        if body is None or not body.acks:
            raise RequestRejected(ResponseCode.NO_MESSAGE, "the batch acknowledges nothing")
        if len(body.acks) > MAX_ACKS:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER, f"{len(body.acks)} entries: at most {MAX_ACKS} at once"
            )
        # All entries are checked before any is applied.
        checked = [self._check_entry(body.broker_name, entry) for entry in body.acks]
        written = None
        for entry, topic, offsets in checked:
            written = self._ack_entry(entry, topic, offsets) or written
        return self.answer(written, request)

    def _check_entry(self, broker_name: str, entry: BatchAck) -> tuple[BatchAck, str, list[int]]:
        """(entry, the topic its messages lie on, those of its offsets that exist)."""
        visible_ms = entry.pop_ms + entry.invisible_ms
        self._check_origin(entry.consumer_group, broker_name, entry.revive_queue_id, visible_ms)
        if entry.retry not in _FLAGS or min(entry.pop_ms, entry.invisible_ms, entry.start_offset) < 0:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the entry of {entry.topic[:80]} queue {entry.queue_id} was never handed out",
            )
        topic = real_topic(entry.consumer_group, entry.topic, _FLAGS[entry.retry])
        first, end = self._bounds(topic, entry.queue_id)
        return entry, topic, [offset for offset in entry.offsets if first <= offset <= end]

    def _ack_entry(self, entry: BatchAck, topic: str, offsets: list[int]) -> AppendResult | None:
        group, queue_id = entry.consumer_group, entry.queue_id
        if entry.revive_queue_id == ORDER_REVIVE_QUEUE:
            for offset in offsets:
                self._ack_ordered(topic, group, queue_id, offset, entry.pop_ms)
            return None
        if not offsets:
            return None
        key = PopKey(topic, group, queue_id, entry.start_offset, entry.pop_ms, self.broker_name)
        self.statistics.acked(group, topic, len(offsets))
        revive_ms = entry.pop_ms + entry.invisible_ms
        return self.pops.checkpoints.ack(key, offsets, entry.revive_queue_id, revive_ms, batch=True)

    # 200053

    def change(self, channel: Channel, request: Command) -> Reply:
        header = ChangeInvisibleTimeHeader.decode(request)
        first, end = self._bounds(header.topic, header.queue_id)
        if not first <= header.offset < end:
            raise RequestRejected(
                ResponseCode.NO_MESSAGE,
                f"offset {header.offset} is not among {first}~{end} of {header.topic} queue {header.queue_id}",
            )
        handle = self._handle(header.extra_info, header.consumer_group, header.queue_id)
        if not 0 <= header.invisible_ms <= self.max_invisible_ms:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime {header.invisible_ms} ms is not between 0 and {self.max_invisible_ms} (timerMaxDelaySec)",
            )
        if handle.is_ordered:
            return self._change_ordered(request, header, handle)
        return self._change(request, header, handle)

    def _change(self, request: Command, header: ChangeInvisibleTimeHeader, handle: ReceiptHandle) -> Reply:
        group, topic, queue_id, offset = header.consumer_group, header.topic, header.queue_id, header.offset
        now_ms = self.clock.now_ms()
        if now_ms >= handle.next_visible_ms + GRACE_MS:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the receipt handle is not valid any more: its invisible time ended "
                f"{now_ms - handle.next_visible_ms} ms ago, and the message is, or was, delivered again",
            )
        # Later than the old one, within one millisecond too: else both were the same, and one ack would settle them.
        pop_ms = max(now_ms, self.store.last_store_ms, handle.pop_ms + 1)
        checkpoint = new_checkpoint(group, topic, queue_id, [offset], pop_ms, header.invisible_ms, self.broker_name)
        # The new one first: after a crash between them the message comes twice, and is never lost.
        written = self.pops.checkpoints.put_alone(checkpoint, handle.revive_queue_id)
        key = self._key(topic, group, queue_id, handle)
        acked = self.pops.checkpoints.ack(key, [offset], handle.revive_queue_id, handle.next_visible_ms, batch=False)
        ext = ChangeInvisibleTimeResponseHeader(pop_ms, header.invisible_ms, handle.revive_queue_id).encode()
        return self.answer(acked or written, request, ext)

    def _change_ordered(self, request: Command, header: ChangeInvisibleTimeHeader, handle: ReceiptHandle) -> Reply:
        group, topic, queue_id, offset = header.consumer_group, header.topic, header.queue_id, header.offset
        visible_ms = self.clock.now_ms() + header.invisible_ms
        if offset < (self.offsets.get(group, topic, queue_id) or 0):
            return request.reply(ResponseCode.SUCCESS, ChangeInvisibleTimeResponseHeader(0, 0, 0).encode())
        changed = self.pops.ordered.change(topic, group, queue_id, offset, handle.pop_ms, visible_ms)
        if changed and not self.pops.ordered.blocked_ms(topic, group, queue_id, None):
            self.pops.queue_free(topic, group, queue_id)
        ext = ChangeInvisibleTimeResponseHeader(handle.pop_ms, visible_ms - handle.pop_ms, handle.revive_queue_id)
        return request.reply(ResponseCode.SUCCESS, ext.encode())


class _Acked(AtReadEnd):
    """An acknowledgement that is written with others of its read."""

    __slots__ = ("_handlers", "_key", "_request", "_together")

    def __init__(self, handlers: PopAckHandlers, request: Command, key: PopKey, together: AckedTogether) -> None:
        self._handlers = handlers
        self._request = request
        self._key = key
        self._together = together

    def finish(self) -> Command | Awaitable[Command | None]:
        written = self._together.settle()
        self._handlers.statistics.acked(self._key.group, self._key.topic, 1)
        return self._handlers.answer(written, self._request)


@lru_cache(1024)
def _problem_of(group: str) -> str | None:
    return group_problem(group, MAX_OLD_GROUP_CHARS)


def _durable(request: Command, ext: dict[str, str] | None, code: int) -> Command:
    if code == ResponseCode.SUCCESS:
        return request.reply(ResponseCode.SUCCESS, ext)
    return request.reply(ResponseCode.SYSTEM_ERROR, ext, remark="FLUSH_DISK_TIMEOUT")
