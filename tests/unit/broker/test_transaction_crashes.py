"""Transactions through random power cuts: what the log kept comes to its true end, once, and only commits are seen.

Time is virtual, and the disk keeps what was flushed and a random part of the rest. A message that the cut took from the log
is gone, as ASYNC_FLUSH says; of one that is there, no note, offset or second copy may be missing that it depends on.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.unit.broker.parts import MakeParts, Parts
from tests.unit.broker.transacting import COMMIT, HALF, ROLLBACK, Half, Payer, check_after

from rocketline.testing.disks import FaultyDisk, MemoryDisk

LIVES = 4
STEPS = 60


class World:
    """A broker, a producer that knows how everything ends, and what it sent."""

    def __init__(self, make_parts: MakeParts, seed: int) -> None:
        self._make_parts = make_parts
        self._random = Random(seed)
        self._disk = MemoryDisk()
        self._number = 0
        self.truth: dict[str, int] = {}
        self.places: dict[str, list[Half]] = {}
        self.parts: Parts = make_parts(disk=FaultyDisk(self._disk))
        self.payer = Payer(self.parts)

    def send(self) -> None:
        unique = f"U{self._number}"
        self._number += 1
        self.truth[unique] = self._random.choice((COMMIT, COMMIT, ROLLBACK))
        own_time = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "45"} if self._random.random() < 0.2 else {}
        self.places[unique] = [self.payer.half(unique, unique.encode(), **own_time)]

    def end(self) -> None:
        """Of some transaction, by some place it has or had."""
        if self.places:
            unique = self._random.choice(sorted(self.places))
            place = self._random.choice(self.places[unique])
            self.payer.tell(place, self.truth[unique], from_check=self._random.random() < 0.5)

    async def check(self, answered: float) -> None:
        await check_after(self.parts, 30)
        for question in self.payer.questions():
            unique = question.half.unique
            self.places.setdefault(unique, []).append(question.half)
            if self._random.random() < answered:
                self.payer.tell(question.half, self.truth[unique], from_check=True)

    def save(self) -> None:
        self.parts.checker.publish()
        if (data := self.parts.offsets.take_changes()) is not None:
            self.parts.offsets.write(data)

    async def step(self) -> None:
        choice = self._random.random()
        if choice < 0.4:
            self.send()
        elif choice < 0.6:
            self.end()
        elif choice < 0.75:
            await self.check(answered=0.5)
        elif choice < 0.85:
            self.parts.half_messages.ops.write()
            self.parts.dispatch()
        elif choice < 0.93:
            self.save()
        else:
            self.parts.store.flush_now()

    def cut(self) -> None:
        """The power goes and comes back."""
        self._disk = self._disk.crash(self._random.randrange(1 << 30))
        self.parts = self._make_parts(disk=FaultyDisk(self._disk), clock=self.parts.clock)
        self.payer = Payer(self.parts)
        self.places.clear()

    def seen(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for queue_offset in range(self.parts.store.max_offset("orders", 0)):
            [message, *_] = self.parts.messages("orders", 0, queue_offset)
            found[message.body.decode()] += 1
        return found

    def kept(self) -> set[str]:
        """The transactions whose half message the log still has."""
        uniques = set()
        for queue_offset in range(self.parts.store.max_offset(HALF, 0)):
            [message, *_] = self.parts.messages(HALF, 0, queue_offset)
            uniques.add(message.message_id)
        return uniques


@pytest.mark.parametrize("seed", range(25))
async def test_every_transaction_the_log_kept_ends_once_and_truly(make_parts: MakeParts, seed: int) -> None:
    world = World(make_parts, seed)
    for life in range(LIVES):
        for _ in range(STEPS):
            await world.step()
        if life < LIVES - 1:
            world.cut()
    for _ in range(4):
        await world.check(answered=1.0)
    seen = world.seen()
    committed = {unique for unique in world.kept() if world.truth[unique] == COMMIT}
    assert committed - seen.keys() == set()
    assert {unique for unique in seen if world.truth[unique] != COMMIT} == set()
    assert {unique: times for unique, times in seen.items() if times > 1} == {}
    assert world.parts.half_messages.counts.given_up == 0
