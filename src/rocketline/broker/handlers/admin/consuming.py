"""Progress of groups: lag (208, 317), times of what they read (303), who reads what (300, 343, 345), offsets copied to
another group (314) or compared with all others (308)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from rocketline.broker.registries import ConsumerRegistry
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    GroupList,
    OffsetWrapper,
    QuerySubscriptionBody,
    QueueBody,
    QueueTimeSpan,
    SubscriptionData,
    TopicConfig,
    TopicList,
    encode_body,
    queue_key,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    CloneGroupOffsetHeader,
    GetBrokerConsumeStatsHeader,
    GetConsumeStatsHeader,
    QueryConsumeTimeSpanHeader,
    QueryCorrectionOffsetHeader,
    QueryGroupTopicsHeader,
    QuerySubscriptionHeader,
    QueryTopicConsumersHeader,
)
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler, Reply

log = logging.getLogger(__name__)

JAVA_LONG_MAX = (1 << 63) - 1
GROUPS_AT_ONCE = 100
"""Groups whose lag is read before other work gets its turn."""
Pairs = Sequence[tuple[str, Iterable[str]]]
"""Groups, each with the topics that it has read."""
Keys = Callable[[str, int], list[str]]
"""From a topic and the number of its queues to their keys."""


@wired
class ConsumingHandlers:
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    consumers: ConsumerRegistry
    statistics: BrokerStatistics
    clock: Clock
    broker_name: str
    address: str

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUME_STATS: self.stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction,
        }

    def stats(self, channel: Channel, request: Command) -> Reply:
        """208."""
        header = GetConsumeStatsHeader.decode(request)
        answer = ConsumeStats()
        for topic in self._topics_to_show(header):
            config = self.topics.get(topic)
            if config is not None:
                one = self._stats_of(header.consumer_group, config, config.read_queue_nums, self._keys)
                answer.offset_table |= one.offset_table
                answer.consume_tps += one.consume_tps
        return request.reply(ResponseCode.SUCCESS, body=encode_body(answer))

    def _topics_to_show(self, header: GetConsumeStatsHeader) -> list[str]:
        listed = [topic for topic in (header.topic_list or "").split(";") if topic]
        if listed:
            return listed
        topic = (header.topic or "").strip()
        wanted = [topic] if topic else self.offsets.topics_of(header.consumer_group)
        return [topic for topic in wanted if self._is_current(header.consumer_group, topic)]

    def _is_current(self, group: str, topic: str) -> bool:
        """Whether a group that is online still subscribes to a topic; of one that is not, everything counts."""
        live = self.consumers.get(group)
        return live is None or not live.subscriptions or topic in live.subscriptions

    def _keys(self, topic: str, queue_count: int) -> list[str]:
        """The keys of a topic's queues, in their order."""
        return [queue_key(MessageQueue(topic, self.broker_name, queue_id)) for queue_id in range(queue_count)]

    def _stats_of(self, group: str, topic: TopicConfig, queue_count: int, keys: Keys) -> ConsumeStats:
        name = topic.topic_name
        committed, pulled = self.offsets.of(group, name), self.offsets.pulled_of(group, name)
        table = {
            key: self._offset_of(name, queue_id, committed.get(queue_id, 0), pulled.get(queue_id, 0))
            for queue_id, key in enumerate(keys(name, queue_count))
        }
        return ConsumeStats(self.statistics.get_rate(group, name), table)

    def _offset_of(self, topic: str, queue_id: int, committed: int, pulled: int) -> OffsetWrapper:
        last_ms = self.store.store_ms_of(topic, queue_id, committed - 1) if committed > 0 else 0
        return OffsetWrapper(self.store.max_offset(topic, queue_id), committed, max(committed, pulled), max(0, last_ms))

    def all_stats(self, channel: Channel, request: Command) -> Reply:
        """317."""
        is_order = GetBrokerConsumeStatsHeader.decode(request).is_order
        answer = ConsumeStatsList(self.address)
        read = self.offsets.topics_by_group()
        pairs = [(group, read.get(group, ())) for group in self.groups.table]
        keys = cache(self._keys)  # many groups read the same topics
        if len(pairs) > GROUPS_AT_ONCE:
            return self._in_turns(request, answer, pairs, keys, is_order=is_order)
        self._add_groups(answer, pairs, keys, is_order=is_order)
        return request.reply(ResponseCode.SUCCESS, body=encode_body(answer))

    async def _in_turns(
        self, request: Command, answer: ConsumeStatsList, pairs: Pairs, keys: Keys, *, is_order: bool
    ) -> Command:
        """Thousands of groups take a while: other requests are served in between."""
        for start in range(0, len(pairs), GROUPS_AT_ONCE):
            self._add_groups(answer, pairs[start : start + GROUPS_AT_ONCE], keys, is_order=is_order)
            await asyncio.sleep(0)
        return request.reply(ResponseCode.SUCCESS, body=encode_body(answer))

    def _add_groups(self, answer: ConsumeStatsList, pairs: Pairs, keys: Keys, *, is_order: bool) -> None:
        """Groups, each with the topics it has read."""
        for group, read in pairs:
            topics = [self.topics.get(topic) for topic in read]
            shown = [
                self._stats_of(group, topic, topic.write_queue_nums, keys)
                for topic in topics
                if topic is not None and (topic.order or not is_order) and self._is_current(group, topic.topic_name)
            ]
            answer.consume_stats_list.append({group: shown})
            for queue in (queue for stats in shown for queue in stats.offset_table.values()):
                answer.total_diff += queue.broker_offset - queue.consumer_offset
                answer.total_inflight_diff += queue.pull_offset - queue.consumer_offset

    def time_span(self, channel: Channel, request: Command) -> Reply:
        """303."""
        header = QueryConsumeTimeSpanHeader.decode(request)
        topic = self.topics.get(header.topic)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = [self._span(header, queue_id) for queue_id in range(topic.write_queue_nums)]
        return request.reply(ResponseCode.SUCCESS, body=encode_body(ConsumeTimeSpans(spans)))

    def _span(self, header: QueryConsumeTimeSpanHeader, queue_id: int) -> QueueTimeSpan:
        store, topic = self.store, header.topic
        end = store.max_offset(topic, queue_id)
        first_ms = store.earliest_store_ms(topic, queue_id)
        committed = self.offsets.get(header.group, topic, queue_id) or 0
        read_ms = store.store_ms_of(topic, queue_id, committed - 1) if committed > 0 else first_ms
        waiting_ms = 0
        if committed < end:
            next_ms = store.store_ms_of(topic, queue_id, max(committed, store.min_offset(topic, queue_id)))
            waiting_ms = max(0, self.clock.now_ms() - next_ms)
        queue = QueueBody.of(MessageQueue(topic, self.broker_name, queue_id))
        times_ms = first_ms, store.store_ms_of(topic, queue_id, end - 1), read_ms
        return QueueTimeSpan(queue, *times_ms, waiting_ms, *map(_shown, times_ms))

    def groups_of_topic(self, channel: Channel, request: Command) -> Reply:
        """300: the groups that subscribe to a topic or once read it."""
        topic = QueryTopicConsumersHeader.decode(request).topic
        online = {group.name for group in self.consumers if topic in group.subscriptions}
        names = sorted(online | set(self.offsets.groups_of(topic)))
        return request.reply(ResponseCode.SUCCESS, body=encode_body(GroupList(names)))

    def topics_of_group(self, channel: Channel, request: Command) -> Reply:
        """343."""
        group = QueryGroupTopicsHeader.decode(request).group
        answer = TopicList(self.offsets.topics_of(group), broker_addr=self.address)
        return request.reply(ResponseCode.SUCCESS, body=encode_body(answer))

    def subscription(self, channel: Channel, request: Command) -> Reply:
        """345."""
        header = QuerySubscriptionHeader.decode(request)
        found = self._subscription(header.group, header.topic or "")
        answer = QuerySubscriptionBody(header.group, header.topic, found)
        return request.reply(ResponseCode.SUCCESS, body=encode_body(answer))

    def _subscription(self, group: str, topic: str) -> SubscriptionData | None:
        live = self.consumers.get(group)
        return live.subscriptions.get(topic) if live else None

    def clone(self, channel: Channel, request: Command) -> Reply:
        """314. Without a topic all of them are cloned (Apache's broker then clones none)."""
        header = CloneGroupOffsetHeader.decode(request)
        topic = (header.topic or "").strip()
        for name in [topic] if topic else self.offsets.topics_of(header.src_group):
            known = self.topics.get(name) is not None
            if known and (header.offline or self._is_current(header.src_group, name)):
                self.offsets.clone(header.src_group, header.dest_group, name)
                log.warning(
                    "%s gives group %s the offsets of %s in %s",
                    channel.remote,
                    header.dest_group,
                    header.src_group,
                    name,
                )
        return request.reply(ResponseCode.SUCCESS)

    def correction(self, channel: Channel, request: Command) -> Reply:
        """308: the lowest offset any group has per queue, or Java's highest number where the compared group is behind."""
        header = QueryCorrectionOffsetHeader.decode(request)
        left_out = set((header.filter_groups or "").split(","))
        lowest: dict[int, int] = {}
        for group in self.offsets.groups_of(header.topic):
            if group in left_out:
                continue
            for queue_id, offset in self.offsets.of(group, header.topic).items():
                if offset >= self.store.min_offset(header.topic, queue_id):
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        for queue_id, offset in self.offsets.of(header.compare_group, header.topic).items():
            if lowest.get(queue_id, JAVA_LONG_MAX) > offset:
                lowest[queue_id] = JAVA_LONG_MAX
        return request.reply(ResponseCode.SUCCESS, body=encode_body(CorrectionOffsets(lowest)))


def _shown(time_ms: int) -> str:
    """
    >>> _shown(1794733144818)[-4:]
    ':818'
    """
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(time_ms // 1000))}:{time_ms % 1000:03}"
