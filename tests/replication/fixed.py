"""S9 and S10: fixed roles. A SYNC_MASTER whose replica is stopped, slow, killed, back with nothing or with too much, or
there twice; and a master that is gone for good.

What is acknowledged while a replica cannot take anything must be in its log already: its files tell, no clock is asked. In
the end the logs are equal byte for byte.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

from tests.crash.outcome import Outcome
from tests.crash.plan import Troubles
from tests.replication.group import Peer, ReplicatedGroup
from tests.replication.load import GroupChecker, GroupLedger, GroupLoad
from tests.replication.scenarios import SETTLED_ACKS
from tests.replication.verdict import first_difference, log_of, logs_equal
from tests.support.patience import PATIENCE_S

from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import NotifyRoleChangedHeader

NOT_IN_TIME = int(ResponseCode.FLUSH_SLAVE_TIMEOUT)
SLOW_DISK = Troubles(sync_delay_ms=(200, 500), slow_part="/commitlog/", from_start=False)


class FixedGroup(ReplicatedGroup):
    """Member 1 is the master, the others are its replicas; every send waits for all of them."""

    def __init__(self, folder: Path, replicas: int = 1, *, spare: bool = False, faults: tuple[str, ...] = ()) -> None:
        """`spare`: one more place, of which nothing runs yet, for a second replica with the number of member 2."""
        settings = {"inSyncReplicas": str(1 + replicas), "slaveTimeout": "1000", "slaveReadEnable": "true"}
        size = 1 + replicas + spare
        super().__init__(folder, size, settings, etcd_count=0, faults=faults, troubles=SLOW_DISK, may_lose_power=True)
        self.members = self.peers[: 1 + replicas]

    def _start_etcd(self, undo: AsyncExitStack) -> None:
        """Nobody is elected."""

    async def _start_all(self) -> None:
        await self.members[0].start()
        await asyncio.gather(*(peer.start() for peer in self.members[1:]))

    def _role_settings(self, peer: Peer) -> dict[str, str]:
        if peer.number == 1:
            return {"brokerId": "0", "brokerRole": "SYNC_MASTER"}
        number = peer.number - 1 if peer in self.members else 1
        return {"brokerId": str(number), "brokerRole": "SLAVE"}

    async def promote(self, peer: Peer) -> None:
        """An operator's order."""
        header = NotifyRoleChangedHeader(master_address=peer.address)
        answer = await self._remoting.call(
            peer.address, Command(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header.encode()), PATIENCE_S
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark


class Watch:
    """One replica that gets nothing: nothing may be acknowledged that it lacks."""

    def __init__(self, peer: Peer, ledger: GroupLedger, outcome: Outcome) -> None:
        self._peer, self._ledger, self._outcome = peer, ledger, outcome
        self._refused = ledger.codes[NOT_IN_TIME]

    async def until_refused(self) -> None:
        """Until sends were answered with code 12; or with 0, which is found then."""
        async with asyncio.timeout(PATIENCE_S):
            while self._ledger.codes[NOT_IN_TIME] < self._refused + 3 and not self._beyond():
                await asyncio.sleep(0.1)

    def judge(self) -> None:
        beyond = self._beyond()
        self._outcome.require(
            not beyond, f"S9: {len(beyond)} were acknowledged from {beyond[:1]} on, behind the end of the replica's log"
        )

    def _beyond(self) -> list[int]:
        """Where messages were acknowledged that the replica lacks; its files still have what it had."""
        end = len(log_of(self._peer.folder))
        return [ack.log_offset for ack in self._ledger.acks if ack.log_offset >= end]


async def _nothing_while_away(run: Run, *, seconds: float = 0.0) -> None:
    watch = Watch(run.replica, run.ledger, run.outcome)
    await watch.until_refused()
    await asyncio.sleep(seconds)
    watch.judge()


async def paused(run: Run) -> None:
    run.replica.pause()
    try:
        await _nothing_while_away(run, seconds=run.chance.uniform(0, 3))
    finally:
        run.replica.resume()


async def slow(run: Run) -> None:
    """The way there and back takes up to a second each: some answers come, some are too late."""
    link = run.group.peers[0].followers
    link.up.delay_s, link.down.delay_s = run.chance.uniform(0.05, 1.0), run.chance.uniform(0.05, 1.0)
    await asyncio.sleep(run.chance.uniform(2, 5))
    link.up.delay_s = link.down.delay_s = 0.0


async def killed(run: Run) -> None:
    run.replica.kill()
    await _nothing_while_away(run)
    await run.replica.start()


async def empty(run: Run) -> None:
    run.replica.kill()
    await _nothing_while_away(run)
    shutil.rmtree(run.replica.folder)
    shutil.rmtree(f"{run.replica.folder}.shadow", ignore_errors=True)
    await run.replica.start()


async def ahead(run: Run) -> None:
    """The master loses power, and with it what it had sent and not flushed: the replica has what its master never had."""
    master, replica, load = run.group.peers[0], run.replica, run.load
    await master.child.slow_down()
    await asyncio.sleep(run.chance.uniform(0.3, 1.0))
    master.kill()
    await asyncio.to_thread(master.lose_power, run.chance.getrandbits(32))
    is_ahead = len(log_of(replica.folder)) > len(log_of(master.folder))
    run.outcome.note("replica was ahead", float(is_ahead))
    before = len(run.ledger.acks)
    await master.start()
    if is_ahead:
        await Watch(replica, run.ledger, run.outcome).until_refused()
        run.outcome.require(len(run.ledger.acks) == before, "S9: a replica with another log counted")
        replica.kill()
        shutil.rmtree(replica.folder)
        shutil.rmtree(f"{replica.folder}.shadow", ignore_errors=True)
        await replica.start()
    await load.acknowledged_after(time.monotonic())


async def copied(run: Run) -> None:
    """Two processes are the same replica, and another one is stopped: that makes one copy, not two."""
    group = run.group
    twin, other = group.peers[-1], group.members[2]
    run.replica.kill()
    shutil.copytree(run.replica.folder, twin.folder)
    await asyncio.gather(run.replica.start(), twin.start())
    await run.load.acknowledged_after(time.monotonic())
    other.pause()
    try:
        watch = Watch(other, run.ledger, run.outcome)
        await watch.until_refused()
        await asyncio.sleep(2.0)
        watch.judge()
    finally:
        other.resume()
    twin.kill()


async def gone(run: Run) -> None:
    """S10: the master never comes back, and an operator has its replica lead. It has everything acknowledged. What was only
    read may be gone: without elections a master gives messages out before its replica has them, as Apache's does."""
    master, replica = run.group.peers[0], run.replica
    await asyncio.sleep(run.chance.uniform(0, 0.3))
    master.kill()
    run.ledger.seen.clear()
    await run.group.promote(replica)
    await run.load.acknowledged_after(time.monotonic(), 5)


class Run:
    """One group with its load."""

    def __init__(
        self, group: FixedGroup, load: GroupLoad, ledger: GroupLedger, chance: Random, outcome: Outcome
    ) -> None:
        self.group, self.load, self.ledger, self.chance, self.outcome = group, load, ledger, chance, outcome
        self.replica = group.members[1]


AWAY: dict[str, Callable[[Run], Awaitable[None]]] = {
    found.__name__: found for found in (paused, slow, killed, empty, ahead, copied)
}
GONE = "gone for good"


async def run(folder: Path, seed: int, variant: str, runs: int = 1, *, faults: tuple[str, ...] = ()) -> Outcome:
    """S9 in a variant of `AWAY`, or S10."""
    outcome = Outcome("S10" if variant == GONE else "S9", variant, seed)
    for number in range(runs):
        await _one(folder / str(number), seed * 1000 + number, variant, outcome, faults)
        if outcome.violations:
            return outcome
    shutil.rmtree(folder, ignore_errors=True)
    return outcome


async def _one(folder: Path, seed: int, variant: str, outcome: Outcome, faults: tuple[str, ...]) -> None:
    ledger, is_copied = GroupLedger(), variant == copied.__name__
    checker = GroupChecker(ledger)
    async with FixedGroup(folder, 2 if is_copied else 1, spare=is_copied, faults=faults) as group:
        addresses = [peer.address for peer in group.members]
        async with GroupLoad(addresses, ledger, seed) as load:
            await load.acknowledged_after(time.monotonic(), SETTLED_ACKS)
            await AWAY.get(variant, gone)(Run(group, load, ledger, Random(seed), outcome))
            await load.acknowledged_after(time.monotonic(), 5)
        running = [peer for peer in group.members if peer.is_running]
        await logs_equal(running)
        logs = [log_of(peer.folder) for peer in running]
        for peer, log in zip(running, logs):
            at = first_difference(log, logs[0])
            outcome.require(log == logs[0], f"R4: the log of member {peer.number} differs from byte {at} on")
        outcome.violations += await checker.check(running[0].address)
    outcome.runs += 1
    outcome.acked += ledger.ack_count
    outcome.duplicates += checker.duplicates
    outcome.lost += sum("I1" in text for text in outcome.violations)
