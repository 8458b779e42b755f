"""Metrics of pop mode: traffic of the revive log, its lag, and check points that are only in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from rocketline.broker.metrics.labels import exists
from rocketline.broker.parts import BrokerParts
from rocketline.metrics.families import Family, counter, gauge, in_turns

STORED = "PUT_OK"
"""What could not be stored is refused and counts nowhere."""


async def pop_families(parts: BrokerParts, limit: int) -> AsyncIterator[Family]:
    reviver = parts.pops.reviver
    put = counter("rocketmq_pop_revive_in_message_total", "Check points and acks written.", limit=limit)
    async for (group, topic, kind), count in in_turns(reviver.traffic.put.items()):
        if exists(parts, topic, group):
            put.add(count, consumer_group=group, topic=topic, revive_message_type=kind, put_status=STORED)
    yield put
    got = counter("rocketmq_pop_revive_out_message_total", "Check points and acks read.", limit=limit)
    async for (group, topic, kind, queue_id), count in in_turns(reviver.traffic.got.items()):
        if exists(parts, topic, group):
            got.add(count, consumer_group=group, topic=topic, queue_id=str(queue_id), revive_message_type=kind)
    yield got
    again = counter("rocketmq_pop_revive_retry_messages_total", "Messages delivered again.", limit=limit)
    async for (group, topic), count in in_turns(reviver.redelivered.items()):
        if exists(parts, topic, group):
            again.add(count, consumer_group=group, topic=topic, put_status=STORED)
    yield again
    for family in _gauges(parts):
        yield family


def _gauges(parts: BrokerParts) -> list[Family]:
    checkpoints = parts.pops.checkpoints
    offsets = gauge("rocketmq_pop_offset_buffer_size", "Steps of offsets that wait for check points in memory.")
    offsets.add(checkpoints.step_count)
    buffered = gauge("rocketmq_pop_checkpoint_buffer_size", "Check points that are only in memory.")
    buffered.add(len(checkpoints))
    # Apache gives the number of messages this unit, so the name must have it.
    lag = gauge("rocketmq_pop_revive_lag", "Records of the revive log not settled yet.", "milliseconds")
    age = gauge("rocketmq_pop_revive_latency", "Age of the first of them.", "milliseconds")
    for queue_id, records, behind_ms in parts.pops.reviver.behind():
        lag.add(records, queue_id=str(queue_id))
        age.add(behind_ms, queue_id=str(queue_id))
    return [offsets, buffered, lag, age]
