"""Members of a group that consumes in order come, go, fail, hang and die in virtual time.

Whatever happens, a queue has one call at a time and no message comes before those in front of it are done. When members
only come and go, every message is consumed exactly once.
"""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.virtual import VirtualLoop
from tests.unit.client.ordered_group import OrderedGroup

seeds = st.integers(0, 1 << 32)


async def members_come_and_go(chance: Random) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    group = OrderedGroup(loop, chance, chance.randint(1, 5))
    group.call_s = chance.choice([(0.0, 0.2), (0.0, 3.0)])
    await group.join()
    for _ in range(chance.randint(5, 15)):
        for _ in range(chance.randint(0, 12)):
            group.send(chance.randrange(group.queue_count))
        await asyncio.sleep(chance.choice([0.0, 0.3, 2.0, 25.0]))
        if len(group.members) > 1 and chance.random() < 0.5:
            await group.leave(chance.choice(sorted(group.members)))
        elif len(group.members) < 4:
            await group.join()
    await group.until_done()
    await group.close()
    assert not group.judge.objections, group.judge.objections
    assert set(group.judge.consumed.values()) <= {1}


async def anything_happens(chance: Random) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    group = OrderedGroup(loop, chance, chance.randint(1, 5))
    group.call_s, group.failures = chance.choice([(0.0, 0.2), (0.0, 3.0)]), 0.1
    await group.join()
    await group.join()
    for _ in range(chance.randint(5, 15)):
        for _ in range(chance.randint(0, 12)):
            group.send(chance.randrange(group.queue_count))
        await asyncio.sleep(chance.choice([0.0, 0.3, 2.0, 25.0, 70.0]))
        name = chance.choice(sorted(group.members))
        event = chance.choice(["join", "leave", "kill", "hold back", "let through"])
        if event == "join" and len(group.members) < 4:
            await group.join()
        elif event in ("leave", "kill") and len(group.members) > 1:
            loop.let_through(name)
            await (group.leave(name) if event == "leave" else group.kill(name))
        elif event == "hold back":
            loop.hold_back(name)
        else:
            loop.let_through(name)
        if not group.members:
            await group.join()
    for name in group.members:
        loop.let_through(name)
    group.failures = 0.0
    await group.until_done()
    await group.close()
    assert not group.judge.objections, group.judge.objections


@settings(max_examples=15)
@given(seeds)
def test_members_that_come_and_go_consume_everything_once_and_in_order(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(members_come_and_go(Random(seed)))


@settings(max_examples=25)
@given(seeds)
def test_order_survives_failures_kills_and_members_cut_off(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(anything_happens(Random(seed)))
