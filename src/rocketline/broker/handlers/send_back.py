"""Handing a message back (36): the consumer could not handle it and wants it again later.

Only the commit-log offset travels; the broker stores a new record under the group's retry topic, behind a delay that
grows with every attempt, or under the dead-letter topic when there were enough.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from random import Random

from rocketline.auth.guard import Require, require_nothing
from rocketline.auth.needs import SUB, topic_need
from rocketline.broker.delays.delay_levels import DelayLevels
from rocketline.broker.durability import Durability
from rocketline.broker.handlers.send import answer_when_durable
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import SCHEDULE_TOPIC, WRITE, Topics
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.message import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ConsumerSendMsgBackHeader
from rocketline.protocol.message_ids import offset_id
from rocketline.protocol.names import dlq_topic, retry_topic
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import Record, decode_record, tried_once_more
from rocketline.store.message_store import AppendStatus, MessageStore, StoreMessage, copy_of
from rocketline.transport import Channel, Handler, Reply

log = logging.getLogger(__name__)

FailureHook = Callable[[ConsumerSendMsgBackHeader], None]
"""Called for every message that a group hands back because it could not handle it."""

FIRST_RETRY_LEVEL = 3
KNOWS_MAX_RECONSUME_TIMES = 121
"""Clients older than 3.4.9 send no limit of their own."""


@wired
class SendBackHandlers:
    store: MessageStore
    topics: Topics
    groups: Groups
    delays: DelayLevels
    stored: Callable[[], None]
    durability: Durability | None
    """What to wait for under SYNC_FLUSH."""
    writable: bool
    random: Random
    statistics: BrokerStatistics
    require: Require = require_nothing
    on_failure: FailureHook | None = None

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, channel: Channel, request: Command) -> Reply:
        header = ConsumerSendMsgBackHeader.decode(request)
        group = self.groups.require(header.group)
        if not self.writable:
            raise RequestRejected(ResponseCode.NO_PERMISSION, "the broker sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return request.reply(ResponseCode.SUCCESS)
        retry = self.topics.require_derived(retry_topic(header.group), group.retry_queue_nums, header.unit_mode)
        if not retry.perm & WRITE:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"the topic[{retry.topic_name}] sending message is forbidden"
            )
        view = self.store.record_at(header.log_offset)
        if view is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.log_offset}")
        record = decode_record(view, 0, len(view))
        # Or a group could read any message of the log, by having it put into its own retry topic.
        self.require(channel, request, topic_need(record.topic, SUB))
        message = self._message(header, group, retry, record, request.version)
        is_dead = message.topic != retry.topic_name
        self.delays.redirect(message, message.properties.get(DELAY, "0"))
        result = self.store.append(message)
        if result.status is not AppendStatus.OK:
            busy = result.status is AppendStatus.BUSY
            code = ResponseCode.SYSTEM_BUSY if busy else ResponseCode.SYSTEM_ERROR
            raise RequestRejected(code, result.reason or result.status.name)
        self.stored()
        self.statistics.sent_back(header.group, message.properties[RETRY_TOPIC], dead=is_dead)
        if message.topic == SCHEDULE_TOPIC:
            self.statistics.put(message.topic, 1, result.size)
        if self.on_failure is not None and header.origin_msg_id:
            self._tell(self.on_failure, header)
        if self.durability is None:
            return request.reply(ResponseCode.SUCCESS)
        # The consumer will never ask for the message again: this answer must be as durable as that of a send.
        return answer_when_durable(self.durability.wait(result.next_log_offset), partial(_answer, request))

    @staticmethod
    def _tell(hook: FailureHook, header: ConsumerSendMsgBackHeader) -> None:
        try:
            hook(header)
        except Exception:
            log.exception("the hook for failed consumption failed at message %s", header.origin_msg_id)

    def _message(
        self,
        header: ConsumerSendMsgBackHeader,
        group: SubscriptionGroupConfig,
        retry: TopicConfig,
        record: Record,
        version: int,
    ) -> StoreMessage:
        limit = group.retry_max_times
        if version >= KNOWS_MAX_RECONSUME_TIMES and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, offset_id(record.store_host, record.log_offset))
        properties[WAIT] = "false"
        if record.reconsume_times >= limit or header.delay_level < 0:
            target = self.topics.require_derived(dlq_topic(header.group), 1)
            properties[DELAY] = "0"
        else:
            target = retry
            properties[DELAY] = str(header.delay_level or FIRST_RETRY_LEVEL + max(0, record.reconsume_times))
        queue_id = self.random.randrange(max(1, target.write_queue_nums))
        message = copy_of(record, target.topic_name, queue_id, properties)
        message.reconsume_times = tried_once_more(record.reconsume_times)
        message.prepared_log_offset = 0
        return message


def _answer(request: Command, code: int) -> Command:
    if code == ResponseCode.SUCCESS:
        return request.reply(ResponseCode.SUCCESS)
    return request.reply(ResponseCode.SYSTEM_ERROR, remark="FLUSH_DISK_TIMEOUT")
