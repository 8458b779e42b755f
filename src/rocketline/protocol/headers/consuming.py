"""Headers of operators' questions about consumption: who reads what, how far, how fast (300 to 345)."""

from __future__ import annotations

from rocketline.protocol.headers.base import Header, Int32, Int64


class QueryTopicConsumersHeader(Header):
    """300: the groups that read a topic."""

    topic: str


class QueryConsumeTimeSpanHeader(Header):
    """303."""

    topic: str
    group: str


class QueryCorrectionOffsetHeader(Header):
    """308; `filter_groups` is separated by commas."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class CloneGroupOffsetHeader(Header):
    """314; without a topic, all the topics of the source group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsHeader(Header):
    """315."""

    stats_name: str
    stats_key: str


class GetBrokerConsumeStatsHeader(Header):
    """317."""

    is_order: bool


class QueryConsumeQueueHeader(Header):
    """321: entries of a consume queue from `index` on."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class QueryGroupTopicsHeader(Header):
    """343: the topics a group has read."""

    group: str


class QuerySubscriptionHeader(Header):
    """345."""

    group: str
    topic: str | None = None
