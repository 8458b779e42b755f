"""How many timer messages of each topic wait: for tools, kept in config/timermetrics."""

from __future__ import annotations

from pathlib import Path

from rocketline.broker.saved import SavedTable
from rocketline.clock import Clock
from rocketline.protocol.bodies import DataVersion, TimerCount, TimerCounts, encode_body
from rocketline.store.disk import Disk


class TimerTopicCounts:
    def __init__(self, disk: Disk, path: Path, clock: Clock) -> None:
        self._file: SavedTable[TimerCounts] = SavedTable(disk, path, TimerCounts)
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

    @property
    def total(self) -> int:
        return sum(entry.count for entry in self._table.timing_count.values())

    def encode(self) -> bytes:
        """One line without spaces, as RocketMQ writes this file and answers with it."""
        return encode_body(self._table)

    def write(self, data: bytes) -> None:
        """Blocking; any thread."""
        self._file.write(data)
