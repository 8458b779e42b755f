"""Bodies with which a broker answers operators' questions about consumption."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.bodies.heartbeat import SubscriptionData
from rocketline.protocol.bodies.json_body import Body, Int32, Int64, QueueBody
from rocketline.protocol.bodies.queues import ConsumeStats


class QueueTimeSpan(Body):
    """One queue: when its oldest and newest message, and the one a group read last, were stored."""

    message_queue: QueueBody
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0
    """For how long the next message has been waiting for the group; 0 when there is none."""
    min_time_stamp_str: str = ""
    max_time_stamp_str: str = ""
    consume_time_stamp_str: str = ""
    """The times as text, in the broker's time zone."""


class ConsumeTimeSpans(Body):
    """The answer to 303."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class StatsItem(Body):
    """A counter over one period: its growth in total, per second and per call."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """The answer to 315."""

    stats_minute: StatsItem = field(default_factory=StatsItem)
    stats_hour: StatsItem = field(default_factory=StatsItem)
    stats_day: StatsItem = field(default_factory=StatsItem)


class ConsumeStatsList(Body):
    """The answer to 317: per group a list, one entry per topic."""

    broker_addr: str
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class QuerySubscriptionBody(Body):
    """The answer to 345."""

    group: str
    topic: str | None = None
    subscription_data: SubscriptionData | None = None


class CorrectionOffsets(Body):
    """The answer to 308, by queue id."""

    correction_offsets: dict[Int32, Int64] = field(default_factory=dict)


class ConsumeQueueUnit(Body):
    """One unit of a consume queue; what Apache adds from an extended queue is text for people."""

    physic_offset: Int64
    physic_size: Int32
    tags_code: Int64
    eval: bool = False
    extend_data_json: str | None = None
    bit_map: str | None = None
    msg: str | None = None


class ConsumeQueueBody(Body):
    """The answer to 321."""

    queue_data: list[ConsumeQueueUnit] = field(default_factory=list)
    min_queue_index: Int64 = 0
    max_queue_index: Int64 = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class ProducerInfo(Body):
    client_id: str
    remote_ip: str = field(name="remoteIP")
    language: str = "JAVA"
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTable(Body):
    """The answer to 328: producers by group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)
