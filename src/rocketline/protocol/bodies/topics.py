"""Bodies and files with the settings of topics and groups, and the offsets of groups."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.bodies.json_body import Body, Int32, Int64

SINGLE_TAG = "SINGLE_TAG"
MULTI_TAG = "MULTI_TAG"


class DataVersion(Body):
    """Version of a table; two states are the same only if all members are equal."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def advanced(self, now_ms: int) -> DataVersion:
        """The version after one more change."""
        return DataVersion(self.counter + 1, self.state_version, now_ms)


class TopicConfig(Body):
    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


class TopicConfigList(Body):
    """18: several topics to create or change."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


class MappingItem(Body):
    """A part of a logical queue, and the queue of a broker that holds it."""

    gen: Int32 = 0
    queue_id: Int32 = 0
    bname: str | None = None
    logic_offset: Int64 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = -1
    time_of_start: Int64 = -1
    time_of_end: Int64 = -1


class TopicQueueMappingInfo(Body):
    """Which logical queues of a static topic the queues of a broker belong to."""

    topic: str | None = None
    scope: str | None = None
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] = field(default_factory=dict)


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    hosted_queues: dict[Int32, list[MappingItem]] = field(default_factory=dict)


class TopicConfigSerializeWrapper(Body):
    """topics.json, and the topics of a registration with the mappings of static ones."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = None
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None


class ExponentialRetryPolicy(Body):
    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(Body):
    next: list[Int64] = field(default_factory=list)


class GroupRetryPolicy(Body):
    """When a message is redelivered: type CUSTOMIZED (by delay level) or EXPONENTIAL."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscription(Body):
    """A subscription fixed in a group's settings."""

    topic: str
    expression_type: str = "TAG"
    expression: str = "*"
    version: Int64 = 0


class SubscriptionGroupConfig(Body):
    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[SimpleSubscription] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


class SubscriptionGroupWrapper(Body):
    """subscriptionGroup.json, and the groups a slave fetches."""

    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, Int32]] = field(default_factory=dict)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)


class SubscriptionGroupList(Body):
    """Groups to be created or changed together."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


class GroupForbidden(Body):
    """Whether a group may read a topic."""

    group: str
    topic: str
    readable: bool = True


class ConsumerOffsetTable(Body):
    """consumerOffset.json: `topic@group`, queue id, next offset. Apache also writes a derived groupTopicMap: not read."""

    data_version: DataVersion = field(default_factory=DataVersion)
    offset_table: dict[str, dict[Int32, Int64]] = field(default_factory=dict)


class TimerCount(Body):
    """How many timer messages of a topic wait, and when that last changed."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class TimerCounts(Body):
    """timermetrics, and the answer to GET_TIMER_METRICS."""

    data_version: DataVersion = field(default_factory=DataVersion)
    timing_count: dict[str, TimerCount] = field(default_factory=dict)


class DelayOffsetTable(Body):
    """delayOffset.json: how far each delay level has been delivered."""

    data_version: DataVersion = field(default_factory=DataVersion)
    offset_table: dict[Int32, Int64] = field(default_factory=dict)
