"""What the front asks of a cluster: where topics are, what groups are like, and the way to each broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Protocol

from rocketline.auth.guard import AccessGuard
from rocketline.protocol.bodies import PERM_READ, PERM_WRITE, SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.names import is_derived
from rocketline.proxy.links import BrokerLink, FrontChannel, LocalLink

if TYPE_CHECKING:
    from rocketline.broker import Broker

TYPE_ATTRIBUTE = "message.type"


@dataclass(frozen=True)
class BrokerQueues:
    """The queues of a topic at one broker."""

    link: BrokerLink
    read_count: int
    write_count: int
    perm: int

    @property
    def readable_count(self) -> int:
        return self.read_count if self.perm & PERM_READ else 0

    @property
    def writable_count(self) -> int:
        return self.write_count if self.perm & PERM_WRITE else 0


class Topic:
    """A topic as the front uses it."""

    def __init__(self, name: str, message_type: str, brokers: Sequence[BrokerQueues]) -> None:
        self.name = name
        self.message_type = "NORMAL" if is_derived(name) else message_type
        self.brokers = tuple(sorted(brokers, key=lambda queues: queues.link.name))
        self.writable: list[tuple[BrokerLink, int]] = [
            (queues.link, queue_id) for queues in self.brokers for queue_id in range(queues.writable_count)
        ]
        """In the order by which groups of messages find theirs."""
        self.in_turn = [
            (queues.link, queue_id)
            for queue_id in range(max((queues.writable_count for queues in self.brokers), default=0))
            for queues in self.brokers
            if queue_id < queues.writable_count
        ]
        """The same, so that neighbours are at different brokers."""
        self.readable = [queues.link for queues in self.brokers if queues.readable_count]
        self.turn = 0
        """Counts up, for choices in turn."""

    def link(self, broker_name: str) -> BrokerLink | None:
        """The broker of this name, if it has readable queues."""
        return next((link for link in self.readable if link.name == broker_name), None)

    def next_writable(self) -> tuple[BrokerLink, int]:
        """A broker and a queue in turn, past brokers that failed just now; there must be one."""
        for _ in self.in_turn:
            self.turn += 1
            link, queue_id = self.in_turn[self.turn % len(self.in_turn)]
            if link.is_available:
                break
        return link, queue_id

    def next_readable(self) -> BrokerLink:
        for _ in self.readable:
            self.turn += 1
            link = self.readable[self.turn % len(self.readable)]
            if link.is_available:
                break
        return link


class Backend(Protocol):
    """A cluster."""

    @property
    def guard(self) -> AccessGuard | None:
        """Checks who sends a request and whether he may; None: no accounts are asked for."""

    def known_topic(self, name: str) -> Topic | None:
        """A topic that can be told of at once."""

    async def topic(self, name: str) -> Topic | None:
        """A topic; None when there is none of that name."""

    async def group(self, name: str) -> SubscriptionGroupConfig | None:
        """The settings of a consumer group; None when there is none of that name."""

    async def link(self, broker_name: str) -> BrokerLink | None:
        """The way to a broker; None when there is none of that name."""

    async def registrars(self, channel: FrontChannel, topics: Sequence[str]) -> Sequence[BrokerLink]:
        """The brokers that are told of a client that is at home in these topics."""

    def forget(self, channel: FrontChannel) -> None:
        """A client is gone."""


def topic_type(config: TopicConfig) -> str:
    return config.attributes.get(TYPE_ATTRIBUTE) or "NORMAL"


class LocalBackend:
    """The brokers of this process."""

    def __init__(self, brokers: Callable[[], Sequence[Broker]]) -> None:
        self._brokers = brokers
        self._links: dict[str, LocalLink] = {}
        self._topics: dict[str, tuple[list[TopicConfig | None], Topic | None]] = {}

    @property
    def guard(self) -> AccessGuard | None:
        brokers = self._brokers()
        return brokers[0].parts.access if brokers else None

    def known_topic(self, name: str) -> Topic | None:
        brokers = self._brokers()
        configs = [broker.parts.topics.get(name) for broker in brokers]
        known = self._topics.get(name)
        # Tables hold another object for a topic that was changed, or whose broker was started again.
        if known is not None and len(known[0]) == len(configs) and all(map(is_, known[0], configs)):
            return known[1]
        if not any(configs):
            self._topics.pop(name, None)
            return None
        topic = self._made(name, brokers, configs)
        self._topics[name] = configs, topic
        return topic

    def _made(self, name: str, brokers: Sequence[Broker], configs: Sequence[TopicConfig | None]) -> Topic:
        queues = [
            BrokerQueues(self._link_to(broker), config.read_queue_nums, config.write_queue_nums, config.perm)
            for broker, config in zip(brokers, configs)
            if config is not None
        ]
        first = next(config for config in configs if config is not None)
        return Topic(name, topic_type(first), queues)

    async def topic(self, name: str) -> Topic | None:
        return self.known_topic(name)

    async def group(self, name: str) -> SubscriptionGroupConfig | None:
        for broker in self._brokers():
            if (found := broker.parts.groups.table.get(name)) is not None:
                return found
        return None

    async def link(self, broker_name: str) -> BrokerLink | None:
        for broker in self._brokers():
            if broker.name == broker_name:
                return self._link_to(broker)
        return None

    def _link_to(self, broker: Broker) -> LocalLink:
        link = self._links.get(broker.name)
        if link is None or link.broker is not broker:
            link = self._links[broker.name] = LocalLink(broker)
            self._topics.clear()  # a broker was started again: topics hold the links to the former one
        return link

    async def registrars(self, channel: FrontChannel, topics: Sequence[str]) -> Sequence[BrokerLink]:
        return [self._link_to(broker) for broker in self._brokers()]

    def forget(self, channel: FrontChannel) -> None:
        channel.close()
