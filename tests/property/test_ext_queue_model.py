"""An extended consume queue against a dictionary: any units, files of any size, cut at both ends, stopped and cut off."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rocketline.store.files.segment import MapPool
from rocketline.store.files.segmented_file import SegmentedFile
from rocketline.store.queue.ext_queue import ADDRESS_MIN, END_BYTES, HEAD, ExtQueue, ExtUnit
from rocketline.testing.disks import MemoryDisk

FOLDER = Path("/data/consumequeue_ext/orders/0")
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
UNITS = st.builds(ExtUnit, LONGS, st.integers(1, 1 << 50), st.one_of(st.just(b""), st.binary(max_size=30)))


class ExtQueueModel(RuleBasedStateMachine):
    """`units` holds what was put, by address, oldest first; `flushed` how many of them a power cut cannot take."""

    @initialize(segment_bytes=st.sampled_from([54, 60, 128, 500]))
    def start(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.disk = MemoryDisk()
        self.units: dict[int, ExtUnit] = {}
        self.flushed = 0
        self.last_address = ADDRESS_MIN - 1
        self.queue = self.loaded()

    def loaded(self) -> ExtQueue:
        file = SegmentedFile(self.disk, FOLDER, self.segment_bytes, pool=MapPool(2))
        file.load(after_crash=True)
        return ExtQueue(file)

    def end_behind_newest(self) -> None:
        self.last_address = next(reversed(self.units), ADDRESS_MIN - 1)
        if self.units:
            self.queue.end_after(self.last_address)
        else:
            self.queue.clear()

    @rule(units=st.lists(UNITS, min_size=1, max_size=8))
    def put(self, units: list[ExtUnit]) -> None:
        for unit in units:
            address = self.queue.put(*unit)
            assert address > self.last_address
            self.last_address = address
            self.units[address] = unit

    @rule()
    def flush(self) -> None:
        self.queue.flush()
        self.flushed = len(self.units)

    @rule()
    def restart(self) -> None:
        self.flush()
        self.queue.file.close()
        self.queue = self.loaded()
        self.end_behind_newest()

    @rule(seed=st.one_of(st.none(), st.integers(0, 2**32)))
    def lose_power(self, seed: int | None) -> None:
        self.disk = self.disk.crash(seed)
        self.queue = self.loaded()
        self.units = dict(list(self.units.items())[: self.flushed])
        self.end_behind_newest()

    @precondition(lambda self: self.units)
    @rule(pick=st.integers(0, 10**6))
    def cut_after(self, pick: int) -> None:
        kept = pick % len(self.units) + 1
        self.units = dict(list(self.units.items())[:kept])
        self.flushed = min(self.flushed, kept)
        self.end_behind_newest()

    @precondition(lambda self: self.units)
    @rule(pick=st.integers(0, 10**6))
    def take_before(self, pick: int) -> None:
        dropped = pick % len(self.units)
        self.units = dict(list(self.units.items())[dropped:])
        self.flushed = max(0, self.flushed - dropped)
        for path in self.queue.take_before(next(iter(self.units))):
            self.disk.remove(path)
        first = self.queue.file.first
        assert first is not None
        assert first.next_base > next(iter(self.units)) - ADDRESS_MIN

    @rule()
    def go_on_after_a_plain_unit(self) -> None:
        self.queue.end_after(7)
        assert self.queue.end % self.segment_bytes == 0

    @invariant()
    def everything_is_found(self) -> None:
        for address, unit in self.units.items():
            assert self.queue.get(address) == unit

    @invariant()
    def files_can_be_walked(self) -> None:
        """As Apache's broker does at start: from unit to unit, until a size that is none."""
        found = []
        for segment in self.queue.file:
            view, at = segment.open(), 0
            while (size := int.from_bytes(view[at : at + 2], "big", signed=True)) > 0:
                assert at + size <= self.segment_bytes - END_BYTES
                assert HEAD.unpack_from(view, at)[3] == size - HEAD.size
                found.append(ADDRESS_MIN + segment.base + at)
                at += size
        assert set(self.units) <= set(found)


TestExtQueue = ExtQueueModel.TestCase
