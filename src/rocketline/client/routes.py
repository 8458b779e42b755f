"""Routes turned into what clients use: queues to write, queues to read, addresses of brokers.

Rules of RocketMQ kept here: read and write queues are counted apart and each needs its permission bit; a broker without
a master cannot be written to; a topic with an order configuration is written exactly as that says. A topic nobody knows
yet borrows the route of the template topic, with at most as many queues as the producer asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from rocketline.message import MessageQueue
from rocketline.protocol.bodies import MASTER_ID, PERM_READ, PERM_WRITE, QueueData, TopicRouteData
from rocketline.protocol.numbers import read_number

MAX_QUEUES = 65536
"""More queues than this per broker is a broken answer, not a topic."""


@dataclass(frozen=True)
class TopicRoute:
    """Where one topic lives."""

    topic: str
    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Addresses by broker name and broker id, 0 being the master."""
    without_master: tuple[str, ...] = ()
    """Names of the brokers whose queues could be written to if they had a master."""

    @property
    def addresses(self) -> set[str]:
        return {address for ids in self.brokers.values() for address in ids.values()}


def topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """The route of a topic from a name server's answer."""
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas if broker.broker_addrs}
    counts = sorted(data.queue_datas, key=lambda queues: queues.broker_name)
    readable = [
        queue
        for item in counts
        if item.perm & PERM_READ and item.broker_name in brokers
        for queue in _queues(topic, item.broker_name, item.read_queue_nums)
    ]
    ordered = _ordered_queues(topic, data.order_topic_conf)
    writable = ordered if ordered is not None else _writable_queues(topic, counts, brokers)
    acting = {broker.broker_name for broker in data.broker_datas if broker.enable_acting_master}
    without = tuple(item.broker_name for item in counts if _lacks_master(item, brokers, acting))
    return TopicRoute(topic, tuple(writable), tuple(readable), brokers, without)


def _lacks_master(item: QueueData, brokers: Mapping[str, Mapping[int, str]], acting: set[str]) -> bool:
    """A replica that acts as master is shown as one that may only be read."""
    if item.perm & PERM_WRITE:
        return MASTER_ID not in brokers.get(item.broker_name, {})
    return bool(item.perm & PERM_READ) and item.broker_name in acting


def borrowed_route(topic: str, template: TopicRouteData, queue_count: int) -> TopicRoute:
    """The route of a topic that does not exist yet, made from the template topic's."""
    queues = [
        msgspec.structs.replace(
            item,
            read_queue_nums=min(queue_count, item.read_queue_nums),
            write_queue_nums=min(queue_count, item.read_queue_nums),
        )
        for item in template.queue_datas
    ]
    return topic_route(topic, TopicRouteData(template.broker_datas, queues))


def _writable_queues(
    topic: str, counts: list[QueueData], brokers: Mapping[str, Mapping[int, str]]
) -> list[MessageQueue]:
    return [
        queue
        for item in counts
        if item.perm & PERM_WRITE and MASTER_ID in brokers.get(item.broker_name, {})
        for queue in _queues(topic, item.broker_name, item.write_queue_nums)
    ]


def _ordered_queues(topic: str, conf: str | None) -> list[MessageQueue] | None:
    """The queues of `broker-a:4;broker-b:8`, or None when there is no (readable) such text."""
    if not conf:
        return None
    queues: list[MessageQueue] = []
    for part in conf.split(";"):
        name, _, text = part.partition(":")
        count = read_number(text.strip())
        if name and count is not None:
            queues += _queues(topic, name, count)
    return queues or None


def _queues(topic: str, broker_name: str, count: int) -> list[MessageQueue]:
    return [MessageQueue(topic, broker_name, queue_id) for queue_id in range(min(count, MAX_QUEUES))]
