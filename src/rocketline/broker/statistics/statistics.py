"""Counters of a broker's traffic, with Apache's names: shown by 315, as rates by 202 and 208, and as metrics.

Counting is one lookup and three additions per request. The counters are sampled every 10 s, 10 min and 1 h; the figure of
a minute, an hour or a day is the growth between the oldest and the newest of its samples, as in Apache. The totals of the
broker are summed when a sample is taken; how far readers are behind is computed on request.
"""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rocketline.broker.statistics.totals import Totals, TotalsHistory
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.clock import Clock
from rocketline.protocol.bodies import BrokerStatsData, StatsItem
from rocketline.protocol.numbers import read_number
from rocketline.store.message_store import MessageStore


class SampleWindow(NamedTuple):
    """How often a sample is taken, and how many are kept."""

    interval_s: float
    sample_count: int


MINUTE = SampleWindow(10.0, 7)
HOUR = SampleWindow(600.0, 7)
DAY = SampleWindow(3600.0, 25)
WINDOWS = (MINUTE, HOUR, DAY)

NORMAL = "normal"
FIFO = "fifo"
DELAY = "delay"
TRANSACTION = "transaction"
"""Kinds of messages, as metrics call them."""
SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
SMALL_BYTES = SIZE_BOUNDS[0]

TO_DEAD_LETTERS = "SEND_BACK_TO_DLQ"
READ_TIMES = "GROUP_GET_LATENCY"


class TrafficSample(NamedTuple):
    ms: int
    messages: int
    size: int
    times: int
    took_ms: float


class Traffic:
    """Messages, their bytes, the requests that carried them, and how long those took, if measured."""

    __slots__ = ("_samples", "messages", "size", "times", "took_ms")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.times = 0
        self.took_ms = 0.0
        self._samples: dict[SampleWindow, deque[TrafficSample]] = {
            window: deque(maxlen=window.sample_count) for window in WINDOWS
        }

    def add(self, other: Traffic) -> None:
        self.messages += other.messages
        self.size += other.size
        self.times += other.times

    def sample(self, window: SampleWindow, now_ms: int) -> None:
        samples = self._samples[window]
        if not samples:
            samples.append(TrafficSample(now_ms - int(window.interval_s * 1000), 0, 0, 0, 0.0))
        samples.append(TrafficSample(now_ms, self.messages, self.size, self.times, self.took_ms))

    def over(self, window: SampleWindow, *, size: bool = False) -> StatsItem:
        """The growth of messages, or of bytes, between the ends of a window."""
        samples = self._samples[window]
        if not samples:
            return StatsItem()
        first, last = samples[0], samples[-1]
        grown = last.size - first.size if size else last.messages - first.messages
        span_ms, times = last.ms - first.ms, last.times - first.times
        return StatsItem(grown, grown * 1000 / span_ms if span_ms > 0 else 0.0, grown / times if times > 0 else 0.0)

    def time_over(self, window: SampleWindow) -> StatsItem:
        """The average time of a request between the ends of a window, in milliseconds; without a sum, as Apache's."""
        samples = self._samples[window]
        times = samples[-1].times - samples[0].times if samples else 0
        return StatsItem(0, 0.0, (samples[-1].took_ms - samples[0].took_ms) / times if times > 0 else 0.0)


class StoredMessages(NamedTuple):
    """Stored messages of one topic and kind, and how many of them had which size."""

    topic: str
    kind: str
    messages: int
    size: int
    by_size: tuple[int, ...]


class DeliveredMessages(NamedTuple):
    """Messages of a topic that were delivered to a group, or went to its dead letters."""

    topic: str
    group: str
    messages: int
    size: int


