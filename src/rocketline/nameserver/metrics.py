"""What a name server has to say: how many brokers and topics it knows, who is connected, how long requests take.

Apache's name server has no metrics, so the names are ours, except for what its other servers measure too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rocketline.metrics.exporter import Source
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

    def sources(self) -> list[Source]:
        timed = self._timed
        sources: list[Source] = [("the name server", self._families), ("the process", process_families)]
        if timed is not None:
            sources.append(("requests", lambda: [request_family(timed)]))
        return sources

    def _families(self) -> Iterator[Family]:
        brokers = gauge("rocketline_nameserver_brokers", "Brokers that are registered.")
        topics = gauge("rocketline_nameserver_topics", "Topics they have.")
        connections = gauge("rocketline_nameserver_connections", "Connections that are open.")
        for cluster, count in self._routes.broker_counts().items():
            brokers.add(count, cluster=cluster)
        topics.add(self._routes.topic_count)
        connections.add(self._connections())
        yield from (brokers, topics, connections)
