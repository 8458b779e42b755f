"""Which queues a topic has, on this broker and on others: the name servers are asked, and their answers kept for a
while.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence

from rocketline.broker.tables.topics import READ, Topics
from rocketline.clock import Clock
from rocketline.errors import ProtocolError, TransportError
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import TopicRouteData, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import RemotingClient

log = logging.getLogger(__name__)

KEEP_S = 30.0
TIMEOUT_S = 3.0
MAX_KNOWN = 10_000
MAX_QUEUES = 65_536

Queues = list[MessageQueue] | None
"""Sorted; None: there is no such topic, as far as anybody knows."""


class ClusterQueues:
    def __init__(
        self, name_servers: Sequence[str], client: RemotingClient, topics: Topics, clock: Clock, broker_name: str
    ) -> None:
        self._name_servers = list(name_servers)
        self._client = client
        self._topics = topics
        self._clock = clock
        self._broker_name = broker_name
        self._known: dict[str, tuple[float, Queues]] = {}

    def of(self, topic: str) -> Queues | Awaitable[Queues]:
        """The queues, at once when they are known; otherwise when a name server answered."""
        if not self._name_servers:
            return self._own(topic)
        known = self._known.get(topic)
        if known is not None and known[0] > self._clock.monotonic() and known[1] is not None:
            return known[1]
        return self._ask(topic)

    def _own(self, topic: str) -> Queues:
        config = self._topics.get(topic)
        if config is None or not config.perm & READ:
            return None
        return [MessageQueue(topic, self._broker_name, number) for number in range(config.read_queue_nums)]

    async def _ask(self, topic: str) -> Queues:
        for address in self._name_servers:
            try:
                request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
                answer = await self._client.call(address, request, TIMEOUT_S)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    continue
                if answer.code != ResponseCode.SUCCESS:
                    log.warning("name server %s does not tell the queues of %s: %s", address, topic, answer.remark)
                    continue
                queues = _readable(topic, decode_body(TopicRouteData, answer.body))
            except (TransportError, ProtocolError) as error:
                log.warning("name server %s does not tell the queues of %s: %s", address, topic, error)
                continue
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[topic] = self._clock.monotonic() + KEEP_S, queues
            return queues
        known = self._known.get(topic)
        return known[1] if known is not None else None


def _readable(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    return sorted(
        MessageQueue(topic, data.broker_name, number)
        for data in route.queue_datas
        if data.perm & READ
        for number in range(min(data.read_queue_nums, MAX_QUEUES))
    )
