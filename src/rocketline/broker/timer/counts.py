"""Numbers of timer messages by topic: those that wait, for tools and stored in config/timermetrics; those that came and went
since the start, for metrics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rocketline.broker.tables.json_table import JsonTable
from rocketline.clock import Clock
from rocketline.metrics.families import Tally
from rocketline.protocol.bodies import DataVersion, TimerCount, TimerCounts, encode_body
from rocketline.store.files.disk import Disk

DELAY_BOUNDS_S = (60, 600, 3600, 12 * 3600, 24 * 3600, 72 * 3600)


class TimerTraffic:
    """Messages put on the wheel and delivered from it, by topic, and how long they were to wait."""

    def __init__(self) -> None:
        self.put: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.delays: dict[str, Tally] = {}

    def entered(self, topic: str, delay_ms: int) -> None:
        self.put[topic] += 1
        tally = self.delays.get(topic)
        if tally is None:
            tally = self.delays[topic] = Tally(DELAY_BOUNDS_S)
        tally.note(max(0, delay_ms) // 1000)

    def forget(self, gone: list[str]) -> None:
        for topic in gone:
            self.put.pop(topic, None)
            self.delivered.pop(topic, None)
            self.delays.pop(topic, None)


class TimerTopicCounts:
    """Waiting timer messages by topic."""

    def __init__(self, disk: Disk, path: Path, clock: Clock) -> None:
        self._file: JsonTable[TimerCounts] = JsonTable(disk, path, TimerCounts)
        self._clock = clock
        self._table = TimerCounts()

    def load(self) -> None:
        self._table = self._file.load() or TimerCounts()

    def add(self, topic: str, change: int) -> None:
        now_ms, table = self._clock.now_ms(), self._table
        entry = table.timing_count.get(topic)
        if entry is None:
            entry = table.timing_count[topic] = TimerCount()
        entry.count += change
        entry.time_stamp = now_ms
        version = table.data_version
        table.data_version = DataVersion(version.counter + 1, version.state_version, now_ms)

    def of(self, topic: str) -> int:
        entry = self._table.timing_count.get(topic)
        return entry.count if entry is not None else 0

    def by_topic(self) -> dict[str, int]:
        return {topic: entry.count for topic, entry in self._table.timing_count.items()}

    @property
    def total(self) -> int:
        return sum(entry.count for entry in self._table.timing_count.values())

    def encode(self) -> bytes:
        """One line without spaces, as RocketMQ writes this file and answers with it."""
        return encode_body(self._table)

    def write(self, data: bytes) -> None:
        """Blocking; any thread."""
        self._file.write(data)
