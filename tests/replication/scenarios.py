"""Faults of a group, each with its healing: F0 to F14, F16. Each runs under load; the verdict follows."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.outcome import Outcome
from tests.crash.plan import ASYNC, Troubles
from tests.replication import errands
from tests.replication.errands import Errands
from tests.replication.group import Peer, ReplicatedGroup
from tests.replication.load import QUEUES, REPEATS_S, GroupLedger, GroupLoad, Progress
from tests.replication.planted import JUMPING_CLOCKS
from tests.replication.verdict import Judge, epochs_of
from tests.support.patience import PATIENCE_S

from rocketline.coordination.config import CoordinationConfig

FLUSHED_S = 2.0
"""What was written so long ago is on the disk, if answers do not wait for that."""
NEXT_MASTER_S = 10.0
"""R7: the time from a fault to the next master's first acknowledgement, and to its route. Held in soak runs only."""
WHOLE_S = 30.0
"""R8: the time until all are in sync again without help, there."""
AT_ONCE_S = 0.005
SETTLED_ACKS = 30
"""Acknowledgements before a fault, so that there is something to lose."""


@dataclass
class Round:
    """One fault on a group under load."""

    group: ReplicatedGroup
    load: GroupLoad
    chance: Random
    outcome: Outcome
    next_master_s: float = PATIENCE_S
    is_long: bool = False
    """A soak run: what lasts may last long."""

    def pause_s(self, *usual: float, rarely: float) -> float:
        """One of the usual times; in one of five soak runs a longer one, up to `rarely`."""
        if self.is_long and self.chance.random() < 0.2:
            return self.chance.uniform(max(usual), rarely)
        return self.chance.choice(usual)

    async def next_master_after(self, former_epoch: int, since: float, what: str) -> None:
        """Wait until a new master acknowledges; note how long that took."""
        await self.group.until(lambda record: record.epoch > former_epoch, "an election")
        elected = time.monotonic()
        first = await self.load.acknowledged_after(max(since, elected - 0.1))
        self.outcome.note(f"s to first 0 after {what}", first - since)
        master = await self.group.master()
        async with asyncio.timeout(PATIENCE_S):
            while await self.group.routed_to(QUEUES[0][0]) != master.address:
                await asyncio.sleep(0.02)
        routed_s = time.monotonic() - since
        self.outcome.note(f"s to route after {what}", routed_s)
        slowest = max(first - since, routed_s)
        self.outcome.require(
            slowest <= self.next_master_s,
            f"R7: the next master came {slowest:.1f} s after {what}, not within {self.next_master_s:g} s",
        )


async def f1_master_killed(run: Round) -> None:
    """At any moment of load, or within 50 ms of a change of those in sync, of a new log file, or of an epoch's entry."""
    moment = run.chance.choice(["any", "any", "any", "in sync", "file", "epoch"])
    if moment == "epoch":
        await _killed_at_epoch_entry(run)
    elif moment == "in sync":
        starting = await _change_in_sync(run)
        await _master_killed(run)
        await starting
    elif moment == "file":
        await _next_file(run, await run.group.master())
        await _master_killed(run)
    else:
        await asyncio.sleep(run.chance.uniform(0, 0.3))
        await _master_killed(run)


async def _master_killed(run: Round) -> None:
    group, master = run.group, await run.group.master()
    epoch = (await group.record()).epoch
    killed = time.monotonic()
    master.kill()
    await run.next_master_after(epoch, killed, "kill")
    await asyncio.sleep(run.chance.choice([0.0, 0.5, 2.0]))
    await master.start()


async def _change_in_sync(run: Round) -> asyncio.Future[None]:
    """Return when the record has just got another set, with a member in it that can lead; the result is the start of the one
    that was killed for it."""
    group = run.group
    replica = run.chance.choice(await group.others())
    replica.kill()
    await group.until(lambda record: len(record.in_sync) < len(group.peers), "a smaller set in sync", AT_ONCE_S)
    starting = asyncio.ensure_future(replica.start())
    if len(group.peers) == 2 or run.chance.random() < 0.5:
        await group.until(lambda record: len(record.in_sync) == len(group.peers), "all in sync", AT_ONCE_S)
    await asyncio.sleep(run.chance.uniform(0, 0.04))
    return starting


