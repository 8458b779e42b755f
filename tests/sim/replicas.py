"""`python -m tests.sim.replicas`: hours of a replicated group in virtual time, with faults one after the other.

Three members with the whole broker in each, a name server, producers and consumers with a ledger, and the record of the
group in memory. Members are killed, unplugged, frozen, stopped cleanly, told to hand over, cut off from each other, from the
record or from both, and their clocks are set; requests to the record that were lost are carried out late. In the end
everything acknowledged is there, in equal logs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.faults import Patches
from tests.replication.load import GroupChecker, GroupLedger, GroupLoad
from tests.replication.planted import GROUP_FAULTS, SIMULATED_FAULTS

from rocketline.coordination import GroupRecord
from rocketline.testing.sim import SimWorld, run_world

HOSTS = ("r1", "r2", "r3")
GROUP = "broker-a"
NAME_SERVER = "n1"
SETTLE_S = 300.0
LOG = Path("/data/commitlog")


@dataclass
class Report:
    seed: int
    acked: int = 0
    elections: int = 0
    faults: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {len(self.faults)} faults, {self.elections} elections, {self.acked} acknowledged, "
            f"{len(self.violations)} violations"
        )


class Hours:
    def __init__(self, world: SimWorld, faults: int, size: int) -> None:
        self.world, self.chance = world, world.chance
        self.hosts = HOSTS[:size]
        self.count = faults
        self.report = Report(world.seed)
        self.ledger = GroupLedger()

    @property
    def record(self) -> GroupRecord:
        agreed = self.world.group(GROUP).agreed
        return agreed.record if agreed else GroupRecord()

    @property
    def master(self) -> str:
        """Host of the master, by the record."""
        record = self.record
        address = record.members[record.master].address if record.master else ""
        return next((host for host in self.hosts if self.world.broker_address(host) == address), "")

    async def live(self) -> Report:
        world = self.world
        await world.start_name_server(NAME_SERVER)
        world.group(GROUP).lateness = lambda: self.chance.choice([None, 0.5, 2.0, 6.0])
        settings = {"minInSyncReplicas": "2" if len(self.hosts) > 2 else "1"}
        for host in self.hosts:
            await world.start_replica(host, GROUP, settings)
        await self._whole()
        addresses = [world.broker_address(host) for host in self.hosts]
        await world.inside(world.new_process("clients"), self._under_load(addresses))
        self.report.acked, self.report.elections = self.ledger.ack_count, self.record.epoch
        return self.report

    async def _under_load(self, addresses: list[str]) -> None:
        async with GroupLoad(addresses, self.ledger, self.chance.randrange(1 << 30), producers=3, pause_s=0.6):
            watching = asyncio.ensure_future(self._watch())
            await asyncio.sleep(10)
            for _ in range(self.count):
                await self._trouble()
                await asyncio.sleep(self.chance.choice([0.0, 1.0, 5.0, 20.0]))
            await self._whole()
            await asyncio.sleep(5)
            watching.cancel()
        await asyncio.sleep(10)
        await self._check()

    async def _watch(self) -> None:
        """Two masters never give out messages, locks and offsets at one time."""
        world = self.world
        while True:
            await asyncio.sleep(0.02)
            running = [host for host in world.brokers if world.process_of(host) not in world.loop.frozen]
            roles = {host: world.brokers[host].parts.roles for host in running}
            giving = [host for host, found in roles.items() if found.is_master and found.gives_out]
            if len(giving) > 1:
                self.report.violations.append(f"R3: {giving} both give out at {world.loop.time():.2f}")
                return

    async def _whole(self) -> None:
        limit = self.world.loop.time() + SETTLE_S
        while len(self.record.in_sync) < len(self.hosts) or not self.world.group(GROUP).view().has_master:
            if self.world.loop.time() > limit:
                self.report.violations.append(f"R8: not all are in sync after {SETTLE_S:g} s: {self.record}")
                return
            await asyncio.sleep(0.2)

    async def _trouble(self) -> None:
        world, chance = self.world, self.chance
        host = self.master if self.master and chance.random() < 0.6 else chance.choice(self.hosts)
        pause_s = chance.choice([0.05, 0.5, 2.0, 5.0, 12.0, 40.0])
        kind = chance.choice(["kill", "power", "freeze", "record", "link", "alone", "stop", "clock", "order"])
        self.report.faults.append(f"{world.loop.time():.1f} {kind} {host} {pause_s:g} s")
        match kind:
            case "kill" | "power":
                world.crash(host, power=kind == "power")
                await asyncio.sleep(pause_s)
                await world.start_replica(host, GROUP)
            case "stop":
                await world.stop(host)
                await asyncio.sleep(pause_s)
                await world.start_replica(host, GROUP)
            case "freeze":
                process = world.process_of(host)
                world.loop.freeze(process)
                await asyncio.sleep(pause_s)
                world.loop.thaw(process)
            case "record":
                world.group(GROUP).cut_off.add(host)
                await asyncio.sleep(pause_s)
                world.group(GROUP).cut_off.discard(host)
            case "link" | "alone":
                await self._blocked(host, pause_s, is_alone=kind == "alone")
            case "order":
                await self._hand_over(pause_s)
            case "clock":
                world.clock_of(host).jump(chance.choice([-86_400, -3600, 3600, 86_400]))

    async def _hand_over(self, pause_s: float) -> None:
        """By order; and the master may lose the record before it knows what came of it."""
        world, host = self.world, self.master
        member = world.brokers[host].parts.member if host in world.brokers else None
        if member is None:
            return
        handing = asyncio.ensure_future(world.inside(world.process_of(host), member.hand_over()))
        handing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(self.chance.choice([0.005, 0.01, 0.02, 0.05, 2.0]))
        world.group(GROUP).cut_off.add(host)
        await asyncio.sleep(pause_s)
        world.group(GROUP).cut_off.discard(host)

    async def _blocked(self, host: str, pause_s: float, *, is_alone: bool) -> None:
        world = self.world
        others = [other for other in self.hosts if other != host]
        blocked = others if is_alone else [self.chance.choice(others)]
        both = is_alone or self.chance.random() < 0.5
        for other in blocked:
            world.network.block(host, other, both=both)
        if is_alone:
            world.group(GROUP).cut_off.add(host)
        await asyncio.sleep(pause_s)
        for other in blocked:
            world.network.unblock(host, other)
        world.group(GROUP).cut_off.discard(host)

    async def _check(self) -> None:
        report = self.report
        if not self.master:
            report.violations.append("there is no master")
            return
        report.violations += await GroupChecker(self.ledger, "readers").check(self.world.broker_address(self.master))
        logs = {host: self._log(host) for host in self.hosts}
        if len(set(logs.values())) > 1:
            report.violations.append(f"R4: logs differ: {[(host, len(log)) for host, log in logs.items()]}")

    def _log(self, host: str) -> bytes:
        disk = self.world.disks[host]
        files = [entry.name for entry in disk.list(LOG) if entry.name.isdecimal()]
        return b"".join(disk.read(LOG / name) or b"" for name in files).rstrip(b"\0")


def run_hours(seed: int, faults: int = 12, size: int = 3) -> Report:
    return run_world(lambda world: Hours(world, faults, size).live(), seed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.replicas", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1, help="so many runs, with seeds that follow each other")
    parser.add_argument("--faults", type=int, default=12, help="faults in each")
    parser.add_argument("--size", type=int, default=3, choices=[2, 3], help="members")
    parser.add_argument("--plant", choices=sorted(GROUP_FAULTS | SIMULATED_FAULTS), help="a mistake that must be found")
    parser.add_argument("--log", default="CRITICAL", help="level of the log on standard error")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim.replicas", *sys.argv[1:]])
    logging.basicConfig(level=options.log, stream=sys.stderr)
    if options.plant:
        (GROUP_FAULTS | SIMULATED_FAULTS)[options.plant](Patches())
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        started = time.process_time()
        report = run_hours(seed, options.faults, options.size)
        print(f"{report}, {time.process_time() - started:.1f} s", flush=True)
        for violation in report.violations[:10]:
            print(f"  {violation}")
        if report.violations:
            failed += 1
            print("  " + "; ".join(report.faults))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
