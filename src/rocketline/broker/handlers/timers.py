"""Recall of a timer message (370); progress (60) and counts (61) of timers for other brokers and tools."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rocketline.broker.durability import Durability
from rocketline.broker.handlers.send import answer_when_durable
from rocketline.broker.tables.topics import Topics
from rocketline.broker.timer.redirect import TIMER_DEL_UNIQKEY
from rocketline.broker.timer.timers import Timers
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.errors import ProtocolError, RequestRejected
from rocketline.message import TAGS, TIMER_DELIVER_MS, UNIQ_KEY
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import RecallMessageHeader, RecallMessageResponseHeader
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.recall import RecallHandle
from rocketline.store.message_store import AppendStatus, MessageStore, StoreMessage
from rocketline.transport import Channel, Handler, Reply

RECALL_TAG = "_RECALL_TAG_"


@wired
class TimerHandlers:
    store: MessageStore
    topics: Topics
    timers: Timers
    clock: Clock
    stored: Callable[[], None]
    durability: Durability | None
    """None: answers do not wait for the disk."""
    broker_name: str
    region: str
    max_delay_s: int
    recall_enabled: bool
    writable: bool
    """Whether the broker takes messages, or at least recalls."""

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.RECALL_MESSAGE: self.recall,
            RequestCode.GET_TIMER_CHECK_POINT: self.checkpoint,
            RequestCode.GET_TIMER_METRICS: self.counts,
        }

    def recall(self, channel: Channel, request: Command) -> Reply:
        """370: stored as a message of its own, which cancels the other one when both are due."""
        header = RecallMessageHeader.decode(request)
        try:
            handle = self._checked(header)
            message = self._message(channel, header, handle)
            self.timers.redirect(message)
        except RequestRejected as rejected:
            return request.reply(rejected.code, {"MSG_REGION": self.region}, remark=rejected.remark)
        result = self.store.append(message)
        if result.status is not AppendStatus.OK:
            remark = f"recall failed, execute error: {result.reason}"
            return request.reply(ResponseCode.SYSTEM_ERROR, {"MSG_REGION": self.region}, remark=remark)
        self.stored()
        answer = partial(self._answer, request, handle.unique_id)
        if self.durability is None:
            return answer(ResponseCode.SUCCESS)
        return answer_when_durable(self.durability.wait(result.next_log_offset), answer)

    def _answer(self, request: Command, unique_id: str, code: int) -> Command:
        # Stored is enough: RocketMQ answers 0 also when the disk was too slow.
        return request.reply(ResponseCode.SUCCESS, RecallMessageResponseHeader(unique_id, self.region).encode())

    def _checked(self, header: RecallMessageHeader) -> RecallHandle:
        if not self.recall_enabled:
            raise RequestRejected(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if not self.writable:
            raise RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
        if self.topics.get(header.topic) is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except ProtocolError as error:
            raise RequestRejected(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if handle.topic != header.topic:
            raise RequestRejected(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self.broker_name:
            raise RequestRejected(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        if not 0 < handle.deliver_ms - self.clock.now_ms() < self.max_delay_s * 1000:
            raise RequestRejected(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _message(self, channel: Channel, header: RecallMessageHeader, handle: RecallHandle) -> StoreMessage:
        now_ms = self.clock.now_ms()
        properties = {
            TAGS: RECALL_TAG,
            TIMER_DEL_UNIQKEY: handle.unique_id,
            UNIQ_KEY: handle.unique_id,
            TIMER_DELIVER_MS: str(handle.deliver_ms),
            "BORN_TIMESTAMP": str(now_ms),
        }
        if header.producer_group:
            properties["PGROUP"] = header.producer_group
        return StoreMessage(
            topic=handle.topic,
            queue_id=0,
            body=b"0",
            properties=properties,
            properties_raw=encode_properties(properties).encode(),
            flag=0,
            sys_flag=0,
            born_ms=now_ms,
            born_host=channel.remote_host,
        )

    def checkpoint(self, channel: Channel, request: Command) -> Reply:
        """60: 56 bytes of progress."""
        return request.reply(ResponseCode.SUCCESS, body=self.timers.checkpoint())

    def counts(self, channel: Channel, request: Command) -> Reply:
        """61: how many timer messages of each topic wait."""
        return request.reply(ResponseCode.SUCCESS, body=self.timers.counts.encode())