async def _next_file(run: Round, master: Peer) -> None:
    size = int(master.settings["mappedFileSizeCommitLog"])
    first = (await master.child.stats())["log_next_offset"] // size
    async with asyncio.timeout(PATIENCE_S):
        while (await master.child.stats())["log_next_offset"] // size == first:
            await asyncio.sleep(AT_ONCE_S)
    await asyncio.sleep(run.chance.uniform(0, 0.04))


async def _killed_at_epoch_entry(run: Round) -> None:
    """The next master dies as well, when it has just written down that its epoch begins."""
    group, master = run.group, await run.group.master()
    epoch, others = (await group.record()).epoch, await group.others()
    master.kill()
    async with asyncio.timeout(PATIENCE_S):
        while not (led := [peer for peer in others if any(number > epoch for number, _ in epochs_of(peer.folder))]):
            await asyncio.sleep(AT_ONCE_S)
    await asyncio.sleep(run.chance.uniform(0, 0.05))
    led[0].kill()
    for peer in run.chance.sample([master, led[0]], 2):
        await peer.start()
    await run.group.until(lambda record: record.epoch > epoch + 1, "another election")
    await run.load.acknowledged_after(time.monotonic())


async def f2_replica_killed(run: Round) -> None:
    replica = run.chance.choice(await run.group.others())
    killed = time.monotonic()
    replica.kill()
    await run.group.until(lambda record: len(record.in_sync) < len(run.group.peers), "a smaller set in sync")
    run.outcome.note("s to first 0 without replica", await run.load.acknowledged_after(time.monotonic()) - killed)
    await asyncio.sleep(run.pause_s(0.1, 1.0, 3.0, rarely=30.0))
    await replica.start()


async def f3_master_stopped(run: Round) -> None:
    group, master = run.group, await run.group.master()
    epoch = (await group.record()).epoch
    stopped = time.monotonic()
    master.pause()
    try:
        if run.chance.random() < 0.8:
            await run.next_master_after(epoch, stopped, "stop")
            await asyncio.sleep(run.pause_s(0.0, 1.0, 3.0, rarely=40.0))
        else:
            await asyncio.sleep(run.chance.uniform(0.5, group.lease_s))
    finally:
        master.resume()
    # Time for the old one to answer what waited in its sockets, if it is going to.
    await asyncio.sleep(1.0)


async def f4_master_cut_off_from_etcd(run: Round) -> None:
    group, master = run.group, await run.group.master()
    epoch = (await group.record()).epoch
    cut = time.monotonic()
    group.cut_off_from_etcd(master)
    await run.next_master_after(epoch, cut, "cut from etcd")
    await asyncio.sleep(run.pause_s(1.0, 3.0, 5.0, rarely=60.0))
    group.heal()


async def f5_replication_link(run: Round) -> None:
    """A replica gets nothing, or its word does not reach the master, or both; all of them reach etcd."""
    group, master = run.group, await run.group.master()
    way = run.chance.choice(["up", "down", "both"])
    replica = await _id_of(group, run.chance.choice(await group.others()))
    began = time.monotonic()
    master.followers.hold(up=way != "down", down=way != "up", only=frozenset({replica}))
    await group.until(lambda record: len(record.in_sync) < len(group.peers), "a smaller set in sync")
    run.outcome.note(f"s to first 0, {way} held", await run.load.acknowledged_after(time.monotonic()) - began)
    await asyncio.sleep(run.chance.uniform(0, 2))
    group.heal()


