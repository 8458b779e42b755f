"""S14: members of a group that hang, stand still or vanish: the others get their messages, and other groups notice nothing.

When depends on what hangs, and is documented (docs/reliability.md):

* a process that is gone: at once, as its connections close
* one that stands still, or whose event loop is blocked: when its heartbeats have been missing for `channelExpiredTimeout`
* one handler that never returns: after the consumer's `consume_timeout_s` that message is handed back; nothing else waits
* a group that pops: whatever hangs, others have its messages some seconds after their invisible time; nothing else waits

The times of this scenario are shortened: see EXPIRY_S and CONSUME_TIMEOUT_S.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from rocketline.cli.demo.ledger import Ledger
from rocketline.cli.servers.cluster import Cluster, plan_cluster

from ..member import HANDLER, LOOP, Member, MemberPlan
from ..outcome import Outcome
from ..plan import SETTINGS
from ..traffic import NeverHappened, Traffic, until

VANISHED, STOPPED, BLOCKED, HANGING = "vanished", "stopped", "blocked", "hanging handler"
POP = "pop, "
VARIANTS = (VANISHED, STOPPED, BLOCKED, HANGING, POP + VANISHED, POP + STOPPED, POP + HANGING)
TOPIC, GROUP = "orders", "members"
MEMBERS = 3
SOME = 60
EXPIRY_S = 3.0
SCAN_S = 0.5
CONSUME_TIMEOUT_S = 2.0
INVISIBLE_S = 3.0
BROKER = {
    **SETTINGS,
    "channelExpiredTimeout": str(round(EXPIRY_S * 1000)),
    "defaultTopicQueueNums": "6",
    "messageDelayLevel": "1s 1s 1s 1s",
}


class GroupUnderTest:
    """The group's processes, and the books of what any of them got."""

    def __init__(self, namesrv: str, traffic: Traffic, folder: Path, invisible_s: float = 0.0) -> None:
        self._namesrv, self._folder, self._invisible_s = namesrv, folder, invisible_s
        self._traffic = traffic
        self._ever: list[Member] = []
        self.members: list[Member] = []

    def join(self, hangs: str = "", hangs_at: int = 0) -> Member:
        timeout_s = CONSUME_TIMEOUT_S if hangs == HANDLER else 900.0
        member = Member(
            MemberPlan(self._namesrv, GROUP, TOPIC, hangs, hangs_at, timeout_s, self._invisible_s),
            self._folder / f"member-{len(self._ever)}.log",
        )
        self._ever.append(member)
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        self.members.remove(member)

    def seen(self) -> Counter[bytes]:
        return Counter(body for member in self._ever for body in list(member.bodies))

    async def has_all(self) -> None:
        """Wait until somebody of the group has consumed everything acknowledged up to now."""
        wanted = acknowledged_bodies(self._traffic.ledger)
        await until(lambda: not wanted - self.seen().keys(), f"{len(wanted)} messages at the group")

    async def shared(self) -> None:
        """Wait until every member gets messages."""
        before = [len(member.bodies) for member in self.members]
        await until(
            lambda: all(len(member.bodies) > count for member, count in zip(self.members, before)),
            "every member has queues",
        )

    def close(self) -> None:
        for member in self._ever:
            member.close()


def acknowledged_bodies(ledger: Ledger) -> set[bytes]:
    return {ledger.body(number) for number in range(ledger.sent) if ledger.place_of(number) is not None}


async def run(folder: Path, seed: int, variant: str = VANISHED, runs: int = 1) -> Outcome:
    outcome = Outcome("S14", variant, seed)
    random = Random(seed)
    invisible_s = INVISIBLE_S if variant.startswith(POP) else 0.0
    for number in range(runs):
        try:
            async with _site(folder / str(number), invisible_s) as (traffic, group):
                await _trouble(outcome, random, variant, traffic, group)
                await _check(outcome, traffic, group)
        except NeverHappened as error:
            outcome.violations.append(f"S14 {variant}: {error}")
        outcome.runs += 1
        if not outcome.violations:
            shutil.rmtree(folder / str(number), ignore_errors=True)
    return outcome


@asynccontextmanager
async def _site(folder: Path, invisible_s: float) -> AsyncIterator[tuple[Traffic, GroupUnderTest]]:
    """A cluster in this process, with a topic that is being written, and nobody in the group yet."""
    plan = plan_cluster(folder / "store", BROKER)
    plan = replace(plan, brokers=tuple(replace(each, client_scan_ms=round(SCAN_S * 1000)) for each in plan.brokers))
    async with AsyncExitStack() as undo:
        cluster = await undo.enter_async_context(Cluster(plan))
        traffic = await undo.enter_async_context(Traffic(cluster.namesrv, TOPIC))
        group = GroupUnderTest(cluster.namesrv, traffic, folder, invisible_s)
        undo.push_async_callback(asyncio.to_thread, group.close)
        yield traffic, group


async def _trouble(outcome: Outcome, random: Random, variant: str, traffic: Traffic, group: GroupUnderTest) -> None:
    pops, trouble = variant.startswith(POP), variant.removeprefix(POP)
    hangs = {BLOCKED: LOOP, HANGING: HANDLER}.get(trouble, "")
    victim = group.join(hangs, random.randrange(1, SOME))
    for _ in range(MEMBERS - 1):
        group.join()
    if hangs:
        await until(victim.hangs.is_set, "a member that hangs")
    else:
        await group.shared()
        await asyncio.sleep(random.uniform(0, 1))
        await asyncio.to_thread(victim.kill if trouble == VANISHED else victim.pause)
    started = asyncio.get_running_loop().time()
    await traffic.flow(SOME)
    await group.has_all()
    outcome.note("seconds to take over", asyncio.get_running_loop().time() - started)
    if trouble == HANGING and not pops:
        await group.shared()  # it has its queues still, and goes on with all but one message
        return
    group.leave(victim)
    if trouble == STOPPED:
        await _wake_up(victim, traffic, group)


async def _wake_up(member: Member, traffic: Traffic, group: GroupUnderTest) -> None:
    """Thrown out while it stood still, it joins again, and the queues are shared out once more."""
    member.resume()
    group.members.append(member)
    await group.shared()
    await traffic.flow(SOME)
    await group.has_all()


async def _check(outcome: Outcome, traffic: Traffic, group: GroupUnderTest) -> None:
    """Everything came to the group; to the other group, that only shares the broker, everything came once."""
    await traffic.settle(outcome)
    await group.has_all()
    others = traffic.ledger.duplicates
    seen = group.seen()
    invented = [body for body in seen if traffic.ledger.number_of(body) is None]
    outcome.require(not invented, f"S14: the group got {len(invented)} messages that nobody sent")
    outcome.require(others == 0, f"S14: another group got {others} messages twice")
    outcome.require(not traffic.failures, f"S14: sends failed: {traffic.failures[:3]}")
    outcome.duplicates += sum(seen.values()) - len(seen)
