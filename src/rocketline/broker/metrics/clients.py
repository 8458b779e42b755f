"""Metrics of the broker itself and of its connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rocketline.broker.metrics.labels import flag, is_system_group
from rocketline.broker.parts import BrokerParts
from rocketline.metrics.families import Family, counter, gauge
from rocketline.protocol.versions import version_name

REMOTING = "remoting"
_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
PROCESSORS = (
    "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull", "transaction",
    "consumer_manager", "admin", "reply",
)  # fmt: skip


def broker_families(parts: BrokerParts, permission: int) -> Iterator[Family]:
    waiting = gauge("rocketmq_processor_watermark", "Requests in the queues of thread pools: there are none here.")
    for name in PROCESSORS:
        waiting.add(0, processor=name)
    yield waiting
    for name, help, value in (
        ("rocketmq_broker_permission", "4 readable + 2 writable.", permission),
        ("rocketmq_topic_number", "Topics.", len(parts.topics.table)),
        ("rocketmq_consumer_group_number", "Consumer groups.", len(parts.groups.table)),
        ("rocketline_held_pulls", "Pulls that wait for messages.", len(parts.waiters)),
        ("rocketline_held_pops", "Pops that wait for messages.", len(parts.pops.waiters)),
    ):
        family = gauge(name, help)
        family.add(value)
        yield family
    aside = counter("rocketline_set_aside_total", "Items that a background worker could not handle and set aside.")
    for worker, count in parts.aside.counts.items():
        aside.add(count, worker=worker)
    yield aside


def connection_families(parts: BrokerParts, limit: int) -> Iterator[Family]:
    producers = gauge("rocketmq_producer_connections", "Connections of producers.", limit=limit)
    clients = Counter(
        (client.language, client.version)
        for group in parts.producers.names()
        for client in parts.producers.members(group).values()
    )
    for (language, version), count in clients.items():
        producers.add(count, language=language.lower(), version=version_name(version), protocol_type=REMOTING)
    yield producers
    consumers = gauge("rocketmq_consumer_connections", "Connections of consumers.", limit=limit)
    for group in parts.consumers:
        for client in group.members.values():
            consumers.add(
                1,
                consumer_group=group.name,
                language=client.language.lower(),
                version=version_name(client.version),
                consume_mode=_MODES.get(group.consume_type, "other"),
                protocol_type=REMOTING,
                is_system=flag(is_system_group(group.name)),
            )
    yield consumers