async def f6_master_alone(run: Round) -> None:
    """The master reaches neither etcd nor the others; its clients reach it. Of three members one may be with it: then the
    third one leads, and takes nothing, because nobody is in sync with it."""
    group, others = run.group, await run.group.others()
    apart = run.chance.sample(others, 1) if len(others) > 1 and run.chance.random() < 0.5 else others
    inside = [peer for peer in group.peers if peer not in apart]
    epoch = (await group.record()).epoch
    ids = {peer.number: await _id_of(group, peer) for peer in group.peers}
    cut = time.monotonic()
    for peer in inside:
        group.cut_off_from_etcd(peer)
    for peer in group.peers:
        across = apart if peer in inside else inside
        peer.followers.hold(only=frozenset(ids[other.number] for other in across))
    if apart == others:
        await run.next_master_after(epoch, cut, "partition")
    else:
        await group.until(lambda record: record.epoch > epoch, "an election")
    await asyncio.sleep(run.chance.choice([1.0, 3.0]))
    group.heal()


async def _id_of(group: ReplicatedGroup, peer: Peer) -> int:
    """Its number; the last one, if its folder was emptied before."""
    record = await group.record()
    return max(member.id for member in record.members.values() if member.address == peer.address)


async def f7_epochs_without_a_write(run: Round) -> None:
    """A master writes what nobody gets and dies; the next one is elected at the very offset where its epoch began.

    Nothing that the first one wrote may come back, or stay in its log beside what the next one acknowledged."""
    group, load = run.group, run.load
    load.pause()
    await asyncio.sleep(1.0)
    for _ in range(run.chance.choice([1, 1, 5]) if run.is_long else 1):
        first = await _leave(run, await group.master())
        await first.start()
        await group.all_in_sync()
    # The replica has heard of the epoch, and has nothing of it. From here on only the master has what is sent.
    await asyncio.sleep(1.5)
    second = await group.master()
    second.followers.hold(up=False, down=True)
    load.resume()
    await asyncio.sleep(run.chance.uniform(0.3, 0.6))
    load.pause()
    await _leave(run, second)
    group.heal()
    if len(group.peers) > 2 and run.chance.random() < 0.5:
        # Once more without a write.
        await group.until(lambda record: len(record.in_sync) > 1, "another one in sync")
        third = await _leave(run, await group.master())
        await third.start()
    began = time.monotonic()
    load.resume()
    await load.acknowledged_after(began, 5)
    await second.start()


async def _leave(run: Round, master: Peer) -> Peer:
    """Kill a master and wait for the next one."""
    epoch = (await run.group.record()).epoch
    master.kill()
    await run.group.until(lambda record: record.epoch > epoch and record.master != 0, "an election")
    await run.group.master()
    return master


async def f8_power_cut(run: Round) -> None:
    """One of them loses power, or all: what stays is what was flushed. If answers wait for flushes, all lose it at one
    moment; otherwise one after the other, so that each message is on some disk. Nothing is sent after the first then: the
    last one would answer alone, and nobody promises what only it had not flushed."""
    group, master = run.group, await run.group.master()
    epoch = (await group.record()).epoch
    which = run.chance.choice(["all", "all", "master", "replica"])
    peers = {"all": group.peers, "master": [master], "replica": [run.chance.choice(await group.others())]}[which]
    if which == "all" and group.is_flushed_at_once and run.chance.random() < 0.5:
        # One of them is always behind with its disk.
        await run.chance.choice(await group.others()).child.slow_down()
        await asyncio.sleep(0.5)
    await asyncio.sleep(run.chance.uniform(0, 0.3))
    for number, peer in enumerate(run.chance.sample(peers, len(peers))):
        if number and not group.is_flushed_at_once:
            run.load.pause()
            await asyncio.sleep(FLUSHED_S)
        peer.kill()
    cut_at = time.monotonic()
    for peer in peers:
        await asyncio.to_thread(peer.lose_power, run.chance.getrandbits(32))
    if which == "master":
        await run.next_master_after(epoch, cut_at, "power cut of master")
    for peer in run.chance.sample(peers, len(peers)):
        await peer.start()
        await asyncio.sleep(run.chance.choice([0.0, 0.5, group.lease_s + 1.0]))
    run.load.resume()
    if which == "all":
        run.outcome.note("s to first 0 after power cut of all", await run.load.acknowledged_after(cut_at) - cut_at)


