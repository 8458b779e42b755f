"""A whole cluster at a glance: topics with their groups and lag, groups, producers, proxies.

However many topics and groups there are, each broker gets two or three requests. What costs a request for each topic with
Apache's brokers is asked for the topics of one page only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from rocketline.admin.cluster import Admin
from rocketline.admin.messages import TOOLS_GROUP
from rocketline.admin.partial import Missing, Partial, merged
from rocketline.admin.progress import GroupProgress, all_progress
from rocketline.admin.remote import AdminBroker
from rocketline.errors import BrokerError, ConsumerNotOnline, RocketlineError, RouteNotFound, TransportError
from rocketline.message import DLQ_PREFIX, RETRY_PREFIX, MessageQueue
from rocketline.protocol.bodies import ClusterInfo, SubscriptionGroupConfig, TopicConfig, TopicOffset
from rocketline.protocol.namespaces import is_system_name

PROXY_GROUP = "CID_DefaultHeartBeatSyncerTopic"
"""Proxies tell each other through a topic, each as a consumer of this group."""
USER, SYSTEM, RETRY, DEAD = "user", "system", "retry", "dead letters"
SYSTEM_PREFIXES = ("CID_RMQ_SYS_", "CID_ONSAPI_", "CID_ONS-HTTP-PROXY", "%")
SYSTEM_GROUPS = frozenset(
    {
        TOOLS_GROUP, "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_SYS_RMQ_TRANS", PROXY_GROUP,
    }
)  # fmt: skip


@dataclass(frozen=True)
class ProducerRow:
    """A producer that is connected to a broker."""

    broker: str
    group: str
    client: str
    address: str
    language: str
    version: int
    seen_ms: int


async def all_producers(admin: Admin, brokers: Iterable[str] = ()) -> Partial[list[ProducerRow]]:
    """All producers (328) of all masters, or of the brokers at some addresses."""
    asked = [await admin.named_broker_at(address) for address in brokers] or await admin.brokers()
    answers = await admin.ask_each(asked, lambda broker: broker.all_producers())
    return answers.map(
        lambda found: [
            ProducerRow(
                broker.name,
                group,
                item.client_id,
                item.remote_ip.lstrip("/"),
                item.language,
                item.version,
                item.last_update_timestamp,
            )
            for broker, table in found
            for group, members in sorted(table.data.items())
            for item in members
        ]
    )


def topic_kind(name: str, info: ClusterInfo) -> str:
    """`user`, `system`, `retry` or `dead letters`; each broker and each cluster has a topic with its name."""
    if name.startswith(RETRY_PREFIX):
        return RETRY
    if name.startswith(DLQ_PREFIX):
        return DEAD
    replies = {f"{cluster}_REPLY_TOPIC" for cluster in info.cluster_addr_table}
    named = name in info.broker_addr_table or name in info.cluster_addr_table or name in replies
    return SYSTEM if named or is_system_name(name) or name.startswith("RMQ_SYS_") else USER


def is_system_group(name: str) -> bool:
    """Whether RocketMQ itself uses a group, or its tools do."""
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_PREFIXES)


@dataclass(frozen=True)
class TopicSummary:
    name: str
    kind: str
    brokers: dict[str, TopicConfig] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    """The lag of each group with progress in it."""

    @property
    def message_type(self) -> str:
        types = {config.attributes.get("message.type", "") for config in self.brokers.values()} - {""}
        return "/".join(sorted(types))

    @property
    def read_queues(self) -> int:
        return sum(config.read_queue_nums for config in self.brokers.values())

    @property
    def write_queues(self) -> int:
        return sum(config.write_queue_nums for config in self.brokers.values())

    @property
    def lag(self) -> int | None:
        """Of all groups together; None when nobody reads it."""
        return sum(self.groups.values()) if self.groups else None


async def topic_summaries(admin: Admin) -> Partial[list[TopicSummary]]:
    """All topics with their groups and lag; two requests to each broker."""
    info = await admin.cluster_info()
    asking = admin.ask_each(await admin.brokers(), lambda broker: broker.topics())
    configs, progress = await asyncio.gather(asking, all_progress(admin))
    topics: dict[str, TopicSummary] = {}
    for broker, table in configs.value:
        for name, config in table.items():
            topics.setdefault(name, TopicSummary(name, topic_kind(name, info))).brokers[broker.name] = config
    for group in progress.value:
        for name, lag in _lag_by_topic(group).items():
            if name in topics and group.group != TOOLS_GROUP:
                topics[name].groups[group.group] = lag
    return Partial([topics[name] for name in sorted(topics)], merged(configs, progress), configs.answered)


def _lag_by_topic(progress: GroupProgress) -> dict[str, int]:
    found: dict[str, int] = {}
    for queue, item in progress.queues.items():
        found[queue.topic] = found.get(queue.topic, 0) + max(0, item.broker_offset - item.consumer_offset)
    return found


@dataclass(frozen=True)
class TopicEnds:
    """The sums of the first and of the next offsets of a topic's queues; the difference of two ends is its rate."""

    begin: int
    end: int
    last_ms: int
    """When the last message was stored; 0 when never."""

    @property
    def kept(self) -> int:
        return self.end - self.begin


