"""All metric families of a broker that are switched on, one after the other."""

from __future__ import annotations

from functools import partial

from rocketline.auth.metrics import access_families
from rocketline.broker.config import BrokerConfig
from rocketline.broker.metrics.clients import broker_families, connection_families
from rocketline.broker.metrics.elections import election_families
from rocketline.broker.metrics.labels import exists
from rocketline.broker.metrics.lag import lag_families
from rocketline.broker.metrics.popping import pop_families
from rocketline.broker.metrics.replication import replication_families
from rocketline.broker.metrics.storage import storage_families
from rocketline.broker.metrics.traffic import dead_letter_families, traffic_families
from rocketline.broker.metrics.transactions import transaction_families
from rocketline.broker.parts import BrokerParts
from rocketline.metrics.exporter import MetricsExporter, Source
from rocketline.metrics.families import Labels
from rocketline.metrics.process import process_families
from rocketline.transport.accepting import page_front
from rocketline.transport.request_families import request_family
from rocketline.transport.server_tls import ServerTls
from rocketline.transport.timed_router import TimedRouter


class BrokerMetrics:
    def __init__(self, parts: BrokerParts, timed: TimedRouter | None, tls: ServerTls | None = None) -> None:
        """`timed` has the times of requests, if they are measured."""
        self._parts = parts
        self._timed = timed
        self._tls = tls
        self._cleaned = parts.topics.version, parts.groups.version
        self.more: list[Source] = []
        """What others in this process measure."""

    def exporter(self) -> MetricsExporter:
        config = self._parts.config
        address = self._parts.environment.address.text
        front = page_front(self._tls)
        return MetricsExporter(config.metrics, self.sources, labels_of(config), self.problem, front, address)

    def problem(self) -> str:
        """Why the broker takes no messages; "" when it does."""
        return self._parts.store.reason

    def forget_gone(self) -> None:
        """Drop counters of deleted topics and groups, if there are any."""
        parts = self._parts
        versions = parts.topics.version, parts.groups.version
        if versions == self._cleaned:
            return
        self._cleaned = versions
        parts.statistics.forget(lambda topic, group: not exists(parts, topic, group))
        parts.timers.seen.forget([topic for topic in parts.timers.seen.put if not exists(parts, topic)])
        for topic in [topic for topic in parts.half_messages.by_topic if not exists(parts, topic)]:
            del parts.half_messages.by_topic[topic]
        reviver = parts.pops.reviver
        for counts in (reviver.traffic.put, reviver.traffic.got, reviver.redelivered):
            for key in [key for key in counts if not exists(parts, key[1], key[0])]:
                del counts[key]

    def sources(self) -> list[Source]:
        """What is switched on now."""
        config, parts = self._parts.config, self._parts
        chosen, limit = config.metrics, config.metrics.series_limit
        timed, tls = self._timed, self._tls
        sources: list[tuple[bool, Source]] = [
            (chosen.stats, ("the broker", partial(broker_families, parts, config.permission))),
            (chosen.stats, ("the process", process_families)),
            (chosen.stats, ("access control", partial(access_families, parts.refusals, is_open=config.is_open))),
            (chosen.connections, ("connections", partial(connection_families, parts, limit))),
            (chosen.remoting and timed is not None, ("requests", lambda: [request_family(timed)] if timed else [])),
            (chosen.connections and tls is not None, ("TLS", lambda: tls.families() if tls else [])),
            (chosen.requests, ("traffic", partial(traffic_families, parts, limit))),
            (chosen.lag, ("dead letters", partial(dead_letter_families, parts, limit))),
            (chosen.lag, ("lag", partial(lag_families, parts, limit))),
            (chosen.store, ("the store", partial(storage_families, parts, limit))),
            (chosen.store, ("replication", partial(replication_families, parts))),
            (chosen.store and parts.member is not None, ("elections", partial(election_families, parts))),
            (chosen.transactions, ("transactions", partial(transaction_families, parts, limit))),
            (chosen.pop, ("pop mode", partial(pop_families, parts, limit))),
        ]
        return [source for wanted, source in sources if wanted] + self.more


def labels_of(config: BrokerConfig) -> Labels:
    """What tells this broker from others."""
    return ("node_type", "broker"), ("cluster", config.cluster), ("node_id", config.name)
