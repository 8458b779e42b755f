"""SQL92 filters of consumer groups: registered by heartbeats, compiled once, stored in config/consumerFilter.json.

Each filter has a few bits, made from `group#topic`. Where extended consume queues and bitmaps are switched on, dispatching
a message evaluates every filter of its topic and stores the bits of those that match, and a pull skips messages without its
group's bits before it reads them. Bits are valid only for messages stored after the filter was registered in this run:
older ones were evaluated with another expression, or with none.

A filter whose group went away is dead but still evaluated, so that its bits are right when the group returns; after a day it
is dropped. Heartbeats bring the table back, so a file that cannot be used is ignored.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketline.broker.tables.json_table import JsonTable
from rocketline.clock import Clock
from rocketline.errors import InvalidExpression, StoreError
from rocketline.filtering import sql_filter
from rocketline.protocol.bloom import BloomFilter, has_bits, set_bits
from rocketline.protocol.bodies import SQL92, SubscriptionData
from rocketline.protocol.bodies.filters import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterTable,
    TopicFilterData,
)
from rocketline.protocol.records import LogEntry

if TYPE_CHECKING:
    from rocketline.filtering.sql92 import SqlFilter

log = logging.getLogger(__name__)

DEAD_BEFORE_LOAD_MS = 30_000
"""Nobody is connected when a broker starts: filters that were alive count as dead for this long, as with Apache."""


@dataclass(slots=True, eq=False)
class GroupFilter:
    """The filter of one group for one topic."""

    group: str
    topic: str
    compiled: SqlFilter
    version: int
    """The client's subscription version."""
    born_ms: int
    bits: tuple[int, ...]
    bitmap_bytes: int
    bits_from_ms: int
    """Messages stored after this were evaluated with this expression."""
    dead_ms: int = 0

    def accept_ext(self, tags_code: int, store_ms: int, bitmap: bytes) -> bool:
        """Whether a message may match, as far as its bitmap can tell."""
        return store_ms <= self.bits_from_ms or len(bitmap) != self.bitmap_bytes or has_bits(bitmap, self.bits)

    def saved(self) -> ConsumerFilterData:
        return ConsumerFilterData(
            consumer_group=self.group,
            topic=self.topic,
            expression=self.compiled.text,
            expression_type=SQL92,
            born_time=self.born_ms,
            dead_time=self.dead_ms,
            client_version=self.version,
            bloom_filter_data=BloomFilterData(list(self.bits), self.bitmap_bytes * 8),
            dead=self.dead_ms >= self.born_ms,
        )