async def topic_ends(admin: Admin, topics: Iterable[TopicSummary]) -> Partial[dict[str, TopicEnds]]:
    """The ends of some topics, those of one page: a request to each of our brokers, and to Apache's one for each topic."""
    names: dict[str, list[str]] = {}
    # A broker leaves out what would make its answer too long: topics with few queues come first.
    for topic in sorted(topics, key=lambda topic: topic.read_queues):
        for broker_name in topic.brokers:
            names.setdefault(broker_name, []).append(topic.name)
    brokers = [broker for broker in await admin.brokers() if broker.name in names]
    answers = await admin.gather(_ends_on(admin, broker, names[broker.name]) for broker in brokers)
    found: dict[str, TopicEnds] = {}
    for ends, _ in answers:
        for name, end in ends.items():
            before = found.get(name, TopicEnds(0, 0, 0))
            last_ms = max(before.last_ms, end.last_ms)
            found[name] = TopicEnds(before.begin + end.begin, before.end + end.end, last_ms)
    missing = {problem.where: problem for _, problem in answers if problem is not None}
    return Partial(found, tuple(missing.values()), bool(found) or not brokers)


async def _ends_on(admin: Admin, broker: AdminBroker, names: list[str]) -> tuple[dict[str, TopicEnds], Missing | None]:
    """The ends of topics on one broker, and why some are missing."""
    tables: dict[str, dict[MessageQueue, TopicOffset]] = {}
    try:
        tables = await broker.stats_of_topics(names)
    except (BrokerError, TransportError) as error:
        if isinstance(error, TransportError):
            return {}, Missing.of(broker.name, broker.address, error)
    # Those that it did not tell: an Apache broker, one that was deleted, one that this account may not see.
    left = [name for name in names if name not in tables]
    answers = await admin.gather_or_errors(broker.stats_of_topics([name]) for name in left)
    failed = [answer for answer in answers if isinstance(answer, RocketlineError)]
    for answer in answers:
        if not isinstance(answer, RocketlineError):
            tables |= answer
    ends = {name: _ends(tables[name].values()) for name in names if name in tables}
    return ends, Missing.of(broker.name, broker.address, failed[0]) if failed else None


def _ends(queues: Collection[TopicOffset]) -> TopicEnds:
    return TopicEnds(
        sum(max(0, item.min_offset) for item in queues),
        sum(item.max_offset for item in queues),
        max((item.last_update_timestamp for item in queues), default=0),
    )


@dataclass(frozen=True)
class GroupSummary:
    name: str
    brokers: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    progress: GroupProgress | None = None
    """None: it never committed an offset."""

    @property
    def lag(self) -> int | None:
        return None if self.progress is None else self.progress.lag


async def group_summaries(admin: Admin) -> Partial[list[GroupSummary]]:
    """All groups with their progress; two requests to each broker."""
    asking = admin.ask_each(await admin.brokers(), lambda broker: broker.groups())
    configs, progress = await asyncio.gather(asking, all_progress(admin))
    table: dict[str, dict[str, SubscriptionGroupConfig]] = {item.group: {} for item in progress.value}
    for broker, groups in configs.value:
        for name, config in groups.items():
            table.setdefault(name, {})[broker.name] = config
    known = {item.group: item for item in progress.value}
    found = [GroupSummary(name, table[name], known.get(name)) for name in sorted(table)]
    return Partial(found, merged(configs, progress), configs.answered)


async def proxies(admin: Admin) -> list[str] | None:
    """The addresses of the cluster's proxies, as brokers see them; None when none is known."""
    try:
        brokers = await admin.brokers_of_group(PROXY_GROUP)
        answers = await admin.ask_brokers(brokers, lambda broker: broker.consumers(PROXY_GROUP))
    except (RouteNotFound, ConsumerNotOnline):
        return None
    return sorted({item.client_addr for _, online in answers for item in online.connection_set}) or None
