"""Bodies about filter expressions: a subscription to check (46), and consumerFilter.json, the SQL92 filters of a broker."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.bodies.heartbeat import SubscriptionData
from rocketline.protocol.bodies.json_body import Body, Int32, Int64


class CheckClientBody(Body):
    """46: ask whether the broker would serve pulls of this group with this subscription."""

    subscription_data: SubscriptionData
    client_id: str = ""
    group: str = ""


class BloomFilterData(Body):
    """The bits of a group in the bitmaps of a topic, and the length of these bitmaps in bits."""

    bit_pos: list[Int32] = field(default_factory=list)
    bit_num: Int32 = 0


class ConsumerFilterData(Body):
    """The filter of one group. A dead one is kept for a while, because its bits are still in bitmaps."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    born_time: Int64 = 0
    dead_time: Int64 = 0
    client_version: Int64 = 0
    bloom_filter_data: BloomFilterData = field(default_factory=BloomFilterData)
    dead: bool = False
    """Derived from the times; written because Apache writes it."""


class TopicFilterData(Body):
    topic: str = ""
    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)


class ConsumerFilterTable(Body):
    filter_data_by_topic: dict[str, TopicFilterData] = field(default_factory=dict)