class ConsumerFilters:
    """All filters, by topic and group."""

    def __init__(
        self, file: JsonTable[ConsumerFilterTable], clock: Clock, bloom: BloomFilter, keep_dead_ms: int
    ) -> None:
        self._file = file
        self._clock = clock
        self._bloom = bloom
        self._keep_dead_ms = keep_dead_ms
        self._topics: dict[str, dict[str, GroupFilter]] = {}
        self._changed = False

    def get(self, group: str, topic: str) -> GroupFilter | None:
        return self._topics.get(topic, {}).get(group)

    def register(self, group: str, subscriptions: list[SubscriptionData]) -> None:
        """Register the SQL92 subscriptions of a heartbeat; other filters of the group are dead."""
        for subscription in subscriptions:
            if subscription.expression_type == SQL92 and subscription.sub_string:
                self._register(group, subscription)
        wanted = {subscription.topic for subscription in subscriptions}
        for topic, groups in self._topics.items():
            if topic not in wanted and group in groups:
                self._mark_dead(groups[group])

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        groups = self._topics.get(subscription.topic, {})
        known = groups.get(group)
        if known is not None:
            if subscription.sub_version < known.version:
                return  # another member has a newer version
            if known.compiled.text == subscription.sub_string:
                if known.dead_ms or subscription.sub_version > known.version:
                    known.version, known.dead_ms = subscription.sub_version, 0
                    self._changed = True
                return
            if subscription.sub_version == known.version:
                log.warning(
                    "group %s has two expressions of version %d for topic %s: %.200r stays, %.200r is ignored",
                    group, known.version, subscription.topic, known.compiled.text, subscription.sub_string,
                )  # fmt: skip
                return
            del groups[group]
            self._changed = True
        self._add(group, subscription)

    def _add(self, group: str, subscription: SubscriptionData) -> None:
        try:
            compiled = sql_filter(subscription.sub_string)
        except InvalidExpression as error:
            # The group's pulls are refused until it sends another one.
            log.warning("group %s cannot filter topic %s: %s", group, subscription.topic, error)
            return
        now = self._clock.now_ms()
        self._put(group, subscription.topic, compiled, subscription.sub_version, now)
        self._changed = True

    def _put(self, group: str, topic: str, compiled: SqlFilter, version: int, born_ms: int) -> GroupFilter:
        bits = self._bloom.positions(f"{group}#{topic}")
        made = GroupFilter(
            group, topic, compiled, version, born_ms, bits, self._bloom.bitmap_bytes, self._clock.now_ms()
        )
        self._topics.setdefault(topic, {})[group] = made
        return made

    def unregister(self, group: str) -> None:
        """The last member of a group went away."""
        for groups in self._topics.values():
            if group in groups:
                self._mark_dead(groups[group])

    def _mark_dead(self, known: GroupFilter) -> None:
        if not known.dead_ms:
            known.dead_ms = max(self._clock.now_ms(), known.born_ms)
            self._changed = True

    def bitmap_for(self, entry: LogEntry) -> bytes | None:
        """The bitmap of a message that is being dispatched; None when no group filters its topic."""
        groups = self._topics.get(entry.topic)
        if not groups:
            return None
        bitmap = bytearray(self._bloom.bitmap_bytes)
        for known in groups.values():
            if known.compiled.matches(entry.properties):
                set_bits(bitmap, known.bits)
        return bytes(bitmap)

    def load(self) -> None:
        try:
            saved = self._file.load()
        except StoreError as error:
            log.warning("starting without SQL filters, heartbeats bring them back: %s", error)
            return
        for topic, data in saved.filter_data_by_topic.items() if saved is not None else ():
            for group, found in data.group_filter_data.items():
                if found.bloom_filter_data.bit_num != self._bloom.bit_count:
                    log.info("bitmaps have %d bits now, saved SQL filters are of no use", self._bloom.bit_count)
                    self._topics.clear()
                    return
                self._load_one(group, topic, found)

    def _load_one(self, group: str, topic: str, found: ConsumerFilterData) -> None:
        if found.expression_type != SQL92:
            log.warning("filter of %s for %s has the unknown type %.40r", group, topic, found.expression_type)
            return
        try:
            compiled = sql_filter(found.expression)
        except InvalidExpression as error:
            log.warning("saved filter of %s for %s cannot be used: %s", group, topic, error)
            return
        made = self._put(group, topic, compiled, found.client_version, found.born_time)
        made.dead_ms = found.dead_time or max(self._clock.now_ms() - DEAD_BEFORE_LOAD_MS, found.born_time)

    def take_changes(self) -> bytes | None:
        """The file's next content when anything changed since the last call."""
        self._drop_dead()
        if not self._changed:
            return None
        self._changed = False
        table = {
            topic: TopicFilterData(topic, {group: known.saved() for group, known in groups.items()})
            for topic, groups in self._topics.items()
        }
        return self._file.encode(ConsumerFilterTable(table))

    def _drop_dead(self) -> None:
        oldest = self._clock.now_ms() - self._keep_dead_ms
        for topic, groups in list(self._topics.items()):
            for known in [known for known in groups.values() if known.dead_ms and known.dead_ms <= oldest]:
                log.info("SQL filter of %s for %s was not used for long: dropped", known.group, topic)
                del groups[known.group]
                self._changed = True
            if not groups:
                del self._topics[topic]

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except StoreError:
            self._changed = True  # or the next save would do nothing
            raise
