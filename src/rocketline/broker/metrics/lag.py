"""Lag of groups: messages not consumed, in flight, or not requested yet, and how old the first of them are.

A group that is online is behind in what it subscribes to; one that is not, in all it ever read. Apache's broker shows only
the former. Retries of a pull group are shown under the name of their topic, those of a popping group under the real topic,
both with `is_retry`.

Work is bounded and spread: counting needs no disk access, the age of a message needs one, and only where something waits.
After a number of queues a scrape shows no more groups, and reports how many it left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rocketline.broker.metrics.labels import exists, flag, is_derived, system_flag
from rocketline.broker.parts import BrokerParts
from rocketline.metrics.families import ITEMS_PER_TURN, Family, gauge, in_turns
from rocketline.protocol.names import retry_topic

POP = "CONSUME_POP"
MAX_QUEUES = 50_000
"""Queues that one scrape covers."""
MAX_AGES = 5_000
"""Messages whose age it reads; groups that come later have none."""


class GroupTopic(NamedTuple):
    """A group and a topic it reads."""

    group: str
    topic: str
    shown_topic: str
    is_pop: bool
    is_retry: bool


@dataclass(slots=True)
class GroupLag:
    lag: int = 0
    in_flight: int = 0
    ready: int = 0
    consumed_ms: int | None = None
    """When the first message that is not consumed was stored."""
    pulled_ms: int | None = None
    """When the first message that was not requested was stored."""


async def lag_families(parts: BrokerParts, limit: int) -> AsyncIterator[Family]:
    lag = gauge("rocketmq_consumer_lag_messages", "Messages a group has not consumed.", limit=limit)
    age = gauge(
        "rocketmq_consumer_lag_latency", "Age of the first of them.", "milliseconds", limit=limit, takes_largest=True
    )
    in_flight = gauge("rocketmq_consumer_inflight_messages", "Messages in the hands of a group.", limit=limit)
    queueing = gauge(
        "rocketmq_consumer_queueing_latency", "Age of the first one not asked for.", "milliseconds", limit=limit,
        takes_largest=True,
    )  # fmt: skip
    ready = gauge("rocketmq_consumer_ready_messages", "Messages a group has not asked for.", limit=limit)
    left_out = 0
    scrape, once_read = _Scrape(parts), parts.offsets.topics_by_group()
    async for group in in_turns(parts.groups.table):
        for pair in _pairs(parts, group, once_read.get(group, [])):
            behind = await scrape.at(pair)
            if behind is None:
                left_out += 1
                continue
            labels = {
                "consumer_group": pair.group,
                "topic": pair.shown_topic,
                "is_retry": flag(pair.is_retry),
                "is_system": system_flag(parts, pair.topic, pair.group),
            }
            lag.add(behind.lag, **labels)
            in_flight.add(behind.in_flight, **labels)
            ready.add(behind.ready, **labels)
            age.add(scrape.age_of(behind.consumed_ms), **labels)
            queueing.add(scrape.age_of(behind.pulled_ms), **labels)
    skipped = gauge("rocketline_lag_left_out", "Groups and topics whose lag a scrape had no time for.")
    skipped.add(left_out)
    for family in (lag, age, in_flight, queueing, ready, skipped):
        yield family


def _pairs(parts: BrokerParts, group: str, once_read: list[str]) -> Iterator[GroupTopic]:
    live = parts.consumers.get(group)
    is_pop = live is not None and live.consume_type == POP
    for topic in list(live.subscriptions) if live is not None and live.subscriptions else once_read:
        if is_derived(topic) or not exists(parts, topic):
            continue
        yield GroupTopic(group, topic, topic, is_pop, False)
        for retry in parts.pops.popping.retry_topics(group, topic) if is_pop else ():
            if retry in parts.topics.table:
                yield GroupTopic(group, retry, topic, True, True)
    own = retry_topic(group)
    if own in parts.topics.table and own in once_read:
        yield GroupTopic(group, own, own, False, True)


class _Scrape:
    """One scrape over all queues, and how many queues and ages it may still read."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._now_ms = parts.clock.now_ms()
        self._queues = MAX_QUEUES
        self._ages = MAX_AGES

    def age_of(self, stored_ms: int | None) -> int:
        return 0 if stored_ms is None else max(0, self._now_ms - stored_ms)

    async def at(self, pair: GroupTopic) -> GroupLag | None:
        """How far a group is behind in a topic; None when this scrape has covered enough queues."""
        config = self._parts.topics.table.get(pair.topic)
        if config is None:
            return GroupLag()  # deleted meanwhile
        count = max(config.read_queue_nums, config.write_queue_nums)
        if count > self._queues:
            return None
        behind = GroupLag()
        for queue_id in range(count):
            self._add(behind, pair, queue_id)
            self._queues -= 1
            if self._queues % ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)
        return behind

    def _add(self, behind: GroupLag, pair: GroupTopic, queue_id: int) -> None:
        topic = pair.topic
        end = self._parts.store.max_offset(topic, queue_id)
        if not end:
            return
        consumed, asked, in_flight = self._positions(pair, queue_id, end)
        behind.in_flight += in_flight
        behind.lag += max(0, end - consumed)
        behind.ready += max(0, end - asked)
        if consumed < end:
            behind.consumed_ms = _earlier(behind.consumed_ms, self._stored_ms(topic, queue_id, consumed))
        if asked < end:
            behind.pulled_ms = _earlier(behind.pulled_ms, self._stored_ms(topic, queue_id, asked))

    def _positions(self, pair: GroupTopic, queue_id: int, end: int) -> tuple[int, int, int]:
        """(first offset not consumed, first one not requested, messages in flight); a group that never read has no lag."""
        parts, group, topic = self._parts, pair.group, pair.topic
        committed = parts.offsets.get(group, topic, queue_id)
        if pair.is_pop:
            asked = parts.pops.checkpoints.position(topic, group, queue_id)
            asked = asked if asked >= 0 else end if committed is None else int(committed)
            in_flight = parts.pops.in_flight.of_queue((topic, group, queue_id))
            return max(0, asked - in_flight), asked, in_flight
        pulled = parts.offsets.pulled(group, topic, queue_id)
        if committed is None:
            # It has read, and not committed yet.
            return (end if pulled is None else pulled), (end if pulled is None else pulled), 0
        asked = int(committed) if pulled is None else max(int(committed), pulled)
        return int(committed), asked, asked - int(committed)

    def _stored_ms(self, topic: str, queue_id: int, offset: int) -> int | None:
        if not self._ages:
            return None
        self._ages -= 1
        store = self._parts.store
        stored_ms = store.store_ms_of(topic, queue_id, max(offset, store.min_offset(topic, queue_id)))
        return None if stored_ms < 0 else stored_ms


def _earlier(known_ms: int | None, ms: int | None) -> int | None:
    return known_ms if ms is None else ms if known_ms is None else min(known_ms, ms)
