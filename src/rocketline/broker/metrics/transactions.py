"""Metrics of transactions: how many are open, how they ended, and how long commits took."""

from __future__ import annotations

from collections.abc import AsyncIterator

from rocketline.broker.metrics.labels import exists
from rocketline.broker.parts import BrokerParts
from rocketline.broker.transactions.topic_counts import COMMIT_BOUNDS_S
from rocketline.metrics.families import Family, counter, gauge, histogram, in_turns


async def transaction_families(parts: BrokerParts, limit: int) -> AsyncIterator[Family]:
    half = gauge("rocketmq_half_messages", "Half messages since the start whose transaction is open.", limit=limit)
    committed = counter("rocketmq_commit_messages_total", "Transactions committed.", limit=limit)
    rolled_back = counter("rocketmq_rollback_messages_total", "Transactions rolled back.", limit=limit)
    took = histogram(
        # In seconds, though Apache says milliseconds.
        "rocketmq_finish_message_latency", "Seconds from the birth of a message to its commit.", "milliseconds",
        bounds=COMMIT_BOUNDS_S, limit=limit,
    )  # fmt: skip
    async for topic, counts in in_turns(parts.half_messages.by_topic.items()):
        if not exists(parts, topic):
            continue
        half.add(counts.open, topic=topic)
        committed.add(counts.committed, topic=topic)
        rolled_back.add(counts.rolled_back, topic=topic)
        if counts.committed:
            took.add_distribution(counts.took.distribution, topic=topic)
    for family in (half, committed, rolled_back, took):
        yield family
