"""Counters of the broker (315) and what lies in a topic (202)."""

from __future__ import annotations

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


@wired
class StatisticsHandlers:
    store: MessageStore
    topics: Topics
    statistics: BrokerStatistics
    behind: FallBehind
    broker_name: str

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
        name = GetTopicStatsHeader.decode(request).topic
        topic = self.topics.get(name)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        count = max(topic.read_queue_nums, topic.write_queue_nums)
        table = {
            queue_key(MessageQueue(name, self.broker_name, queue_id)): self._queue(name, queue_id)
            for queue_id in range(count)
        }
        answer = TopicStatsTable(table, self.statistics.put_rate(name))
        return request.reply(ResponseCode.SUCCESS, body=encode_body(answer))

    def _queue(self, topic: str, queue_id: int) -> TopicOffset:
        lowest, end = self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)
        newest_ms = self.store.store_ms_of(topic, queue_id, end - 1) if end > 0 else 0
        return TopicOffset(lowest, end, newest_ms)
