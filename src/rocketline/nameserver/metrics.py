"""Metrics of a name server: brokers and topics it knows, connections, request times.

Apache's name server has no metrics, so the names are ours, except for those that its broker has too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rocketline.metrics.config import MetricsConfig
from rocketline.metrics.exporter import Source
from rocketline.metrics.families import Family, gauge
from rocketline.metrics.process import process_families
from rocketline.nameserver.routes import RouteTable
from rocketline.transport.request_families import request_family
from rocketline.transport.timed_router import TimedRouter

CONSTANT = (("node_type", "nameserver"),)


class NameServerMetrics:
    def __init__(
        self,
        config: MetricsConfig,
        routes: RouteTable,
        timed: TimedRouter | None,
        connections: Callable[[], int],
        access: Callable[[], Iterable[Family]],
    ) -> None:
        self._config = config
        self._routes = routes
        self._timed = timed
        self._connections = connections
        self._access = access

    def sources(self) -> list[Source]:
        """What is switched on."""
        chosen, timed = self._config, self._timed
        sources: list[tuple[bool, Source]] = [
            (chosen.stats, ("the name server", self._tables)),
            (chosen.stats, ("the process", process_families)),
            (chosen.stats, ("access control", self._access)),
            (chosen.connections, ("connections", self._connection_families)),
            (chosen.remoting and timed is not None, ("requests", lambda: [request_family(timed)] if timed else [])),
        ]
        return [source for wanted, source in sources if wanted]

    def _tables(self) -> Iterator[Family]:
        brokers = gauge(
            "rocketline_nameserver_brokers", "Brokers that are registered.", limit=self._config.series_limit
        )
        for cluster, count in self._routes.broker_counts().items():
            brokers.add(count, cluster=cluster)
        yield brokers
        topics = gauge("rocketline_nameserver_topics", "Topics they have.")
        topics.add(self._routes.topic_count)
        yield topics

    def _connection_families(self) -> Iterator[Family]:
        connections = gauge("rocketline_nameserver_connections", "Connections that are open.")
        connections.add(self._connections())
        yield connections
