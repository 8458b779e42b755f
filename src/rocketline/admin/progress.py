"""Progress of consumer groups over all brokers: reading and resetting it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from rocketline.admin.cluster import Admin
from rocketline.admin.partial import Partial
from rocketline.errors import ClientError
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import OffsetWrapper, parse_queue_key
from rocketline.protocol.headers import ResetOffsetHeader


@dataclass
class GroupProgress:
    """The offsets of one group in all its queues on all brokers."""

    group: str
    rate: float = 0.0
    queues: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """Messages that are stored and not consumed yet."""
        return sum(max(0, item.broker_offset - item.consumer_offset) for item in self.queues.values())

    @property
    def in_flight(self) -> int:
        """Messages that were pulled and are not consumed yet."""
        return sum(max(0, item.pull_offset - item.consumer_offset) for item in self.queues.values())

    @property
    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self.queues})

    def in_topic(self, topic: str) -> GroupProgress:
        """The progress in one topic."""
        queues = {queue: item for queue, item in self.queues.items() if queue.topic == topic}
        return GroupProgress(self.group, self.rate, queues)


async def progress_of(admin: Admin, group: str, topic: str | None = None) -> GroupProgress:
    """The progress of one group; ClientError when it never consumed anything."""
    brokers = await (admin.brokers_of(topic) if topic else admin.brokers_of_group(group))
    result = GroupProgress(group)
    for _, stats in await admin.ask_brokers(brokers, lambda broker: broker.consume_stats(group, topic)):
        result.rate += stats.consume_tps
        result.queues.update((parse_queue_key(key), item) for key, item in stats.offset_table.items())
    if not result.queues:
        raise ClientError(f"group {group!r} has no progress{f' in topic {topic!r}' if topic else ''} on any broker")
    return result


async def all_progress(admin: Admin, cluster: str | None = None) -> Partial[list[GroupProgress]]:
    """The progress of all groups, with one request to each broker."""
    answers = await admin.ask_each(await admin.brokers(cluster), lambda broker: broker.all_consume_stats())
    parsed = cache(parse_queue_key)  # many groups read the same queues
    table: dict[str, GroupProgress] = {}
    for _, answer in answers.value:
        for groups in answer.consume_stats_list:
            for group, shown in groups.items():
                progress = table.setdefault(group, GroupProgress(group))
                for stats in shown:
                    progress.rate += stats.consume_tps
                    progress.queues.update((parsed(key), item) for key, item in stats.offset_table.items())
    return Partial([table[group] for group in sorted(table)], answers.missing, answers.answered)


async def reset(
    admin: Admin,
    group: str,
    topic: str,
    timestamp_ms: int,
    *,
    force: bool = True,
    broker_addr: str | None = None,
    queue_id: int = -1,
    offset: int | None = None,
) -> dict[MessageQueue, int]:
    """Move a group to a time (-1: the end), or one of its queues to an offset; returns the new offsets."""
    header = ResetOffsetHeader(topic, group, timestamp_ms, force, queue_id, offset)
    if broker_addr is not None:
        brokers = [await admin.named_broker_at(broker_addr)]
    else:
        brokers = await admin.brokers_of(topic)
    moved: dict[MessageQueue, int] = {}
    for _, offsets in await admin.ask_brokers(brokers, lambda broker: broker.reset_offsets(header)):
        moved |= offsets
    return moved
