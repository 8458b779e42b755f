"""A rolling deployment in the simulated world: every member leaves and a new one joins, at times of the dice, under traffic.

Nothing is lost, and hardly anything comes twice. Without the wait of a new owner the same world repeats more than that: the
bound can be broken.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.sim.day import BROKERS, NAME_SERVERS, QUEUES, SETTINGS
from tests.sim.ledger import GroupLedger, OrderJudge, Sends
from tests.sim.members import GroupPlan, Member, Sender
from tests.sim.operator import Operator

from rocketline.client.consumer.group.hand_over import FormerOwner
from rocketline.message import MessageQueue
from rocketline.testing.sim import SimWorld, run_world

MEMBERS, CHANGES = 3, 4
SENDERS, SEND_EVERY_S = 2, 0.3
MOST_AGAIN = 0.005
Pause = tuple[float, float]
AFTER_HAND_OVER: Pause = (5, 15)
DURING_HAND_OVER: Pause = (0, 1)
PLAN = GroupPlan("bill", most=MEMBERS)


async def deploy(world: SimWorld, folder: Path, plan: GroupPlan, pause_s: Pause) -> tuple[Sends, GroupLedger]:
    """Members are replaced one after the other, each some time after its predecessor has left."""
    chance, sends, ledger, judge = Random(world.seed), Sends(), GroupLedger("bill"), OrderJudge()
    operator = Operator(world, sends, QUEUES)
    for host in NAME_SERVERS:
        await world.start_name_server(host)
    for host in BROKERS:
        await world.start_broker(host, SETTINGS)
        await operator.create_topic(host)

    async def join(number: int) -> Member:
        member = Member(world, plan, f"bill-{number}", ledger, judge if plan.ordered else None, folder)
        await member.start()
        return member

    members = [await join(number) for number in range(MEMBERS)]
    senders = [
        Sender(world, f"shop-{number}", sends, SEND_EVERY_S, Random(chance.random())) for number in range(SENDERS)
    ]
    sending = [asyncio.create_task(sender.run()) for sender in senders]
    for number in range(CHANGES):
        await asyncio.sleep(chance.uniform(5, 15))
        await members.pop(0).leave()
        await asyncio.sleep(chance.uniform(*pause_s))
        members.append(await join(MEMBERS + number))
    for sender in senders:
        sender.stopping = True
    await asyncio.gather(*sending)
    async with asyncio.timeout(600):
        while ledger.missing(sends):
            await asyncio.sleep(1)
    for member in members:
        await member.leave()
    assert not judge.objections
    return sends, ledger


def share_again(folder: Path, plan: GroupPlan, seed: int = 11, pause_s: Pause = AFTER_HAND_OVER) -> float:
    sends, ledger = run_world(lambda world: deploy(world, folder, plan, pause_s), seed)
    assert not ledger.objections
    assert len(sends.acked) > 100
    return ledger.again / len(sends.acked)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan", [PLAN, replace(PLAN, ordered=True), replace(PLAN, by_brokers=True)], ids=["usual", "ordered", "by brokers"]
)
def test_hardly_anything_comes_twice(tmp_path: Path, plan: GroupPlan) -> None:
    assert share_again(tmp_path, plan) < MOST_AGAIN


@pytest.mark.slow
def test_a_join_during_a_hand_over_repeats_hardly_anything_either(tmp_path: Path) -> None:
    assert share_again(tmp_path, PLAN, 4, DURING_HAND_OVER) < MOST_AGAIN


@pytest.mark.slow
def test_the_wait_of_a_new_owner_is_what_makes_the_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(self: FormerOwner, queue: MessageQueue) -> bool:
        return True

    monkeypatch.setattr(FormerOwner, "let_go", at_once)
    assert share_again(tmp_path, PLAN) > MOST_AGAIN
