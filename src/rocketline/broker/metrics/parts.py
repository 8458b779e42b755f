"""What metrics look at in a broker, and which labels say that something is the broker's own."""

from __future__ import annotations

from rocketline.broker.consumer_offsets import ConsumerOffsets
from rocketline.broker.groups import SYSTEM_PREFIX, Groups
from rocketline.broker.pop.pops import Pops
from rocketline.broker.registries import ConsumerRegistry, ProducerRegistry
from rocketline.broker.set_aside import SetAside
from rocketline.broker.statistics import BrokerStatistics
from rocketline.broker.timer.timers import Timers
from rocketline.broker.topics import Topics
from rocketline.broker.transactions.half_messages import HalfMessages
from rocketline.broker.waiters import PullWaiters
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.message import DLQ_PREFIX, RETRY_PREFIX
from rocketline.store.message_store import MessageStore
from rocketline.transport.timed_router import TimedRouter


@wired
class MetricsParts:
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    consumers: ConsumerRegistry
    producers: ProducerRegistry
    waiters: PullWaiters
    statistics: BrokerStatistics
    timers: Timers
    half_messages: HalfMessages
    pops: Pops
    aside: SetAside
    clock: Clock
    timed: TimedRouter | None
    """None: nobody takes the time of requests."""

    def is_there(self, topic: str, group: str = "") -> bool:
        """Whether a topic exists, and a group if one is named: what is gone has no series."""
        if topic not in self.topics.table and not self.topics.is_system(topic):
            return False
        return not group or group in self.groups.table or is_system_group(group)

    def is_system(self, topic: str, group: str = "") -> str:
        return flag(self.topics.is_system(topic) or is_system_group(group))


def is_system_group(group: str) -> bool:
    return group.upper().startswith(SYSTEM_PREFIX)


def is_derived(topic: str) -> bool:
    """Whether a topic belongs to a group: its retries or dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def flag(value: bool) -> str:
    return "true" if value else "false"