async def f10_disk(run: Round) -> None:
    """Each flush of the log of one member takes up to five seconds; or its disk is full; or a flush fails."""
    group, master = run.group, await run.group.master()
    match run.chance.choice(["slow", "slow", "full", "broken"]):
        case "full":
            await _full_disk(run, run.chance.choice(await group.others()))
        case "broken":
            await _broken_disk(run, master)
        case _:
            await _slow_disk(run, run.chance.choice([master, *await group.others()]))


async def _full_disk(run: Round, peer: Peer) -> None:
    """A replica without room leaves the set in sync, and is back in it when there is room again."""
    await peer.child.fill_disk()
    await run.group.until(lambda record: len(record.in_sync) < len(run.group.peers), "a smaller set in sync")
    await run.load.acknowledged_after(time.monotonic(), 5)
    await peer.child.make_room()


async def _broken_disk(run: Round, master: Peer) -> None:
    """A master whose disk lost a write hands over, and is of use again after a restart."""
    epoch = (await run.group.record()).epoch
    broken = time.monotonic()
    await master.child.fail_next_flush()
    await run.next_master_after(epoch, broken, "failed flush")
    master.kill()
    await master.start()


async def _slow_disk(run: Round, peer: Peer) -> None:
    await peer.child.slow_down()
    await asyncio.sleep(run.chance.uniform(2.0, 6.0))
    await peer.child.speed_up()
    # What waits for a flush is answered before all are asked to be in sync.
    await run.load.acknowledged_after(time.monotonic(), 5)


async def f11_clocks(run: Round) -> None:
    """Wall clocks jump by hours and days all the time, and drift; the master is killed, or hangs, as a whole or in its event
    loop, for up to two leases."""
    await run.chance.choice([_master_killed, f3_master_stopped, _master_stalled])(run)


async def _master_stalled(run: Round) -> None:
    """Its event loop stands still; its other threads go on."""
    group, master = run.group, await run.group.master()
    await master.child.stall(run.chance.uniform(0.5, 2 * group.lease_s))
    await run.load.acknowledged_after(time.monotonic())


async def f9_quick_restart(run: Round) -> None:
    """The master is back before its lease ends: it is not the one that was elected. Power may have taken what it had not
    flushed."""
    group, master = run.group, await run.group.master()
    epoch = (await group.record()).epoch
    await asyncio.sleep(run.chance.uniform(0, 0.2))
    master.kill()
    killed = time.monotonic()
    if master.may_lose_power and run.chance.random() < 0.5:
        await asyncio.to_thread(master.lose_power, run.chance.getrandbits(32))
    starting = asyncio.ensure_future(master.start())
    await run.next_master_after(epoch, killed, "restart")
    await starting


async def f12_etcd(run: Round) -> None:
    if len(run.group.etcd.servers) > 2 and run.chance.random() < 0.3:
        await _etcd_slow(run)
    else:
        await (f12_etcd_emptied if run.chance.random() < 0.3 else f12_etcd_gone)(run)


async def _etcd_slow(run: Round) -> None:
    """One of three servers stands still for moments, as if its disk were slow: the leader, or another one."""
    servers = run.group.etcd.servers
    slow = run.group.etcd.leader if run.chance.random() < 0.5 else run.chance.choice(servers)
    began = time.monotonic()
    while time.monotonic() < began + 6.0:
        slow.signal(signal.SIGSTOP)
        await asyncio.sleep(run.chance.uniform(0.1, 0.8))
        slow.signal(signal.SIGCONT)
        await asyncio.sleep(run.chance.uniform(0.01, 0.2))
    await run.load.acknowledged_after(time.monotonic(), 5)


async def f12_etcd_gone(run: Round) -> None:
    """All etcd servers stop for longer than a lease: the master goes on, nobody else leads; then the leader dies."""
    group = run.group
    epoch = (await group.record()).epoch
    for server in group.etcd.servers:
        server.signal(signal.SIGSTOP)
    began = time.monotonic()
    await asyncio.sleep(group.lease_s + 1.0)
    await run.load.acknowledged_after(began + group.lease_s + 0.5)
    for server in group.etcd.servers:
        server.signal(signal.SIGCONT)
    await group.all_in_sync()
    run.outcome.note("elections without etcd", (await group.record()).epoch - epoch)
    if len(group.etcd.servers) > 2:
        leader = group.etcd.leader
        leader.kill()
        await run.load.acknowledged_after(time.monotonic(), 5)
        leader.start()


