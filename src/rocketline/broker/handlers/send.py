"""Sends: one message (10, 310), a batch (320), and what a broker checks and adds before it stores one or a reply.

The way of a message: header, topic, properties, append, answer. The answer may wait for disk and replicas; nothing
else here waits, so a send never becomes a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from rocketline.auth.guard import Require, require_nothing
from rocketline.auth.needs import CREATE, topic_need
from rocketline.broker.delays.delay_levels import DelayLevels
from rocketline.broker.delays.postponed import postpone
from rocketline.broker.durability import Durability, Durable
from rocketline.broker.statistics.statistics import FIFO, NORMAL, BrokerStatistics
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.timer.redirect import TIMER_TOPIC, is_timer, recall_handle
from rocketline.broker.timer.timers import Timers
from rocketline.broker.transactions.half_messages import HalfMessages
from rocketline.broker.wiring import wired
from rocketline.errors import ProtocolError, RequestRejected
from rocketline.message import DELAY, RETRY_PREFIX, RETRY_TOPIC, SHARDING_KEY, UNIQ_KEY, WAIT
from rocketline.protocol.bodies import TopicConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.message_ids import UniqueIds, offset_ids
from rocketline.protocol.names import dlq_topic
from rocketline.protocol.properties import decode_properties, encode_properties
from rocketline.protocol.record_layout import INNER_BATCH, NEED_UNWRAP, TRANSACTION_MASK
from rocketline.protocol.records import decode_batch
from rocketline.protocol.replies import CLUSTER
from rocketline.protocol.transactions import TRAN_MSG, is_half
from rocketline.store.message_store import AppendResult, AppendStatus, MessageStore, StoreMessage
from rocketline.transport import Channel, Handler, Reply

TRACE_ON = "TRACE_ON"
MSG_REGION = "MSG_REGION"
POP_CK = "POP_CK"

NOT_IN_TIME = "not flushed to disk in time"
NOT_REPLICATED = "stored, but not on enough replicas in time"
LATE_CODES = {
    Durable.YES: ResponseCode.SUCCESS,
    Durable.TIMED_OUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    Durable.NOT_REPLICATED: ResponseCode.FLUSH_SLAVE_TIMEOUT,
}
LATE_REMARKS = {ResponseCode.FLUSH_DISK_TIMEOUT: NOT_IN_TIME, ResponseCode.FLUSH_SLAVE_TIMEOUT: NOT_REPLICATED}

_NOT_FOR_CLIENTS = TRANSACTION_MASK | NEED_UNWRAP | INNER_BATCH
_FAILED_CODES = {
    AppendStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.PROPERTIES_TOO_LARGE: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    AppendStatus.BUSY: ResponseCode.SYSTEM_BUSY,
}


@wired
class SendParts:
    """What sending needs of a broker."""

    store: MessageStore
    topics: Topics
    groups: Groups
    delays: DelayLevels
    timers: Timers
    durability: Durability
    unique_ids: UniqueIds
    stored: Callable[[], None]
    """Told after every append, so that the dispatcher runs soon."""
    holds_locks: Callable[[str], bool]
    """Whether a group consumes orderly, holding queue locks."""
    store_host: bytes
    broker_name: str
    cluster: str
    region: str
    trace_on: bool
    waits: bool
    """Whether answers wait, for the disk or for replicas."""
    random: Random
    statistics: BrokerStatistics
    half_messages: HalfMessages | None = None
    """Takes transactional messages; None: they are refused."""
    require: Require = require_nothing


class SendHandlers:
    """Handlers of the send family."""

    def __init__(self, parts: SendParts) -> None:
        self.parts = self._parts = parts
        self.answer_ext = self._answer_ext = {MSG_REGION: parts.region, TRACE_ON: "true" if parts.trace_on else "false"}
        self._added = dict(self._answer_ext, **{CLUSTER: parts.cluster})
        self._added_text = encode_properties(self._added)
        self._host = parts.store_host.hex().upper()

    @property
    def added_properties(self) -> bytes:
        """What the broker adds to the properties of every message, as stored."""
        return self._added_text.encode()

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch,
        }

    def send(self, channel: Channel, request: Command) -> Reply:
        """10 and 310: one message (a batch too, when its header says so)."""
        header = SendMessageHeader.decode(request)
        if header.batch:
            return self._send_batch(channel, request, header)
        try:
            message = self._message(channel, request, header)
            self._retry_or_dead(header, message, request.version)
            queue_id = message.queue_id
            if TRAN_MSG in message.properties and self._is_half(message):
                self._prepare(message)
            else:
                postpone(message, self._parts.timers, self._parts.delays)
        except RequestRejected as rejected:
            return self.refuse(request, rejected)
        result = self._parts.store.append(message)
        return self._finish(request, queue_id, message, result)

    def send_batch(self, channel: Channel, request: Command) -> Reply:
        """320: several messages of one topic and queue in one body."""
        header = SendMessageHeader.decode(request)
        return self._send_batch(channel, request, header) if header.batch else self.send(channel, request)

    def _send_batch(self, channel: Channel, request: Command, header: SendMessageHeader) -> Reply:
        try:
            message = self._message(channel, request, header)
            if header.topic.startswith(RETRY_PREFIX):
                raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot go to a retry topic")
            if message.properties.get(DELAY, "0") != "0":
                raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot have a delay level")
            if is_timer(message.properties):
                raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot have a delivery time")
            try:
                items = decode_batch(request.body)
            except ProtocolError as error:
                raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
            if not items:
                raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
        except RequestRejected as rejected:
            return self.refuse(request, rejected)
        result = self._parts.store.append_batch(message, items)
        return self._finish(request, message.queue_id, message, result)

    def _message(self, channel: Channel, request: Command, header: SendMessageHeader) -> StoreMessage:
        """The message to store, checked and with the broker's own properties."""
        topic = self._topic(channel, request, header)
        queue_id = self._queue_id(header.queue_id, topic)
        properties = decode_properties(header.properties)
        if header.sys_flag & _NOT_FOR_CLIENTS or TRAN_MSG in properties:
            self._check_kind(header, properties)
        raw = self._stored_properties(header.properties, properties, header.batch)
        return StoreMessage(
            topic=header.topic,
            queue_id=queue_id,
            body=request.body,
            properties=properties,
            properties_raw=raw,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_ms=header.born_ms,
            born_host=channel.remote_host,
            reconsume_times=header.reconsume_times,
        )

    def _topic(self, channel: Channel, request: Command, header: SendMessageHeader) -> TopicConfig:
        """The topic of a message; the right to make it is asked for when there is none."""
        topics = self._parts.topics
        if topics.creates(header.topic, header.default_topic):
            self._parts.require(channel, request, topic_need(header.topic, CREATE))
        return topics.for_send(header.topic, header.default_topic, header.default_topic_queue_nums, header.unit_mode)

    def _queue_id(self, asked: int, topic: TopicConfig) -> int:
        count = max(topic.read_queue_nums, topic.write_queue_nums)
        if 0 <= asked < count:
            return asked
        if asked < 0:
            return self._parts.random.randrange(max(1, topic.write_queue_nums))
        raise RequestRejected(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{asked}] is illegal, topic {topic.topic_name} has {count} queues",
        )

    def _stored_properties(self, text: str, properties: dict[str, str], batch: bool) -> bytes:
        """The property string to store; `properties` is brought in step with it."""
        if batch:
            return b""  # each message of a batch is stored with its own properties only; these are the batch's
        plain = UNIQ_KEY in properties and POP_CK not in properties
        if plain and not (CLUSTER in properties or MSG_REGION in properties or TRACE_ON in properties):
            properties.update(self._added)
            end = "" if not text or text[-1] == "\x02" else "\x02"
            return f"{text}{end}{self._added_text}".encode()
        properties.pop(POP_CK, None)
        if UNIQ_KEY not in properties:
            properties[UNIQ_KEY] = self._parts.unique_ids.next()
        properties.update(self._added)
        return encode_properties(properties).encode()

    def _check_kind(self, header: SendMessageHeader, properties: dict[str, str]) -> None:
        """Records the dispatcher puts in no queue: acknowledged, they would never be found again."""
        if header.sys_flag & (NEED_UNWRAP | INNER_BATCH):
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"sysFlag {header.sys_flag:#x} marks a batch kept as one record: not supported",
            )
        if header.batch and (is_half(properties) or header.sys_flag & TRANSACTION_MASK):
            raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be part of a transaction")
        if header.sys_flag & TRANSACTION_MASK and not is_half(properties):
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"sysFlag {header.sys_flag:#x} marks a transactional message, which has the property {TRAN_MSG}=true",
            )

    @staticmethod
    def _is_half(message: StoreMessage) -> bool:
        """Consumers before 4.6.1 hand a committed message back with the property still there, as a delayed retry."""
        retried = message.reconsume_times > 0 and message.properties.get(DELAY, "0") != "0"
        if retried:
            message.sys_flag &= ~TRANSACTION_MASK
        return is_half(message.properties) and not retried

    def _prepare(self, message: StoreMessage) -> None:
        if self._parts.half_messages is None:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, "sending transaction messages is forbidden on this broker"
            )
        self._parts.half_messages.prepare(message)

    def reply_message(self, channel: Channel, request: Command, header: SendMessageHeader) -> StoreMessage:
        """A reply as it is stored: it comes from a client that has read CLUSTER, so none is added."""
        topic = self._topic(channel, request, header)
        properties = decode_properties(header.properties) | self._answer_ext
        return StoreMessage(
            topic=header.topic,
            queue_id=self._queue_id(header.queue_id, topic),
            body=request.body,
            properties=properties,
            properties_raw=encode_properties(properties).encode(),
            flag=header.flag,
            sys_flag=header.sys_flag & ~_NOT_FOR_CLIENTS,
            born_ms=header.born_ms,
            born_host=channel.remote_host,
            reconsume_times=header.reconsume_times,
        )

    def _retry_or_dead(self, header: SendMessageHeader, message: StoreMessage, version: int) -> None:
        """A message sent to a retry topic goes to the dead letters when its group has tried often enough."""
        if not message.topic.startswith(RETRY_PREFIX):
            return
        group = message.topic[len(RETRY_PREFIX) :]
        config = self._parts.groups.get(group)
        if config is None:
            raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}")
        limit = config.retry_max_times
        if version >= 121 and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        if header.reconsume_times <= limit and not self._parts.holds_locks(group):
            return
        self._parts.statistics.given_up(group, message.properties.get(RETRY_TOPIC, message.topic))
        message.topic = dlq_topic(group)
        self._parts.topics.require_derived(message.topic, 1)
        message.queue_id = 0
        message.properties[DELAY] = "0"
        message.properties_raw = encode_properties(message.properties).encode()

    def _finish(self, request: Command, queue_id: int, message: StoreMessage, result: AppendResult) -> Reply:
        if result.status is not AppendStatus.OK:
            remark = result.reason or result.status.name
            self._parts.statistics.failed += 1
            code = _FAILED_CODES.get(result.status, ResponseCode.SYSTEM_ERROR)
            return self.refuse(request, RequestRejected(code, remark))
        self._parts.stored()
        size = result.next_log_offset - result.log_offset
        kind = FIFO if SHARDING_KEY in message.properties else NORMAL
        self._parts.statistics.put(message.topic, len(result.log_offsets) or 1, size, kind)
        if self._parts.waits and message.properties.get(WAIT, "true") == "true":
            answer = partial(self._answer, request, queue_id, message, result)
            return answer_when_durable(self._parts.durability.wait(result.next_log_offset), answer)
        return self._answer(request, queue_id, message, result, ResponseCode.SUCCESS)

    def _answer(
        self, request: Command, queue_id: int, message: StoreMessage, result: AppendResult, code: int
    ) -> Command:
        ids = offset_ids(self._host, result.log_offsets or (result.log_offset,))
        ext = {
            "msgId": ids,
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
            **self._answer_ext,
        }
        if unique := message.properties.get(UNIQ_KEY):
            ext["transactionId"] = unique
        if message.topic == TIMER_TOPIC and (handle := recall_handle(self._parts.broker_name, message.properties)):
            ext["recallHandle"] = handle
        return request.reply(code, ext, remark=LATE_REMARKS.get(ResponseCode(code)))

    def refuse(self, request: Command, rejected: RequestRejected) -> Command:
        return request.reply(rejected.code, dict(self._answer_ext), remark=rejected.remark)


def answer_when_durable(
    durable: asyncio.Future[Durable], answer: Callable[[int], Command]
) -> Awaitable[Command | None]:
    """The answer to a send, once disk and replicas have it (or took too long); no task, just a future behind another."""
    reply: asyncio.Future[Command | None] = durable.get_loop().create_future()

    def settle(done: asyncio.Future[Durable]) -> None:
        if reply.done():
            return
        if done.cancelled():
            reply.cancel()
        elif error := done.exception():
            reply.set_exception(RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)))
        else:
            reply.set_result(answer(LATE_CODES[done.result()]))

    durable.add_done_callback(settle)
    return reply
