"""One broker, and one name server, as an operator sees them: a method per request, BrokerError for every refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from rocketline.admin.accounts import RemoteAccounts
from rocketline.admin.elections import RemoteGroup
from rocketline.client.consumer_info import ConsumeDirectlyResult
from rocketline.client.remote_broker import PullAnswer, RemoteBroker
from rocketline.errors import BrokerError, ClientError
from rocketline.message import LogOffset, MessageQueue, MessageView
from rocketline.protocol.bodies import (
    BrokerStatsData,
    ClusterInfo,
    ConsumeQueueBody,
    ConsumerConnection,
    ConsumerStatus,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    DelayOffsetTable,
    EpochTable,
    GroupList,
    HaStatus,
    KVTable,
    ProducerConnection,
    ProducerTable,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    TimerCounts,
    TopicConfig,
    TopicConfigList,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
    decode_body,
    encode_body,
    parse_queue_key,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    AddWritePermResponseHeader,
    CloneGroupOffsetHeader,
    ConsumeMessageDirectlyHeader,
    DeleteGroupHeader,
    DeleteKvConfigHeader,
    DeleteTopicHeader,
    DeleteTopicInNameServerHeader,
    GetBrokerConsumeStatsHeader,
    GetConsumerConnectionsHeader,
    GetConsumerStatusHeader,
    GetConsumeStatsHeader,
    GetGroupConfigHeader,
    GetKvConfigHeader,
    GetKvConfigResponseHeader,
    GetKvListHeader,
    GetProducerConnectionsHeader,
    GetRouteHeader,
    GetTopicConfigHeader,
    GetTopicsByClusterHeader,
    GetTopicStatsHeader,
    Header,
    NotifyRoleChangedHeader,
    PullMessageHeader,
    PutKvConfigHeader,
    QueryConsumeQueueHeader,
    QueryConsumeTimeSpanHeader,
    QueryGroupTopicsHeader,
    QueryMessageHeader,
    QueryTopicConsumersHeader,
    ResetOffsetHeader,
    ResumeCheckHalfMessageHeader,
    ViewBrokerStatsHeader,
    ViewMessageByIdHeader,
    WipeWritePermResponseHeader,
    WritePermOfBrokerHeader,
)
from rocketline.protocol.records import decode_messages
from rocketline.protocol.timer_mark import TimerMark
from rocketline.settings import parse_properties
from rocketline.transport import RemotingClient

T = TypeVar("T")


def record_count(body: bytes) -> int:
    """How many stored messages follow each other; each begins with its length."""
    count = place = 0
    while place < len(body) and (size := int.from_bytes(body[place : place + 4], "big")) > 0:
        count, place = count + 1, place + size
    return count


class AdminBroker(RemoteBroker):
    """Requests of an operator to one broker, in addition to those of clients."""

    __slots__ = ("_reads",)

    def __init__(
        self,
        remoting: RemotingClient,
        address: str,
        name: str = "",
        timeout_s: float = 3.0,
        reads: Counter[str] | None = None,
    ) -> None:
        """`reads` counts the messages that are pulled, by broker."""
        super().__init__(remoting, address, name, timeout_s)
        self._reads: Counter[str] = Counter() if reads is None else reads

    async def _get(self, kind: type[T], code: int, header: Header | None, doing: str) -> T:
        return decode_body(kind, (await self._ask(code, header, doing)).body)

    @property
    def where(self) -> str:
        return f"{self.name} {self.address}".strip()

    async def pull(
        self, header: PullMessageHeader, timeout_s: float, code: int = RequestCode.PULL_MESSAGE
    ) -> PullAnswer:
        answer = await super().pull(header, timeout_s, code)
        self._reads[self.name] += record_count(answer.body)
        return answer

    @property
    def accounts(self) -> RemoteAccounts:
        return RemoteAccounts(
            lambda code, header, doing, body: self._ask(code, header, doing, body=body), self.address, self.name
        )

    @property
    def elections(self) -> RemoteGroup:
        return RemoteGroup(lambda code, header, doing, body: self._ask(code, header, doing, body=body))

    # The broker itself

    async def replication(self) -> HaStatus:
        """What a master knows of its replicas, and a replica of its master (907)."""
        return await self._get(HaStatus, RequestCode.GET_BROKER_HA_STATUS, None, "replication status")

    async def epochs(self) -> EpochTable:
        """Which master wrote which span of its log (1007)."""
        return await self._get(EpochTable, RequestCode.GET_BROKER_EPOCH_CACHE, None, "epochs")

    async def change_master(self, address: str, member: int) -> None:
        """Tell a broker with a fixed role which broker of its group is the master from now on (1008)."""
        header = NotifyRoleChangedHeader(master_address=address, master_broker_id=member)
        await self._ask(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, "change of the master")

    async def runtime_info(self) -> dict[str, str]:
        return (await self._get(KVTable, RequestCode.GET_BROKER_RUNTIME_INFO, None, "runtime info")).table

    async def config(self) -> dict[str, str]:
        answer = await self._ask(RequestCode.GET_BROKER_CONFIG, None, "broker settings")
        return parse_properties(answer.body.decode("utf-8", "replace"))

    async def update_config(self, values: dict[str, str]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        doing = f"change of {', '.join(values)}"
        await self._ask(RequestCode.UPDATE_BROKER_CONFIG, None, doing, body=text.encode())

    async def clean_up(self, code: int) -> None:
        """Send one of the requests 306, 316 and 329: delete expired queues, unused topics, or the expired log."""
        await self._ask(code, None, f"clean-up {code}", timeout_s=max(self.timeout_s, 30.0))

    async def stats(self, name: str, key: str) -> BrokerStatsData:
        header = ViewBrokerStatsHeader(name, key)
        return await self._get(BrokerStatsData, RequestCode.VIEW_BROKER_STATS_DATA, header, f"counter {name} of {key}")

    # Messages for later

    async def delay_offsets(self) -> dict[int, int]:
        """By delay level, the queue offset up to which messages were delivered."""
        return (await self._get(DelayOffsetTable, RequestCode.GET_ALL_DELAY_OFFSET, None, "delay offsets")).offset_table

    async def timer_counts(self) -> dict[str, int]:
        """By topic, how many timer messages wait."""
        counts = (await self._get(TimerCounts, RequestCode.GET_TIMER_METRICS, None, "timer counts")).timing_count
        return {topic: item.count for topic, item in counts.items()}

    async def timer_check_point(self) -> TimerMark:
        answer = await self._ask(RequestCode.GET_TIMER_CHECK_POINT, None, "timer check point")
        return TimerMark.decode(answer.body) or TimerMark()

    # Topics

    async def topics(self) -> dict[str, TopicConfig]:
        table = await self._get(TopicConfigSerializeWrapper, RequestCode.GET_ALL_TOPIC_CONFIG, None, "all topics")
        return table.topic_config_table

    async def topic(self, name: str) -> TopicConfig:
        return await self._get(TopicConfig, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigHeader(name), f"topic {name}")

    async def put_topics(self, topics: list[TopicConfig]) -> None:
        body = encode_body(TopicConfigList(topics))
        await self._ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, f"creation of {len(topics)} topics", body=body)

    async def delete_topic(self, name: str) -> None:
        await self._ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader(name), f"deletion of topic {name}")

    async def topic_stats(self, name: str) -> TopicStatsTable:
        header = GetTopicStatsHeader(name)
        return await self._get(TopicStatsTable, RequestCode.GET_TOPIC_STATS_INFO, header, f"offsets of topic {name}")

    async def stats_of_topics(self, names: Sequence[str]) -> dict[str, dict[MessageQueue, TopicOffset]]:
        """The offsets of some topics at once, as far as the broker tells: an Apache broker tells those of the first."""
        header = GetTopicStatsHeader(names[0], ",".join(names[1:]) or None)
        doing = f"offsets of {len(names)} topics"
        answer = await self._get(TopicStatsTable, RequestCode.GET_TOPIC_STATS_INFO, header, doing)
        found: dict[str, dict[MessageQueue, TopicOffset]] = {names[0]: {}}
        for key, item in answer.offset_table.items():
            queue = parse_queue_key(key)
            found.setdefault(queue.topic, {})[queue] = item
        return found

    async def groups_of_topic(self, topic: str) -> list[str]:
        header = QueryTopicConsumersHeader(topic)
        return (
            await self._get(GroupList, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header, f"groups of {topic}")
        ).group_list

    # Groups

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return (await self._get(SubscriptionGroupWrapper, code, None, "all groups")).subscription_group_table

    async def group(self, name: str) -> SubscriptionGroupConfig:
        header = GetGroupConfigHeader(name)
        return await self._get(
            SubscriptionGroupConfig, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header, f"group {name}"
        )

    async def put_group(self, group: SubscriptionGroupConfig) -> None:
        doing = f"creation of group {group.group_name}"
        await self._ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, doing, body=encode_body(group))

    async def put_groups(self, groups: list[SubscriptionGroupConfig]) -> None:
        body = encode_body(SubscriptionGroupList(groups))
        doing = f"creation of {len(groups)} groups"
        await self._ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, doing, body=body)

    async def delete_group(self, name: str, *, with_offsets: bool) -> None:
        header = DeleteGroupHeader(name, clean_offset=with_offsets, remove_offset=with_offsets)
        await self._ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header, f"deletion of group {name}")

    async def topics_of_group(self, group: str) -> list[str]:
        header = QueryGroupTopicsHeader(group)
        return (
            await self._get(TopicList, RequestCode.QUERY_TOPICS_BY_CONSUMER, header, f"topics of {group}")
        ).topic_list

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        header = GetConsumeStatsHeader(group, topic)
        return await self._get(ConsumeStats, RequestCode.GET_CONSUME_STATS, header, f"progress of group {group}")

    async def all_consume_stats(self, *, ordered_only: bool = False) -> ConsumeStatsList:
        """The progress of all groups in one answer."""
        header = GetBrokerConsumeStatsHeader(ordered_only)
        return await self._get(ConsumeStatsList, RequestCode.GET_BROKER_CONSUME_STATS, header, "progress of all groups")

    async def time_spans(self, topic: str, group: str) -> ConsumeTimeSpans:
        header = QueryConsumeTimeSpanHeader(topic, group)
        return await self._get(
            ConsumeTimeSpans, RequestCode.QUERY_CONSUME_TIME_SPAN, header, f"times of {group} in {topic}"
        )

    async def clone_offsets(self, source: str, target: str, topic: str, *, offline: bool) -> None:
        header = CloneGroupOffsetHeader(source, target, topic, offline)
        await self._ask(RequestCode.CLONE_GROUP_OFFSET, header, f"cloning offsets of {source} to {target}")

    async def reset_offsets(self, header: ResetOffsetHeader) -> dict[MessageQueue, int]:
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        doing = f"reset of {header.group} in {header.topic}"
        table = (await self._get(ResetOffsetBody, code, header, doing)).offset_table
        return {parse_queue_key(key): offset for key, offset in table.items()}

    async def positions(self, topic: str, group: str, client: str | None = None) -> ConsumerStatus:
        """The offsets of each online consumer of a group."""
        header = GetConsumerStatusHeader(topic, group, client)
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        return await self._get(ConsumerStatus, code, header, f"positions of {group} in {topic}")

    async def set_request_mode(self, topic: str, group: str, mode: str, pop_share_queue_num: int) -> None:
        """Set whether a group pulls a topic or pops it."""
        members = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": pop_share_queue_num}
        doing = f"mode {mode} of {group} for {topic}"
        await self._ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, doing, body=encode_body(members))

    # Connected clients

    async def consumers(self, group: str) -> ConsumerConnection:
        header = GetConsumerConnectionsHeader(group)
        return await self._get(
            ConsumerConnection, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, f"consumers of {group}"
        )

    async def producers(self, group: str) -> ProducerConnection:
        header = GetProducerConnectionsHeader(group)
        return await self._get(
            ProducerConnection, RequestCode.GET_PRODUCER_CONNECTION_LIST, header, f"producers of {group}"
        )

    async def all_producers(self) -> ProducerTable:
        return await self._get(ProducerTable, RequestCode.GET_ALL_PRODUCER_INFO, None, "all producers")

    async def consume_directly(self, group: str, client: str, offset_id: str) -> ConsumeDirectlyResult:
        """Let one consumer handle one message now; the progress of its group does not change."""
        header = ConsumeMessageDirectlyHeader(group, client, offset_id, self.name or None)
        doing = f"handing {offset_id} to {client}"
        return await self._get(ConsumeDirectlyResult, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, doing)

    # Messages

    async def message_at(self, log_offset: int) -> MessageView:
        header = ViewMessageByIdHeader(LogOffset(log_offset))
        answer = await self._ask(RequestCode.VIEW_MESSAGE_BY_ID, header, f"message at {log_offset}")
        # An Apache broker gives whatever bytes are there.
        messages = self._named(decode_messages(answer.body))
        if len(messages) != 1 or messages[0].log_offset != log_offset:
            raise ClientError(f"no message begins at log offset {log_offset} of {self.address}")
        return messages[0]

    async def find(
        self, topic: str, key: str, most: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[MessageView]:
        """Messages with a key, or with a unique id; an empty list when there are none."""
        header = QueryMessageHeader(topic, key, most, begin_ms, end_ms, unique, "U" if unique else "K")
        answer = await self.call(Command(RequestCode.QUERY_MESSAGE, header.encode()), self.timeout_s)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark, self.address, f"search for {key!r} in {topic}")
        return self._named(decode_messages(answer.body))

    def _named(self, messages: list[MessageView]) -> list[MessageView]:
        for message in messages:
            message.broker_name = self.name
        return messages

    async def consume_queue(self, topic: str, queue_id: int, index: int, count: int, group: str) -> ConsumeQueueBody:
        header = QueryConsumeQueueHeader(topic, queue_id, index, count, group)
        return await self._get(
            ConsumeQueueBody, RequestCode.QUERY_CONSUME_QUEUE, header, f"entries of queue {queue_id} of {topic}"
        )

    async def resume_check(self, topic: str, offset_id: str) -> None:
        header = ResumeCheckHalfMessageHeader(offset_id, topic)
        await self._ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header, f"another check of {offset_id}")


class AdminNameServer:
    """Requests of an operator to one name server."""

    __slots__ = ("_remoting", "address", "timeout_s")

    def __init__(self, remoting: RemotingClient, address: str, timeout_s: float) -> None:
        self._remoting = remoting
        self.address = address
        self.timeout_s = timeout_s

    async def _ask(self, code: int, header: Header | None, doing: str, body: bytes = b"") -> Command:
        command = Command(code, header.encode() if header is not None else {}, body)
        answer = await self._remoting.call(self.address, command, self.timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark, self.address, doing)
        return answer

    async def _get(self, kind: type[T], code: int, header: Header | None, doing: str) -> T:
        return decode_body(kind, (await self._ask(code, header, doing)).body)

    @property
    def accounts(self) -> RemoteAccounts:
        """Only our name servers have accounts; Apache's do not know these requests."""
        return RemoteAccounts(self._ask, self.address)

    async def cluster_info(self) -> ClusterInfo:
        return await self._get(ClusterInfo, RequestCode.GET_BROKER_CLUSTER_INFO, None, "list of brokers")

    async def route(self, topic: str) -> TopicRouteData:
        header = GetRouteHeader(topic, accept_standard_json_only=True)
        return await self._get(TopicRouteData, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, f"route of {topic}")

    async def topics(self, cluster: str | None = None) -> list[str]:
        if cluster is None:
            code, header = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None
        else:
            code, header = RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterHeader(cluster)
        return sorted((await self._get(TopicList, code, header, "list of topics")).topic_list)

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        header = DeleteTopicInNameServerHeader(topic, cluster)
        await self._ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header, f"deletion of topic {topic}")

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Make the topics of a broker read-only; returns how many."""
        header = WritePermOfBrokerHeader(broker_name)
        answer = await self._ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header, f"read-only {broker_name}")
        return WipeWritePermResponseHeader.decode(answer).wipe_topic_count

    async def add_write_permission(self, broker_name: str) -> int:
        header = WritePermOfBrokerHeader(broker_name)
        answer = await self._ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, header, f"writable {broker_name}")
        return AddWritePermResponseHeader.decode(answer).add_topic_count

    async def config(self) -> dict[str, str]:
        answer = await self._ask(RequestCode.GET_NAMESRV_CONFIG, None, "name server settings")
        return parse_properties(answer.body.decode("utf-8", "replace"))

    async def update_config(self, values: dict[str, str]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        await self._ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, f"change of {', '.join(values)}", text.encode())

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        header = PutKvConfigHeader(namespace, key, value)
        await self._ask(RequestCode.PUT_KV_CONFIG, header, f"setting {namespace}/{key}")

    async def get_kv(self, namespace: str, key: str) -> str:
        header = GetKvConfigHeader(namespace, key)
        answer = await self._ask(RequestCode.GET_KV_CONFIG, header, f"reading {namespace}/{key}")
        return GetKvConfigResponseHeader.decode(answer).value or ""

    async def delete_kv(self, namespace: str, key: str) -> None:
        header = DeleteKvConfigHeader(namespace, key)
        await self._ask(RequestCode.DELETE_KV_CONFIG, header, f"deleting {namespace}/{key}")

    async def kv_list(self, namespace: str) -> dict[str, str]:
        code = RequestCode.GET_KVLIST_BY_NAMESPACE
        return (await self._get(KVTable, code, GetKvListHeader(namespace), f"list of {namespace}")).table