async def f12_etcd_emptied(run: Round) -> None:
    """etcd comes back with nothing in it: nobody leads anew from there. Then its data is brought back."""
    group = run.group
    before = await group.record()
    for server in group.etcd.servers:
        server.kill()
        server.folder.rename(server.folder.with_suffix(".kept"))
        server.start()
    group.etcd.wait_healthy()
    await asyncio.sleep(2 * group.lease_s)
    found = await group.record()
    run.outcome.require(found.epoch == 0, f"F12: after etcd was emptied there was an election: {found}")
    for server in group.etcd.servers:
        server.kill()
        shutil.rmtree(server.folder)
        server.folder.with_suffix(".kept").rename(server.folder)
        server.start()
    group.etcd.wait_healthy()
    run.outcome.require((await group.record()).epoch >= before.epoch, "F12: the record did not come back")


async def f13_empty_member(run: Round) -> None:
    """A member's folder is gone: it joins anew under load, copies many files and epochs, and is killed meanwhile."""
    group = run.group
    if run.chance.random() < 0.5:
        await f16_master_stopped_cleanly(run)
        await group.all_in_sync()
    replica = run.chance.choice(await group.others())
    replica.kill()
    gone = await _id_of(group, replica)
    await group.until(lambda record: gone not in record.in_sync, "a smaller set in sync")
    shutil.rmtree(replica.folder)
    for _ in range(run.chance.randrange(3)):
        await replica.start()
        await asyncio.sleep(run.chance.uniform(0, 0.5))
        replica.kill()
    await replica.start()


async def f14_in_flight(run: Round) -> None:
    """Delays, timers, transactions, pops and new topics under way at one of F1 to F4."""
    async with Errands(run.group, run.chance.randrange(1 << 20)) as under_way:
        await asyncio.sleep(2.0)
        await run.chance.choice([f1_master_killed, f2_replica_killed, f3_master_stopped, f4_master_cut_off_from_etcd])(
            run
        )
        await run.group.all_in_sync()
        await under_way.finish(run.outcome)


async def f16_master_stopped_cleanly(run: Round) -> None:
    """An upgrade: the master is told to stop, hands over, and comes back."""
    group, master = run.group, await run.group.master()
    epoch = (await group.record()).epoch
    told = time.monotonic()
    stopping = asyncio.ensure_future(master.stop())
    await group.until(lambda record: record.epoch > epoch, "an election")
    await run.load.acknowledged_after(time.monotonic(), 5)
    run.outcome.note("s without a 0 around a clean stop", run.load.longest_pause_since(told))
    await stopping
    await master.start()


async def f0_nothing(run: Round) -> None:
    """The control: whatever is violated here, no fault did it."""
    await asyncio.sleep(run.chance.uniform(3.0, 6.0))


Fault = Callable[[Round], Awaitable[None]]

FAULTS: dict[str, Fault] = {
    "F0": f0_nothing,
    "F1": f1_master_killed,
    "F2": f2_replica_killed,
    "F3": f3_master_stopped,
    "F4": f4_master_cut_off_from_etcd,
    "F5": f5_replication_link,
    "F6": f6_master_alone,
    "F7": f7_epochs_without_a_write,
    "F8": f8_power_cut,
    "F8 ASYNC_FLUSH": f8_power_cut,
    "F9": f9_quick_restart,
    "F10": f10_disk,
    "F11": f11_clocks,
    "F12": f12_etcd,
    "F13": f13_empty_member,
    "F14": f14_in_flight,
    "F16": f16_master_stopped_cleanly,
}

