"""Popped messages through stops, kills and power cuts: what is not acknowledged comes, what is does not."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.unit.broker.parts import MakeParts, Parts
from tests.unit.broker.popper import Popped, Popper, bodies, killed, numbers, put, revive_records, save, stop

from rocketline.broker.config import PopConfig
from rocketline.testing.disks import FaultyDisk, MemoryDisk

MERGING = PopConfig(merges_in_memory=True)


def drain(parts: Parts, seconds: float = 70) -> list[bytes]:
    """All that still comes, acknowledged at once."""
    popper, found = Popper(parts), []
    for _ in range(3):
        parts.pass_time(seconds)
        while taken := popper.pop():
            found += bodies(taken)
            popper.ack_all(taken)
    return found


@pytest.mark.parametrize("config", [PopConfig(), MERGING])
async def test_a_stop_forgets_nothing(make_parts: MakeParts, config: PopConfig) -> None:
    before = make_parts(pop=config)
    put(before, *numbers(6))
    popper = Popper(before)
    taken = popper.pop(4, invisible_ms=20_000)
    popper.ack_all(taken[:2])
    stop(before)
    parts = make_parts(pop=config, disk=before.disk, clock=before.clock)
    assert len(parts.pops.checkpoints) == 0, "what was in memory was written"
    popper = Popper(parts)
    assert bodies(popper.pop(invisible_ms=20_000)) == [b"4", b"5"], "nothing comes before its time"
    popper.ack(taken[2])
    assert sorted(drain(parts)) == [b"3", b"4", b"5"]


async def test_a_kill_repeats_nothing_that_was_acknowledged(make_parts: MakeParts) -> None:
    disk = MemoryDisk()
    before = make_parts(disk=FaultyDisk(disk))
    put(before, *numbers(20))
    popper = Popper(before)
    saved = popper.pop(5, invisible_ms=20_000)
    before.store.flush_now()
    save(before)
    unsaved = popper.pop(5, invisible_ms=20_000)
    popper.ack_all(saved[:4])
    popper.ack_all(unsaved[1:])
    parts = make_parts(disk=FaultyDisk(killed(before, disk)), clock=before.clock)
    assert parts.offsets.get("readers", "orders", 0) == 10, "the log knows what was popped"
    assert sorted(drain(parts), key=int) == sorted([saved[4].body, unsaved[0].body, *numbers(10, 10)], key=int)


async def test_a_kill_before_the_first_save_repeats_nothing_that_was_acknowledged(make_parts: MakeParts) -> None:
    disk = MemoryDisk()
    before = make_parts(disk=FaultyDisk(disk))
    put(before, *numbers(4))
    popper = Popper(before)
    popper.ack_all(popper.pop(3))
    parts = make_parts(disk=FaultyDisk(killed(before, disk)), clock=before.clock)
    assert drain(parts) == [b"3"]


async def test_a_kill_in_the_middle_of_redeliveries_loses_none(make_parts: MakeParts) -> None:
    disk = MemoryDisk()
    before = make_parts(disk=FaultyDisk(disk))
    put(before, *numbers(3))
    popper = Popper(before)
    popper.pop(invisible_ms=1000)
    before.pass_time(6)
    [one, *_] = again = popper.pop(invisible_ms=5000)
    popper.ack(one)
    assert len(again) == 3
    parts = make_parts(disk=FaultyDisk(killed(before, disk)), clock=before.clock)
    assert set(drain(parts)) >= {b"1", b"2"}


async def test_what_was_only_in_memory_is_popped_again_after_a_kill(make_parts: MakeParts) -> None:
    disk = MemoryDisk()
    before = make_parts(disk=FaultyDisk(disk), pop=MERGING)
    put(before, *numbers(4))
    popper = Popper(before)
    popper.pop(2, invisible_ms=60_000)
    popper.pop(2, invisible_ms=3000)
    assert len(revive_records(before)) == 1, "the second could not wait in memory"
    parts = make_parts(disk=FaultyDisk(killed(before, disk)), clock=before.clock, pop=MERGING)
    assert parts.offsets.get("readers", "orders", 0) is None, "the log does not know of the first two"
    assert set(drain(parts)) == set(numbers(4))


async def test_offsets_are_saved_only_behind_their_check_points(make_parts: MakeParts) -> None:
    parts = make_parts()
    put(parts, *numbers(4))
    parts.store.flush_now()
    save(parts)
    parts.disk.gate.clear()  # type: ignore[attr-defined]
    Popper(parts).pop(2)
    assert parts.offsets.take_changes() is None
    parts.disk.gate.set()  # type: ignore[attr-defined]
    parts.store.flush_now()
    assert parts.offsets.take_changes() is not None


class World:
    """A broker, a consumer, and a notebook of what was sent and acknowledged."""

    def __init__(self, make_parts: MakeParts, seed: int, config: PopConfig) -> None:
        self._make_parts, self._config = make_parts, config
        self._random = Random(seed)
        self._disk = MemoryDisk()
        self.parts: Parts = make_parts(disk=FaultyDisk(self._disk), pop=config)
        self.parts.put_topic("orders", 2)
        self._number = 0
        self.held: list[Popped] = []
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.seen: Counter[bytes] = Counter()
        self.repeated: set[bytes] = set()
        """Delivered after they were acknowledged."""

    def step(self) -> None:
        choice = self._random.random()
        if choice < 0.3:
            for _ in range(self._random.randrange(1, 5)):
                body = b"%d" % self._number
                self._number += 1
                put(self.parts, body, queue_id=self._random.randrange(2))
                self.sent.add(body)
        elif choice < 0.55:
            self.take(
                Popper(self.parts).pop(self._random.randrange(1, 6), invisible_ms=self._random.choice((2000, 9000)))
            )
        elif choice < 0.75:
            self.ack()
        elif choice < 0.8 and self.in_time():
            one = self.held.pop(self._random.randrange(len(self.held)))
            self.held.append(Popper(self.parts).change(one, self._random.choice((0, 3000, 12_000))))
        elif choice < 0.9:
            self.parts.pass_time(self._random.randrange(1, 6))
        elif choice < 0.95:
            save(self.parts)
        else:
            self.parts.store.flush_now()

    def take(self, taken: list[Popped]) -> None:
        for one in taken:
            self.seen[one.body] += 1
            if one.body in self.acked:
                self.repeated.add(one.body)
        self.held += taken

    def in_time(self) -> list[Popped]:
        """What is held and still hidden from others; the rest is dropped."""
        now_ms = self.parts.clock.now_ms()
        self.held = [one for one in self.held if one.handle.next_visible_ms > now_ms]
        return self.held

    def ack(self) -> None:
        """Some of what is held, in time."""
        self._random.shuffle(self.held)
        for _ in range(self._random.randrange(0, 4)):
            if self.in_time():
                one = self.held.pop()
                Popper(self.parts).ack(one)
                self.acked.add(one.body)

    def kill(self) -> None:
        self._start(killed(self.parts, self._disk))

    def cut(self) -> None:
        """The power goes: what was not flushed may be lost, messages and acknowledgements too."""
        self._start(self._disk.crash(self._random.randrange(1 << 30)))
        self.held.clear()

    def _start(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.parts = self._make_parts(disk=FaultyDisk(disk), clock=self.parts.clock, pop=self._config)

    def stored(self) -> set[bytes]:
        return {
            message.body
            for queue_id in range(2)
            for offset in range(0, self.parts.store.max_offset("orders", queue_id), 32)
            for message in self.parts.messages("orders", queue_id, offset)
        }


@pytest.mark.parametrize("seed", range(12))
async def test_killed_again_and_again_nothing_is_lost_and_nothing_acknowledged_comes_back(
    make_parts: MakeParts, seed: int
) -> None:
    world = World(make_parts, seed, PopConfig())
    for _ in range(3):
        for _ in range(40):
            world.step()
        world.kill()
    world.seen.update(drain(world.parts))
    assert world.sent - world.seen.keys() == set()
    assert world.repeated == set()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("config", [PopConfig(), MERGING], ids=["log", "memory"])
async def test_through_power_cuts_whatever_the_log_kept_is_delivered(
    make_parts: MakeParts, seed: int, config: PopConfig
) -> None:
    world = World(make_parts, seed, config)
    for _ in range(3):
        for _ in range(40):
            world.step()
        world.cut()
    kept = world.stored()
    world.seen.update(drain(world.parts))
    assert kept - world.seen.keys() == set()
