"""Metrics of the store and of timer messages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator

from rocketline.broker.metrics.labels import exists
from rocketline.broker.parts import BrokerParts
from rocketline.broker.timer.counts import DELAY_BOUNDS_S
from rocketline.metrics.families import Family, counter, gauge, histogram, in_turns
from rocketline.protocol.records import decode_record

DISK = {"storage_type": "local", "storage_medium": "disk"}
SNAPSHOT_BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)


async def storage_families(parts: BrokerParts, limit: int) -> AsyncIterator[Family]:
    for family in _store_families(parts):
        yield family
    if parts.timers.enabled:
        async for family in _timer_families(parts, limit):
            yield family


def _store_families(parts: BrokerParts) -> list[Family]:
    store = parts.store
    usage = store.disk_usage()
    size = gauge("rocketmq_storage_size", "Used bytes of the disk that holds the store.", "bytes")
    size.add(usage.total_bytes - usage.free_bytes, **DISK)
    capacity = gauge("rocketline_storage_capacity", "Bytes of that disk.", "bytes")
    capacity.add(usage.total_bytes, **DISK)
    log = gauge("rocketline_commit_log", "Bytes of messages in the commit log.", "bytes")
    log.add(store.log_next_offset - store.log_min_offset, **DISK)
    flush = gauge("rocketmq_storage_flush_behind_bytes", "Bytes of the commit log not on disk yet.", "bytes")
    flush.add(max(0, store.log_next_offset - store.flushed_offset), **DISK)
    dispatch = gauge("rocketmq_storage_dispatch_behind_bytes", "Bytes of it not readable yet.", "bytes")
    dispatch.add(max(0, store.log_next_offset - store.dispatched_offset), **DISK)
    writable = gauge("rocketline_storage_writable", "1, or 0 when the store takes no messages.")
    writable.add(int(store.is_writable), **DISK)
    families = [size, capacity, log, flush, dispatch, writable]
    first = store.record_at(store.log_min_offset)
    if first is not None:
        age = gauge("rocketmq_storage_message_reserve_time", "Age of the oldest message.", "milliseconds")
        age.add(max(0, parts.clock.now_ms() - decode_record(first, 0, len(first)).store_ms), **DISK)
        families.append(age)
    return families


async def _timer_families(parts: BrokerParts, limit: int) -> AsyncIterator[Family]:
    timers = parts.timers
    _, to_take_in, _ = timers.backlog()
    due, behind_ms = timers.dequeue_behind()
    for name, help, unit, value in (
        ("enqueue_lag", "Timer messages stored and not on the wheel yet.", "", to_take_in),
        ("enqueue_latency", "How long the first of them waits.", "milliseconds", timers.enqueue_behind_ms()),
        ("dequeue_lag", "Timer messages that are due and not delivered.", "", due),
        ("dequeue_latency", "How long the first of them is due.", "milliseconds", behind_ms),
    ):
        family = gauge(f"rocketmq_timer_{name}", help, unit)
        family.add(value, **DISK)
        yield family
    for family in await _timer_counts(parts, limit):
        yield family
    yield await _snapshot(parts)


async def _timer_counts(parts: BrokerParts, limit: int) -> list[Family]:
    waiting = gauge("rocketmq_timing_messages", "Timer messages that wait.", limit=limit)
    put = counter("rocketmq_timer_enqueue_total", "Timer messages put on the wheel.", limit=limit)
    taken = counter("rocketmq_timer_dequeue_total", "Timer messages taken off it.", limit=limit)
    delays = histogram(
        "rocketmq_delay_message_latency", "How long timer messages are to wait.", "seconds", bounds=DELAY_BOUNDS_S,
        limit=limit,
    )  # fmt: skip
    seen = parts.timers.seen
    for counts, family in ((parts.timers.counts.by_topic(), waiting), (seen.put, put), (seen.delivered, taken)):
        async for topic, count in in_turns(counts.items()):
            if exists(parts, topic):
                family.add(max(0, count), **DISK, topic=topic)
    async for topic, tally in in_turns(seen.delays.items()):
        if exists(parts, topic):
            delays.add_distribution(tally.distribution, **DISK, topic=topic)
    return [waiting, put, taken, delays]


async def _snapshot(parts: BrokerParts) -> Family:
    snapshot = gauge("rocketmq_timer_message_snapshot", "Timer messages of the next day by how soon they are due.")
    counts = [0] * (len(SNAPSHOT_BOUNDS_S) + 1)
    async for moment_ms in in_turns(parts.timers.moments_within(SNAPSHOT_BOUNDS_S[-1])):
        soon_s, count = parts.timers.waiting_at(moment_ms)
        counts[bisect_right(SNAPSHOT_BOUNDS_S, soon_s)] += count
    for bound, count in zip(SNAPSHOT_BOUNDS_S, counts):
        snapshot.add(count, **DISK, timer_bound_s=str(bound))
    return snapshot