TWO, THREE, USUAL_LEASE = "2 members", "3 members, at least 2", "2 members, lease of 3 s"
VARIANTS: dict[str, tuple[int, dict[str, str], int]] = {
    TWO: (2, {}, 1),
    THREE: (3, {"minInSyncReplicas": "2"}, 3),
    USUAL_LEASE: (2, {"rocketline.leaseMs": str(CoordinationConfig("").lease_ms)}, 1),
}
"""Members, their settings, and etcd servers."""
WITH_USUAL_LEASE = ("F1", "F3")
SOAK_RUNS = {
    "F0": 20,
    "F1": 500,
    "F2": 200,
    "F3": 300,
    "F4": 200,
    "F5": 300,
    "F6": 200,
    "F7": 100,
    "F8": 150,
    "F8 ASYNC_FLUSH": 150,
    "F9": 200,
    "F10": 100,
    "F11": 100,
    "F12": 100,
    "F13": 50,
    "F14": 200,
    "F16": 50,
}
"""How many runs convince, with two members and three together."""
USUAL_LEASE_RUNS = 50
RUNS_PER_ITEM = 5


def variants_of(name: str) -> dict[str, int]:
    """The variants in which a scenario is run, and how many runs of each convince."""
    found = dict.fromkeys((TWO, THREE), SOAK_RUNS[name] // 2)
    return found | ({USUAL_LEASE: USUAL_LEASE_RUNS} if name in WITH_USUAL_LEASE else {})


async def run_round(
    group: ReplicatedGroup,
    name: str,
    ledger: GroupLedger,
    seed: int,
    outcome: Outcome,
    whole_s: float = PATIENCE_S,
    next_master_s: float = PATIENCE_S,
    *,
    is_long: bool = False,
) -> None:
    """A fault under load, until the group is whole; then nobody sends any more."""
    await group.all_in_sync()
    async with GroupLoad(group.addresses, ledger, seed) as load:
        await load.acknowledged_after(time.monotonic(), SETTLED_ACKS)
        await FAULTS[name](Round(group, load, Random(seed), outcome, next_master_s, is_long))
        healed = time.monotonic()
        try:
            async with asyncio.timeout(whole_s):
                await group.all_in_sync()
                outcome.note("s until all in sync", time.monotonic() - healed)
                await load.acknowledged_after(time.monotonic(), 5)
        except TimeoutError:
            outcome.violations.append(f"R8: not all are in sync after {whole_s:g} s: {await group.record()}")
    outcome.runs += 1


SMALL_FILES = {"mappedFileSizeCommitLog": str(256 << 10)}
SLOW = Troubles(sync_delay_ms=(200, 5000), slow_part="/commitlog/", from_start=False)
CONDITIONS: dict[str, dict[str, Any]] = {
    "F1": {"settings": SMALL_FILES},
    "F8": {"may_lose_power": True, "troubles": SLOW},
    "F8 ASYNC_FLUSH": {"may_lose_power": True, "settings": ASYNC},
    "F9": {"may_lose_power": True},
    "F10": {"troubles": SLOW, "settings": SMALL_FILES},
    "F11": {"faults": tuple(JUMPING_CLOCKS)},
    "F13": {"settings": SMALL_FILES},
    "F14": {"settings": errands.SETTINGS},
}
"""What members must have from their start on so that a fault is possible."""


async def run(
    folder: Path,
    seed: int,
    variant: str,
    runs: int = 1,
    *,
    scenario: str,
    faults: tuple[str, ...] = (),
    whole_s: float = WHOLE_S,
    is_long: bool = True,
) -> Outcome:
    """Some runs with the limits of R6, R7 and R8."""
    outcome = Outcome(scenario, variant, seed)
    size, settings, etcd_count = VARIANTS[variant]
    ledger = GroupLedger(progress=Progress(REPEATS_S) if is_long else Progress())
    conditions = CONDITIONS.get(scenario, {}) | ({"faults": faults} if faults else {})
    conditions = conditions | {"settings": settings | conditions.get("settings", {})}
    async with ReplicatedGroup(folder, size, etcd_count=etcd_count, **conditions) as group:
        judge = Judge(group, ledger, outcome)
        for number in range(runs):
            await run_round(
                group, scenario, ledger, seed * 1000 + number, outcome, whole_s, NEXT_MASTER_S, is_long=is_long
            )
            await judge.check()
            if outcome.violations:
                break
    if not outcome.violations:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome
