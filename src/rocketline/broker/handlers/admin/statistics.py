"""Counters of the broker (315) and what lies in a topic (202)."""

from __future__ import annotations

from rocketline.auth.guard import Refused, Require, require_nothing
from rocketline.auth.needs import GET, topic_need
from rocketline.broker.statistics.statistics import BrokerStatistics, FallBehind
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import TopicOffset, TopicStatsTable, encode_body, queue_key
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetTopicStatsHeader, ViewBrokerStatsHeader
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler, Reply

MAX_OTHERS = 64
MAX_QUEUES = 1024
"""So long does one request keep the loop busy, some milliseconds; the topics that are left out are asked for again."""


@wired
class StatisticsHandlers:
    store: MessageStore
    topics: Topics
    statistics: BrokerStatistics
    behind: FallBehind
    broker_name: str
    require: Require = require_nothing

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.GET_TOPIC_STATS_INFO: self.topic, RequestCode.VIEW_BROKER_STATS_DATA: self.view}

    def view(self, channel: Channel, request: Command) -> Reply:
        """315."""
        header = ViewBrokerStatsHeader.decode(request)
        name, key = header.stats_name, header.stats_key
        found = self.statistics.view(name, key) or self.behind.view(name, key)
        if found is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return request.reply(ResponseCode.SUCCESS, body=encode_body(found))

    def topic(self, channel: Channel, request: Command) -> Reply:
        """202."""
        header = GetTopicStatsHeader.decode(request)
        if self.topics.get(header.topic) is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        table = self._queues(header.topic)
        for name in (header.others or "").split(",")[:MAX_OTHERS]:
            if self._queue_count(name) <= MAX_QUEUES - len(table) and self._may_see(channel, request, name):
                table |= self._queues(name)
        answer = TopicStatsTable(table, self.statistics.put_rate(header.topic))
        return request.reply(ResponseCode.SUCCESS, body=encode_body(answer))

    def _may_see(self, channel: Channel, request: Command, name: str) -> bool:
        """What may not be seen, or does not exist, is left out: asked for alone, it is refused with the reason."""
        if self.topics.get(name) is None:
            return False
        try:
            self.require(channel, request, topic_need(name, GET))
        except Refused:
            return False
        return True

    def _queue_count(self, name: str) -> int:
        topic = self.topics.get(name)
        return max(topic.read_queue_nums, topic.write_queue_nums) if topic is not None else 0

    def _queues(self, name: str) -> dict[str, TopicOffset]:
        return {
            queue_key(MessageQueue(name, self.broker_name, queue_id)): self._queue(name, queue_id)
            for queue_id in range(self._queue_count(name))
        }

    def _queue(self, topic: str, queue_id: int) -> TopicOffset:
        lowest, end = self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)
        newest_ms = self.store.store_ms_of(topic, queue_id, end - 1) if end > 0 else 0
        return TopicOffset(lowest, end, newest_ms)
