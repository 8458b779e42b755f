"""Handing a message back (36): the consumer could not handle it and wants it again later.

Only the commit-log offset travels; the broker stores a new record under the group's retry topic, behind a delay that
grows with every attempt, or under the dead-letter topic when there were enough.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from rocketline.auth.guard import Require, require_nothing
from rocketline.auth.needs import SUB, topic_need
from rocketline.broker.delays.delay_levels import DelayLevels
from rocketline.broker.durability import Durability
from rocketline.broker.handlers.send import answer_when_durable
from rocketline.broker.retry_copies import dead_copy, origin, retry_copies
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import SCHEDULE_TOPIC, WRITE, Topics
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.message import DELAY, RETRY_TOPIC, WAIT
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ConsumerSendMsgBackHeader
from rocketline.protocol.names import dlq_topic, retry_topic
from rocketline.protocol.records import Record, decode_record
from rocketline.store.message_store import AppendStatus, MessageStore, StoreMessage
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
        came_from = origin(record, record.topic)
        dies = _is_dead(header, group, record, request.version)
        message = None if dies else self._retry(header, retry, record, came_from)
        is_dead = message is None
        if message is None:
            dead = self.topics.require_derived(dlq_topic(header.group), 1)
            message = dead_copy(record, dead.topic_name, self._queue_id(dead), {**came_from, WAIT: "false", DELAY: "0"})
        result = self.store.append(message)
        if result.status is not AppendStatus.OK:
            busy = result.status is AppendStatus.BUSY
            code = ResponseCode.SYSTEM_BUSY if busy else ResponseCode.SYSTEM_ERROR
            raise RequestRejected(code, result.reason or result.status.name)
        self.stored()
        self.statistics.sent_back(header.group, came_from[RETRY_TOPIC], dead=is_dead)
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

    def _retry(
        self, header: ConsumerSendMsgBackHeader, retry: TopicConfig, record: Record, came_from: Mapping[str, str]
    ) -> StoreMessage | None:
        """The copy on its detour to the retry topic; None when its properties leave no room for where it is to go."""
        level = str(header.delay_level or FIRST_RETRY_LEVEL + max(0, record.reconsume_times))
        needed = {RETRY_TOPIC: came_from[RETRY_TOPIC], DELAY: level}
        rejected = None
        for copy in retry_copies(record, retry.topic_name, self._queue_id(retry), needed, {**came_from, WAIT: "false"}):
            try:
                self.delays.redirect(copy, level)
                return copy
            except RequestRejected as error:
                rejected = error
        log.warning("message at %d goes to the dead letters of group %s: another attempt has no room: %s",
                    record.log_offset, header.group, rejected)  # fmt: skip
        return None

    def _queue_id(self, topic: TopicConfig) -> int:
        return self.random.randrange(max(1, topic.write_queue_nums))


def _is_dead(header: ConsumerSendMsgBackHeader, group: SubscriptionGroupConfig, record: Record, version: int) -> bool:
    limit = group.retry_max_times
    if version >= KNOWS_MAX_RECONSUME_TIMES and header.max_reconsume_times is not None:
        limit = header.max_reconsume_times
    return record.reconsume_times >= limit or header.delay_level < 0


def _answer(request: Command, code: int) -> Command:
    if code == ResponseCode.SUCCESS:
        return request.reply(ResponseCode.SUCCESS)
    return request.reply(ResponseCode.SYSTEM_ERROR, remark="FLUSH_DISK_TIMEOUT")
