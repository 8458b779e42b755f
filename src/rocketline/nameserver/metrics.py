"""Metrics of a name server: brokers and topics it knows, connections, request times.

Apache's name server has no metrics, so the names are ours, except for those that its broker has too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from rocketline.metrics.families import Family, gauge
from rocketline.metrics.process import process_families
from rocketline.nameserver.routes import RouteTable
from rocketline.transport.request_families import request_family
from rocketline.transport.timed_router import TimedRouter

CONSTANT = (("node_type", "nameserver"),)


class NameServerMetrics:
    def __init__(self, routes: RouteTable, timed: TimedRouter | None, connections: Callable[[], int]) -> None:
        self._routes = routes
        self._timed = timed
        self._connections = connections

    async def collect(self) -> AsyncIterator[Family]:
        brokers = gauge("rocketline_nameserver_brokers", "Brokers that are registered.")
        topics = gauge("rocketline_nameserver_topics", "Topics of registered brokers.")
        connections = gauge("rocketline_nameserver_connections", "Connections that are open.")
        for cluster, count in self._routes.broker_counts().items():
            brokers.add(count, cluster=cluster)
        topics.add(self._routes.topic_count)
        connections.add(self._connections())
        for family in (brokers, topics, connections, *process_families()):
            yield family
        if self._timed is not None:
            yield request_family(self._timed)
