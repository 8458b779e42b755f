"""`python -m tests.sim.replicas --hours 24`: hours of a replicated group in virtual time, with faults one after the other.

Three members with the whole broker in each, a name server, producers and consumers with a ledger, and the record of the
group in memory. Members are killed, unplugged, frozen, stopped cleanly, told to hand over, cut off from each other, from the
record or from both, and their clocks are set; requests to the record that were lost are carried out late, and answers come
late. In the end everything acknowledged is there, in equal logs, and nothing is left of what has ended: R1 to R6, R8 and R10
of `tests/replication/verdict.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.crash.faults import Patches
from tests.replication.load import READERS, REPEATS_S, GroupChecker, GroupLedger, GroupLoad, Progress
from tests.replication.planted import GROUP_FAULTS, SIMULATED_FAULTS
from tests.replication.record_rules import ack_problems, epoch_problems, epochs_in, history_problems
from tests.sim.day import SETTINGS
from tests.sim.leaks import leaks

from rocketline.broker.replication.acks import Replica
from rocketline.broker.replication.source import ReplicaConnection
from rocketline.coordination import GroupRecord
from rocketline.coordination.memory import MemoryCoordinator, MemoryGroup
from rocketline.protocol.bodies import RegisterBrokerBody
from rocketline.protocol.headers import RegisterBrokerHeader
from rocketline.testing.sim import SimWorld, run_world

HOSTS = ("r1", "r2", "r3")
GROUP = "broker-a"
NAME_SERVER = "n1"
SETTLE_S = 300.0
LOG, EPOCHS = Path("/data/commitlog"), Path("/data/epochFileCheckpoint")
KINDS = ("kill", "power", "freeze", "record", "link", "alone", "stop", "clock", "order", "late")
"""Of faults."""
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    faults: int = 12
    """At least so many."""
    hours: float = 0.0
    """At least for so long."""
    size: int = 3
    kinds: Sequence[str] = KINDS

    @property
    def watch_s(self) -> float:
        """Between two looks at who gives out."""
        return 0.2 if self.hours else 0.02

    @property
    def pauses_s(self) -> Sequence[float]:
        """Between faults: short in a short run; over hours a fault comes every few minutes, as in `day.py`."""
        return (0.0, 1.0, 20.0, 300.0, 900.0) if self.hours else (0.0, 1.0, 5.0, 20.0)

    @property
    def pause_s(self) -> float:
        """Of producers and consumers after an answer."""
        return 6.0 if self.hours else 0.6


class LateAnswers(MemoryCoordinator):
    """A way to the record on which answers are late, and requests are not."""

    def __init__(self, group: MemoryGroup, name: str, late_s: Mapping[str, float]) -> None:
        super().__init__(group, name)
        self._late_s = late_s

    async def _ask(self, request: Callable[[], T]) -> T:
        answer = await super()._ask(request)
        await asyncio.sleep(self._late_s.get(self._name, 0.0))
        return answer


@dataclass
class Report:
    seed: int
    acked: int = 0
    elections: int = 0
    hours: float = 0.0
    trace: int = 0
    """A checksum of everything that went over the network."""
    faults: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.hours:.1f} hours, {len(self.faults)} faults, {self.elections} elections, "
            f"{self.acked} acknowledged, {len(self.violations)} violations, trace {self.trace:08x}"
        )


class Hours:
    def __init__(self, world: SimWorld, plan: Plan) -> None:
        self.world, self.chance, self.plan = world, world.chance, plan
        self.hosts = HOSTS[: plan.size]
        self.answers_late_s: dict[str, float] = {}
        self.report = Report(world.seed)
        self.ledger = GroupLedger(progress=Progress(REPEATS_S))

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
        watching = Patches()
        self._watch_reports(watching)
        try:
            return await self._live()
        finally:
            watching.undo()

    async def _live(self) -> Report:
        world = self.world
        await world.start_name_server(NAME_SERVER)
        group = world.group(GROUP)
        group.lateness = lambda: self.chance.choice([None, 0.5, 2.0, 6.0])
        setattr(group, "coordinator", lambda host: LateAnswers(group, host, self.answers_late_s))
        settings = {"minInSyncReplicas": "2" if len(self.hosts) > 2 else "1", **(SETTINGS if self.plan.hours else {})}
        for host in self.hosts:
            await world.start_replica(host, GROUP, settings)
        self._watch_registrations()
        await self._whole()
        addresses = [world.broker_address(host) for host in self.hosts]
        await world.inside(world.new_process("clients"), self._under_load(addresses))
        report = self.report
        report.acked, report.elections = self.ledger.ack_count, self.record.epoch
        report.hours, report.trace = world.loop.time() / 3600, world.network.trace
        report.violations += self._leftovers()
        await world.close()
        await asyncio.sleep(10)
        report.violations += [f"R10: {leak}" for leak in leaks(world)]
        return report

    async def _under_load(self, addresses: list[str]) -> None:
        async with GroupLoad(
            addresses, self.ledger, self.chance.randrange(1 << 30), producers=3, pause_s=self.plan.pause_s
        ):
            watching = asyncio.ensure_future(self._watch())
            await asyncio.sleep(10)
            done = 0
            while done < self.plan.faults or self.world.loop.time() < 3600 * self.plan.hours:
                done += 1
                await self._trouble()
                if self.report.violations:
                    break
                await asyncio.sleep(self.chance.choice(self.plan.pauses_s))
            await self._whole()
            await asyncio.sleep(5)
            watching.cancel()
        await asyncio.sleep(10)
        await self._check()

    async def _watch(self) -> None:
        """Two masters never give out messages, locks and offsets at one time."""
        world = self.world
        while True:
            await asyncio.sleep(self.plan.watch_s)
            running = [host for host in world.brokers if world.process_of(host) not in world.loop.frozen]
            roles = {host: world.brokers[host].parts.roles for host in running}
            giving = [host for host, found in roles.items() if found.is_master and found.gives_out]
            if len(giving) > 1:
                self.report.violations.append(f"R3: {giving} both give out at {world.loop.time():.2f}")
                return

    def _watch_reports(self, patches: Patches) -> None:
        """R1, before it is too late: what is counted as a copy is one."""
        really = ReplicaConnection._count

        def count(connection: ReplicaConnection, replica: Replica, end: int) -> None:
            for host, broker in self.world.brokers.items():
                roles = broker.parts.roles
                if roles.own_id == connection.key and roles.has_master and end > roles.log_end:
                    self.report.violations.append(f"R1: {host} says that its log ends at {end}, not at {roles.log_end}")
            really(connection, replica, end)

        patches.set(ReplicaConnection, "_count", count)

    def _watch_registrations(self) -> None:
        """What a name server is told of a master, that one has written down before."""
        routes = self.world._name_servers[NAME_SERVER].routes
        really = routes.register

        def register(header: RegisterBrokerHeader, body: RegisterBrokerBody, channel: object) -> object:
            epoch = body.topic_config_serialize_wrapper.data_version.state_version
            host = next(host for host in self.hosts if self.world.broker_address(host) == header.broker_addr)
            if header.broker_id == 0 and epoch not in dict(self._epochs(host)):
                self.report.violations.append(f"R3: {host} is shown as master of epoch {epoch}, which its file lacks")
            return really(header, body, channel)

        setattr(routes, "register", register)

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
        kind = chance.choice(self.plan.kinds)
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
            case "late":
                self.answers_late_s[host] = chance.choice([0.3, 0.8, 2.0, 2.5])
                await asyncio.sleep(max(5.0, pause_s))
                del self.answers_late_s[host]
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
        report.violations += await GroupChecker(self.ledger, READERS).check(self.world.broker_address(self.master))
        logs = {host: self._log(host) for host in self.hosts}
        if len(set(logs.values())) > 1:
            report.violations.append(f"R4: logs differ: {[(host, len(log)) for host, log in logs.items()]}")
        epochs = {host: self._epochs(host) for host in self.hosts}
        if len(set(map(tuple, epochs.values()))) > 1:
            report.violations.append(f"R4: epoch files differ: {epochs}")
        history, of_master = self.world.group(GROUP).history, epochs[self.master]
        report.violations += history_problems(history)
        report.violations += epoch_problems(of_master)
        report.violations += ack_problems(self.ledger.acks, history, of_master)

    def _epochs(self, host: str) -> list[tuple[int, int]]:
        return epochs_in((self.world.disks[host].read(EPOCHS) or b"").decode())

    def _leftovers(self) -> Iterable[str]:
        """R10, while all brokers run and nobody sends."""
        world = self.world
        if len(live := world.group(GROUP).view().live) != len(self.hosts):
            yield f"R10: members {sorted(live)} have leases"
        for host, broker in world.brokers.items():
            source, expected = broker.parts.roles.source, len(self.hosts) - 1 if host == self.master else 0
            if (found := len(source.connections) if source is not None else 0) != expected:
                yield f"R10: {host} has {found} replicas"
            if waiting := broker.parts.durability.waiting:
                yield f"R10: at {host} {waiting} answers wait"

    def _log(self, host: str) -> bytes:
        disk = self.world.disks[host]
        files = [entry.name for entry in disk.list(LOG) if entry.name.isdecimal()]
        return b"".join(disk.read(LOG / name) or b"" for name in files).rstrip(b"\0")


def run_hours(seed: int, plan: Plan = Plan()) -> Report:
    return run_world(lambda world: Hours(world, plan).live(), seed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.replicas", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1, help="so many runs, with seeds that follow each other")
    parser.add_argument(
        "--hours", type=float, default=0.0, help="virtual time of each; at least as long as its faults last"
    )
    parser.add_argument("--faults", type=int, default=12, help="faults in each, at least")
    parser.add_argument("--size", type=int, default=3, choices=[2, 3], help="members")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS, help="of faults")
    parser.add_argument("--plant", choices=sorted(GROUP_FAULTS | SIMULATED_FAULTS), help="a mistake that must be found")
    parser.add_argument("--until", nargs="*", metavar="R3", help="end with the first run that violates one of these")
    parser.add_argument("--log", default="CRITICAL", help="level of the log on standard error")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim.replicas", *sys.argv[1:]])
    logging.basicConfig(level=options.log, stream=sys.stderr)
    if options.plant:
        (GROUP_FAULTS | SIMULATED_FAULTS)[options.plant](Patches())
    hours = options.hours if options.hours is not None else 0.0 if options.faults else 24.0
    plan = Plan(options.faults or 0, hours, options.size, options.kinds)
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        started = time.process_time()
        report = run_hours(seed, plan)
        print(f"{report}, {time.process_time() - started:.1f} s", flush=True)
        for violation in report.violations[:10]:
            print(f"  {violation}")
        if report.violations:
            print("  " + "; ".join(report.faults))
        if options.until is not None:
            if any(text.split(":")[0] in options.until for text in report.violations):
                return 1
        else:
            failed += bool(report.violations)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