class _SpecialMessages:
    """Messages not counted with the small, normal ones of a topic: those of another kind, and large ones."""

    __slots__ = ("larger", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.larger = [0] * len(SIZE_BOUNDS)
        """By size, without the smallest."""


class BrokerStatistics:
    """All counters of a broker."""

    def __init__(self, cluster: str, clock: Clock, is_system: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._is_system = is_system
        self._puts: dict[str, Traffic] = {}
        self._special: dict[str, dict[str, _SpecialMessages]] = {}
        """By topic and kind."""
        self._gets: dict[str, Traffic] = {}
        self._sent_back: dict[str, Traffic] = {}
        self._dead: dict[str, Traffic] = {}
        self._given_up: dict[tuple[str, str], int] = {}
        """By topic and group: messages that went to the dead letters without being handed back."""
        self._acks: dict[str, Traffic] = {}
        self._gone = {
            (kind, is_of_system): Traffic() for kind in ("put", "get", "ack") for is_of_system in (False, True)
        }
        """Counts of deleted topics and groups: totals never decrease."""
        self._totals = {name: {cluster: Traffic()} for name in _TOTALS}
        self.missed = 0
        """Reads that found nothing."""
        self.slowest_s = 0.0
        """The read that took longest."""
        self.failed = 0
        """Messages that could not be stored."""
        self.history = TotalsHistory(clock, self.totals)
        self._tables = {
            "TOPIC_PUT_NUMS": (self._puts, False),
            "TOPIC_PUT_SIZE": (self._puts, True),
            "GROUP_GET_NUMS": (self._gets, False),
            "GROUP_GET_SIZE": (self._gets, True),
            "GROUP_ACK_NUMS": (self._acks, False),
            "SNDBCK_PUT_NUMS": (self._sent_back, False),
            "SNDBCK2DLQ_TIMES": (self._dead, False),
            **{name: (table, False) for name, table in self._totals.items()},
        }

    def put(self, topic: str, messages: int, size: int, kind: str = NORMAL) -> None:
        """Count messages that a request stored."""
        traffic = self._puts.get(topic)
        if traffic is None:
            traffic = self._puts[topic] = Traffic()
        traffic.messages += messages
        traffic.size += size
        traffic.times += 1
        if kind is not NORMAL or size > SMALL_BYTES * messages:
            self._put_special(topic, kind, messages, size)

    def put_each(self, topic: str, messages: int, size: int, times: int) -> None:
        """Count normal messages that `times` requests stored; more than one only if no message exceeds `SMALL_BYTES`."""
        self.put(topic, messages, size)
        if times > 1:
            self._puts[topic].times += times - 1

    def _put_special(self, topic: str, kind: str, messages: int, size: int) -> None:
        kinds = self._special.setdefault(topic, {})
        special = kinds.get(kind)
        if special is None:
            special = kinds[kind] = _SpecialMessages()
        special.messages += messages
        special.size += size
        position = bisect_left(SIZE_BOUNDS, size / messages)
        if position:
            special.larger[position - 1] += messages

    def delivered(self, topic: str, size: int) -> None:
        """Count a delayed message that was delivered to its topic."""
        self.put(topic, 1, size, DELAY)

    def got(self, group: str, topic: str, messages: int, size: int, took_s: float = 0.0) -> None:
        """Count messages delivered to a group, read in `took_s` seconds."""
        self.got_as(f"{topic}@{group}", messages, size, took_s)

    def got_as(self, key: str, messages: int, size: int, took_s: float) -> None:
        """The same for frequent callers, which keep the key TOPIC@GROUP."""
        traffic = self._gets.get(key)
        if traffic is None:
            traffic = self._gets[key] = Traffic()
        traffic.messages += messages
        traffic.size += size
        traffic.times += 1
        traffic.took_ms += took_s * 1000
        if took_s > self.slowest_s:
            self.slowest_s = took_s

    def sent_back(self, group: str, topic: str, *, dead: bool) -> None:
        """Count a message that a group handed back; it comes again, or goes to the dead letters."""
        _count(self._sent_back, f"{topic}@{group}")
        if dead:
            # The first part is an owner that only Apache's commercial edition has: it shows as Java's null.
            _count(self._dead, f"null@{topic}@{group}@{TO_DEAD_LETTERS}")

    def given_up(self, group: str, topic: str) -> None:
        """Count a message that a group itself sent to the dead letters."""
        self._given_up[topic, group] = self._given_up.get((topic, group), 0) + 1

    def acked(self, group: str, topic: str, messages: int) -> None:
        """Count popped messages that a group acknowledged."""
        key = f"{topic}@{group}"
        traffic = self._acks.get(key)
        if traffic is None:
            traffic = self._acks[key] = Traffic()
        traffic.messages += messages
        traffic.times += 1

    def topics(self) -> list[str]:
        """Topics that messages were stored in."""
        return list(self._puts)

    def incoming(self, topic: str) -> list[StoredMessages]:
        """Messages stored in a topic, by kind."""
        traffic = self._puts.get(topic)
        if traffic is None:
            return []
        kinds = self._special.get(topic, {})
        found = [
            StoredMessages(topic, kind, special.messages, special.size, _by_size(special.messages, special.larger))
            for kind, special in kinds.items()
            if kind != NORMAL
        ]
        messages = traffic.messages - sum(other.messages for other in found)
        if messages or not found:
            large = kinds[NORMAL].larger if NORMAL in kinds else [0] * len(SIZE_BOUNDS)
            size = traffic.size - sum(other.size for other in found)
            found.append(StoredMessages(topic, NORMAL, messages, size, _by_size(messages, large)))
        return found

    def outgoing(self) -> list[DeliveredMessages]:
        """Messages delivered to groups."""
        return [
            DeliveredMessages(*_topic_and_group(key), traffic.messages, traffic.size)
            for key, traffic in self._gets.items()
        ]

    def dead_letters(self) -> list[DeliveredMessages]:
        """Messages that went to the dead letters."""
        found = [DeliveredMessages(topic, group, messages, 0) for (topic, group), messages in self._given_up.items()]
        return found + [
            DeliveredMessages(*_dead_topic_and_group(key), dead.messages, 0) for key, dead in self._dead.items()
        ]

    def forget(self, is_gone: Callable[[str, str], bool]) -> None:
        """Drop the counters of deleted topics and groups; `is_gone` takes a topic and a group or ""."""
        for topic in [topic for topic in self._puts if is_gone(topic, "")]:
            self._gone["put", self._is_system(topic)].add(self._puts.pop(topic))
            self._special.pop(topic, None)
        for kind, table in (("get", self._gets), ("ack", self._acks)):
            for key in [key for key in table if is_gone(*_topic_and_group(key))]:
                self._gone[kind, self._is_system(_topic_and_group(key)[0])].add(table.pop(key))
        for key in [key for key in self._sent_back if is_gone(*_topic_and_group(key))]:
            del self._sent_back[key]
        for key in [key for key in self._dead if is_gone(*_dead_topic_and_group(key))]:
            del self._dead[key]
        for pair in [pair for pair in self._given_up if is_gone(*pair)]:
            del self._given_up[pair]

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """A counter over its windows; None when it does not exist."""
        if name == READ_TIMES:
            read = self._gets.get(key)
            return None if read is None else BrokerStatsData(*map(read.time_over, WINDOWS))
        table, size = self._tables.get(name, ({}, False))
        traffic = table.get(key)
        if traffic is None:
            return None
        return BrokerStatsData(*(traffic.over(window, size=size) for window in WINDOWS))

    def put_rate(self, topic: str) -> float:
        """Messages a second stored in a topic, over the last minute."""
        traffic = self._puts.get(topic)
        return traffic.over(MINUTE).tps if traffic is not None else 0.0

    def get_rate(self, group: str, topic: str) -> float:
        """Messages a second delivered to a group, over the last minute."""
        traffic = self._gets.get(f"{topic}@{group}")
        return traffic.over(MINUTE).tps if traffic is not None else 0.0

    def totals(self) -> Totals:
        """All traffic since the start."""
        gone = self._gone
        puts = [*self._puts.values(), gone["put", False], gone["put", True]]
        gets = [*self._gets.values(), gone["get", False], gone["get", True]]
        return Totals(
            put=sum(traffic.messages for traffic in puts),
            put_bytes=sum(traffic.size for traffic in puts),
            got=sum(traffic.messages for traffic in gets),
            found=sum(traffic.times for traffic in gets),
            missed=self.missed,
        )

    async def run(self) -> None:
        """Take samples for ever."""
        for count in itertools.count(1):
            await asyncio.sleep(MINUTE.interval_s)
            for window in WINDOWS:
                if count * MINUTE.interval_s % window.interval_s == 0:
                    self.sample(window)

    def sample(self, window: SampleWindow) -> None:
        self._add_up()
        if window is MINUTE:
            self.history.sample()
        now_ms = self._clock.now_ms()
        for table in (self._puts, self._gets, self._acks, self._sent_back, self._dead, *self._totals.values()):
            for traffic in table.values():
                traffic.sample(window, now_ms)

    def _add_up(self) -> None:
        for name, (kind, with_system) in _TOTALS.items():
            table = {"put": self._puts, "get": self._gets, "ack": self._acks}[kind]
            gone = self._gone[kind, False].messages + (self._gone[kind, True].messages if with_system else 0)
            self._totals[name][self._cluster].messages = gone + sum(
                traffic.messages
                for key, traffic in table.items()
                if with_system or not self._is_system(key.partition("@")[0])
            )


_TOTALS = {
    "BROKER_PUT_NUMS": ("put", True),
    "BROKER_GET_NUMS": ("get", True),
    "BROKER_ACK_NUMS": ("ack", True),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": ("put", False),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": ("get", False),
}


def _by_size(messages: int, larger: list[int]) -> tuple[int, ...]:
    return messages - sum(larger), *larger


def _topic_and_group(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


def _dead_topic_and_group(key: str) -> tuple[str, str]:
    return _topic_and_group(key.removeprefix("null@").removesuffix(f"@{TO_DEAD_LETTERS}"))


def _count(table: dict[str, Traffic], key: str) -> None:
    traffic = table.get(key)
    if traffic is None:
        traffic = table[key] = Traffic()
    traffic.messages += 1
    traffic.times += 1


class FallBehind:
    """How far readers are behind the end of the log, by `queue@topic@group`: bytes, or milliseconds."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, clock: Clock) -> None:
        self._store = store
        self._offsets = offsets
        self._clock = clock

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        measure = {"GROUP_GET_FALL_SIZE": self._bytes, "GROUP_GET_FALL_TIME": self._ms}.get(name)
        queue_id, _, rest = key.partition("@")
        topic, _, group = rest.partition("@")
        number = read_number(queue_id)
        offset = None if number is None else self._offsets.pulled(group, topic, number)
        if measure is None or number is None or offset is None:
            return None
        now = StatsItem(measure(topic, number, offset))
        return BrokerStatsData(now, now, now)

    def _bytes(self, topic: str, queue_id: int, offset: int) -> int:
        unit = self._store.unit_at(topic, queue_id, offset)
        return 0 if unit is None else max(0, self._store.log_next_offset - unit.log_offset)

    def _ms(self, topic: str, queue_id: int, offset: int) -> int:
        stored_ms = self._store.store_ms_of(topic, queue_id, offset)
        return 0 if stored_ms < 0 else max(0, self._clock.now_ms() - stored_ms)
