"""A whole cluster at a glance: topics with their groups and lag, groups, producers, proxies.

However many topics and groups there are, each broker gets two or three requests. What costs a request for each topic is
asked for the topics of one page only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rocketline.admin.cluster import Admin
from rocketline.admin.messages import TOOLS_GROUP
from rocketline.admin.partial import Missing, Partial, merged
from rocketline.admin.progress import GroupProgress, all_progress
from rocketline.errors import ConsumerNotOnline, RocketlineError, RouteNotFound
from rocketline.message import DLQ_PREFIX, RETRY_PREFIX
from rocketline.protocol.bodies import ClusterInfo, SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.namespaces import is_system_name

PROXY_GROUP = "CID_DefaultHeartBeatSyncerTopic"
"""Proxies tell each other through a topic, each as a consumer of this group."""
USER, SYSTEM, RETRY, DEAD = "user", "system", "retry", "dead letters"


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
    configs = await admin.ask_each(await admin.brokers(), lambda broker: broker.topics())
    progress = await all_progress(admin)
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
    """The ends of some topics, those of one page: a request for each topic and broker."""
    brokers = {broker.name: broker for broker in await admin.brokers()}
    places = [(topic.name, brokers[name]) for topic in topics for name in topic.brokers if name in brokers]
    answers = await admin.gather_or_errors(broker.topic_stats(topic) for topic, broker in places)
    found: dict[str, TopicEnds] = {}
    missing: dict[str, Missing] = {}
    for (topic, broker), stats in zip(places, answers):
        if isinstance(stats, RocketlineError):
            problem = Missing.of(broker.name, broker.address, stats)
            missing.setdefault(problem.where, problem)
            continue
        before = found.get(topic, TopicEnds(0, 0, 0))
        queues = stats.offset_table.values()
        found[topic] = TopicEnds(
            before.begin + sum(max(0, item.min_offset) for item in queues),
            before.end + sum(item.max_offset for item in queues),
            max([before.last_ms, *(item.last_update_timestamp for item in queues)]),
        )
    return Partial(found, tuple(missing.values()), bool(found) or not places)


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
    configs = await admin.ask_each(await admin.brokers(), lambda broker: broker.groups())
    progress = await all_progress(admin)
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
