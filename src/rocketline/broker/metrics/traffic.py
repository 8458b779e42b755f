"""Metrics of messages in and out, their sizes, and dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator

from rocketline.broker.metrics.labels import exists, is_derived, system_flag
from rocketline.broker.parts import BrokerParts
from rocketline.broker.statistics.statistics import DELAY, NORMAL, SIZE_BOUNDS, TRANSACTION
from rocketline.broker.tables.topics import SCHEDULE_TOPIC
from rocketline.broker.timer.redirect import TIMER_TOPIC
from rocketline.metrics.families import Distribution, Family, counter, histogram, in_turns
from rocketline.protocol.transactions import HALF_TOPIC

_KIND_OF_TOPIC = {SCHEDULE_TOPIC: DELAY, TIMER_TOPIC: DELAY, HALF_TOPIC: TRANSACTION}
"""Kinds of redirected messages, by the topic that they are stored under first."""


async def traffic_families(parts: BrokerParts, limit: int) -> AsyncIterator[Family]:
    for family in await _incoming(parts, limit):
        yield family
    for family in await _outgoing(parts, limit):
        yield family


async def _incoming(parts: BrokerParts, limit: int) -> list[Family]:
    messages = counter("rocketmq_messages_in_total", "Messages stored.", limit=limit)
    size = counter("rocketmq_throughput_in_total", "Bytes of messages stored.", limit=limit)
    sizes = histogram("rocketmq_message_size", "Sizes of messages stored, in bytes.", bounds=SIZE_BOUNDS, limit=limit)
    async for topic in in_turns(parts.statistics.topics()):
        if is_derived(topic) or not exists(parts, topic):
            continue  # Apache leaves retries and dead letters out, too
        system = system_flag(parts, topic)
        for found in parts.statistics.incoming(topic):
            kind = _KIND_OF_TOPIC.get(topic, NORMAL) if found.kind == NORMAL else found.kind
            messages.add(found.messages, topic=topic, message_type=kind, is_system=system)
            size.add(found.size, topic=topic, message_type=kind, is_system=system)
            distribution = Distribution(found.by_size, found.size)
            sizes.add_distribution(distribution, topic=topic, message_type=kind, is_system=system)
    return [messages, size, sizes]


async def _outgoing(parts: BrokerParts, limit: int) -> list[Family]:
    messages = counter("rocketmq_messages_out_total", "Messages given to groups.", limit=limit)
    size = counter("rocketmq_throughput_out_total", "Bytes of messages given to groups.", limit=limit)
    async for found in in_turns(parts.statistics.outgoing()):
        if is_derived(found.topic) or not exists(parts, found.topic, found.group):
            continue
        labels = {
            "topic": found.topic,
            "consumer_group": found.group,
            "is_retry": "false",
            "is_system": system_flag(parts, found.topic, found.group),
        }
        messages.add(found.messages, **labels)
        size.add(found.size, **labels)
    return [messages, size]


async def dead_letter_families(parts: BrokerParts, limit: int) -> AsyncIterator[Family]:
    letters = counter("rocketmq_send_to_dlq_messages_total", "Messages that went to the dead letters.", limit=limit)
    async for found in in_turns(parts.statistics.dead_letters()):
        if exists(parts, found.topic, found.group):
            system = system_flag(parts, found.topic, found.group)
            letters.add(found.messages, consumer_group=found.group, topic=found.topic, is_system=system)
    yield letters
