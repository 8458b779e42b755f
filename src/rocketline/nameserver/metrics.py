"""Metrics of a name server: brokers and topics it knows, connections, request times.

Apache's name server has no metrics, so the names are ours, except for those that its broker has too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

from rocketline.metrics.config import MetricsConfig
from rocketline.metrics.families import Family, gauge
from rocketline.metrics.process import process_families
from rocketline.nameserver.routes import RouteTable
from rocketline.transport.request_families import request_family
from rocketline.transport.timed_router import TimedRouter

CONSTANT = (("node_type", "nameserver"),)


class NameServerMetrics:
    def __init__(
        self, config: MetricsConfig, routes: RouteTable, timed: TimedRouter | None, connections: Callable[[], int]
    ) -> None:
        self._config = config
        self._routes = routes
        self._timed = timed
        self._connections = connections

    async def collect(self) -> AsyncIterator[Family]:
        chosen = self._config
        if chosen.stats:
            for family in (*self._tables(), *process_families()):
                yield family
        if chosen.connections:
            connections = gauge("rocketline_nameserver_connections", "Connections that are open.")
            connections.add(self._connections())
            yield connections
        if chosen.remoting and self._timed is not None:
            yield request_family(self._timed)

    def _tables(self) -> Iterator[Family]:
        limit = self._config.series_limit
        brokers = gauge("rocketline_nameserver_brokers", "Brokers that are registered.", limit=limit)
        for cluster, count in self._routes.broker_counts().items():
            brokers.add(count, cluster=cluster)
        yield brokers
        topics = gauge("rocketline_nameserver_topics", "Topics they have.")
        topics.add(self._routes.topic_count)
        yield topics
