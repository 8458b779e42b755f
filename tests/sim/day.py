"""A day of consuming in the simulated world: two name servers, two brokers, four groups, and trouble every few minutes.

    python -m tests.sim.day --seed 7 --hours 24          one day
    python -m tests.sim.day --seed 100 --count 20        twenty, one after the other

Members join, leave, die and stand still; handlers fail, hang and take their time; brokers are restarted, killed, frozen and
lose power; ways are blocked and connections cut; an operator resets, clones and deletes. At the end everything is mended and
the ledger is held against what was delivered and what is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.crash.faults import Patches
from tests.sim.faults import FAULTS
from tests.sim.leaks import leaks
from tests.sim.ledger import GroupLedger, OrderJudge, Sends
from tests.sim.members import MAX_RECONSUME_TIMES, TOPIC, GroupPlan, Member, Sender
from tests.sim.operator import Operator, stored

from rocketline.client.consumer.push.pull_loop import PullLoop
from rocketline.client.session import ClientSession
from rocketline.errors import RocketlineError
from rocketline.protocol.names import dlq_topic
from rocketline.testing.sim import SimWorld, run_world
from rocketline.transport import Channel

BROKERS = ("broker-a", "broker-b")
NAME_SERVERS = ("name-1", "name-2")
QUEUES = 2
SETTINGS = {
    "flushIntervalCommitLog": "10000",
    "flushIntervalConsumeQueue": "10000",
    "registerNameServerPeriod": "60000",
}
PLANS = (
    GroupPlan("bill", most=3, failing=0.05, poison=0.01, hanging=0.002),
    GroupPlan("steps", most=3, ordered=True, failing=0.02),
    GroupPlan("show", most=2, broadcasting=True),
    GroupPlan("audit", most=1),
)
TROUBLE_EVERY_S = 240.0
SEND_EVERY_S = 30.0
SETTLE_S = 3600.0
UNSAVED_S = 15.0
"""A broker saves offsets every 5 s: what an operator changed shortly before a crash may be lost."""
MOST_TASKS, MOST_CONNECTIONS = 600, 120


@dataclass
class Report:
    """What a day was like."""

    seed: int
    hours: float
    acked: int = 0
    unsure: int = 0
    delivered: int = 0
    again: int = 0
    stored_twice: int = 0
    dead: int = 0
    excused: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    peak_tasks: int = 0
    peak_connections: int = 0
    violations: list[str] = field(default_factory=list)
    trace: int = 0

    @property
    def line(self) -> str:
        return (
            f"seed {self.seed}: {self.hours:g} h, {self.acked} acknowledged, {self.unsure} without answer, {self.delivered} "
            f"delivered ({self.again} again), {self.stored_twice} stored twice, {self.dead} dead letters, {self.excused} "
            f"passed over by resets, {self.troubles.total()} troubles, at most {self.peak_tasks} tasks and "
            f"{self.peak_connections} connections, trace {self.trace:08x}, {len(self.violations)} violations"
        )


class Day:
    """One run; `live` is the whole of it."""

    def __init__(self, world: SimWorld, hours: float, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.end = hours * 3600
        self.chance = Random(world.chance.randrange(1 << 32))
        self.report = Report(world.seed, hours)
        self.sends = Sends()
        self.judge = OrderJudge()
        self.ledgers: dict[str, GroupLedger] = {}
        self.members: dict[str, Member] = {}
        self.senders = [self._sender(f"shop-{number}") for number in (1, 2)]
        self.operator = Operator(world, self.sends, QUEUES)
        self.busy: set[str] = set()
        """Hosts that something is happening to."""
        self.under_way: set[asyncio.Task[None]] = set()
        self.audit_at = -UNSAVED_S

    def _sender(self, host: str) -> Sender:
        return Sender(self.world, host, self.sends, 2 * SEND_EVERY_S, Random(self.chance.random()))

    # The course of the day

    async def live(self) -> Report:
        for host in NAME_SERVERS:
            await self.world.start_name_server(host)
        for host in BROKERS:
            await self.world.start_broker(host, SETTINGS)
            await self.operator.create_topic(host)
        for plan in PLANS:
            for number in range(plan.most if plan.broadcasting else 1):
                await self._join(plan, number + 1)
        for sender in self.senders:
            self._start("sending", sender.run())
        await self._trouble()
        await self._mend()
        await self._settle()
        await self._close()
        self._compare()
        return self.report

    def _start(self, what: str, work: Awaitable[None]) -> None:
        async def watched() -> None:
            try:
                await work
            except Exception as error:
                logging.getLogger(__name__).exception("%s", what)
                self.report.violations.append(f"harness: {what} ended by {error!r}")

        task = asyncio.get_running_loop().create_task(watched())
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def _trouble(self) -> None:
        kinds = list(self._kinds().items())
        while self.world.loop.time() < self.end:
            await asyncio.sleep(self.chance.expovariate(1 / TROUBLE_EVERY_S))
            kind, happens = self.chance.choices(kinds, [weight for _, (weight, _) in kinds])[0]
            self._start(kind, self._counted(kind, happens[1]))
            self._look()

    async def _counted(self, kind: str, happens: Callable[[], Awaitable[bool]]) -> None:
        if await happens():
            self.report.troubles[kind] += 1

    def _look(self) -> None:
        loop, report = self.world.loop, self.report
        report.peak_tasks = max(report.peak_tasks, len(asyncio.all_tasks(loop)))
        report.peak_connections = max(report.peak_connections, len(self.world.network.connections))

    def _kinds(self) -> dict[str, tuple[int, Callable[[], Awaitable[bool]]]]:
        return {
            "join": (12, self._joins),
            "leave": (8, self._leaves),
            "member crash": (8, self._member_crashes),
            "member frozen": (6, self._member_freezes),
            "sender crash": (3, self._sender_crashes),
            "way blocked": (12, self._way_blocked),
            "connections cut": (8, self._connections_cut),
            "broker restart": (4, self._broker_restarts),
            "broker killed": (4, self._broker_killed),
            "broker power cut": (5, self._broker_loses_power),
            "broker frozen": (4, self._broker_freezes),
            "name server down": (4, self._name_server_down),
            "reset": (6, self._resets),
            "audit anew": (1, self._audit_anew),
        }

    # Members

    def _host(self, plan: GroupPlan, number: int) -> str:
        return f"{plan.name}-{number}"

    def _ledger(self, name: str) -> GroupLedger:
        return self.ledgers.setdefault(name, GroupLedger(name))

    async def _join(self, plan: GroupPlan, number: int) -> None:
        host = self._host(plan, number)
        member = Member(
            self.world,
            plan,
            host,
            self._ledger(host if plan.broadcasting else plan.name),
            self.judge if plan.ordered else None,
            self.folder,
            chance=Random(self.chance.random()),
        )
        self.members[host] = member
        await member.start()

    def _free_members(self, *, least: int = 1) -> list[Member]:
        """Members that nothing happens to, of groups that have enough of them."""
        counts = Counter(member.plan.name for member in self.members.values())
        return [
            member
            for host, member in sorted(self.members.items())
            if host not in self.busy and counts[member.plan.name] >= least and member.consumer is not None
        ]

    async def _joins(self) -> bool:
        free = [
            (plan, number)
            for plan in PLANS[:2]
            for number in range(1, plan.most + 1)
            if (host := self._host(plan, number)) not in self.members and host not in self.busy
        ]
        if not free:
            return False
        await self._join(*self.chance.choice(free))
        return True

    async def _leaves(self) -> bool:
        candidates = [item for item in self._free_members(least=2) if not item.plan.broadcasting]
        if not candidates:
            return False
        member = self.chance.choice(candidates)
        with _Busy(self.busy, member.host):
            await member.leave()
            del self.members[member.host]
        return True

    async def _member_crashes(self) -> bool:
        candidates = [item for item in self._free_members() if item.plan.name != "audit"]
        if not candidates:
            return False
        member = self.chance.choice(candidates)
        with _Busy(self.busy, member.host):
            await self._mid_consuming()
            member.crash(power=self.chance.random() < 0.5)
            await asyncio.sleep(self.chance.choice([1, 20, 100, 400]))
            await member.start()
        return True

    async def _member_freezes(self) -> bool:
        candidates = [item for item in self._free_members() if item.plan.name != "audit"]
        if not candidates:
            return False
        member = self.chance.choice(candidates)
        with _Busy(self.busy, member.host):
            await self._mid_consuming()
            self.judge.forgive(member.process)
            await self._frozen(member.process, self.chance.choice([2, 20, 50, 90, 300]))
        return True

    async def _frozen(self, process: str, seconds: float) -> None:
        self.world.loop.freeze(process)
        await asyncio.sleep(seconds)
        self.world.loop.thaw(process)

    async def _sender_crashes(self) -> bool:
        sender = self.chance.choice(self.senders)
        if sender.host in self.busy:
            return False
        with _Busy(self.busy, sender.host):
            await self._mid_sending()
            sender.crash(power=self.chance.random() < 0.5)
            await asyncio.sleep(self.chance.uniform(1, 100))
        if self.world.loop.time() < self.end:
            self._start("sending", sender.run())
        return True

    async def _mid_sending(self) -> None:
        """Let senders begin, and return before they are done."""
        for sender in self.senders:
            sender.hurry()
        await asyncio.sleep(self.chance.uniform(0, 0.1))

    async def _mid_consuming(self) -> None:
        """Let messages come, and return while they are being handled."""
        await self._mid_sending()
        await asyncio.sleep(self.chance.uniform(0, 3))

    # Network

    async def _way_blocked(self) -> bool:
        clients = [item.host for item in self._free_members() if item.plan.name != "audit"]
        clients += [sender.host for sender in self.senders]
        servers = [host for host in (*BROKERS, *NAME_SERVERS) if host not in self.busy]
        if not servers:
            return False
        one, other = self.chance.choice([*clients, *servers]), self.chance.choice(servers)
        if one == other:
            return False
        network = self.world.network
        if self.chance.random() < 0.5:
            one, other = other, one
        await self._mid_sending()
        network.block(one, other, both=self.chance.random() < 0.6)
        await asyncio.sleep(self.chance.choice([1, 10, 40, 150, 400]))
        network.unblock(one, other)
        return True

    async def _connections_cut(self) -> bool:
        await self._mid_sending()
        connections = [item for _, item in sorted(self.world.network.connections.items())]
        for connection in self.chance.sample(connections, min(len(connections), self.chance.randint(1, 6))):
            self.world.network.cut(connection)
        return True

    # Servers

    def _free_server(self, hosts: tuple[str, ...]) -> str | None:
        free = [host for host in hosts if host not in self.busy]
        return self.chance.choice(free) if free else None

    async def _broker_restarts(self) -> bool:
        return await self._broker_down(lambda host: self.world.stop(host))

    async def _broker_killed(self) -> bool:
        return await self._broker_down(lambda host: self._crash_broker(host, power=False))

    async def _broker_loses_power(self) -> bool:
        return await self._broker_down(lambda host: self._crash_broker(host, power=True))

    async def _crash_broker(self, host: str, *, power: bool) -> None:
        if self.world.loop.time() - self.audit_at < UNSAVED_S:
            self.ledgers["audit"].excuse(self.sends.acked)
        self.world.crash(host, power=power)

    async def _broker_down(self, bring_down: Callable[[str], Awaitable[None]]) -> bool:
        host = self._free_server(BROKERS)
        if host is None:
            return False
        with _Busy(self.busy, host):
            await self._mid_sending()
            await bring_down(host)
            await asyncio.sleep(self.chance.choice([0.1, 5, 30, 120]))
            await self.world.start_broker(host)
            # Locks live in a broker's memory, as in Apache's: a new owner may find a queue free that its old one still
            # believes to hold, for as long as that counts.
            self.judge.lenient_until[host] = self.world.loop.time() + 60
            await self._check_offsets(host)
        return True

    async def _check_offsets(self, host: str) -> None:
        groups = [plan.name for plan in PLANS if not plan.broadcasting]
        self.report.violations += await self.operator.offsets_past_the_end(host, groups)

    async def _broker_freezes(self) -> bool:
        host = self._free_server(BROKERS)
        if host is None:
            return False
        with _Busy(self.busy, host):
            await self._mid_sending()
            await self._frozen(self.world.process_of(host), self.chance.choice([1, 5, 20, 60]))
        return True

    async def _name_server_down(self) -> bool:
        host = self._free_server(NAME_SERVERS)
        if host is None:
            return False
        with _Busy(self.busy, host):
            if self.chance.random() < 0.5:
                await self.world.stop(host)
            else:
                self.world.crash(host, power=self.chance.random() < 0.5)
            await asyncio.sleep(self.chance.choice([1, 60, 300]))
            await self.world.start_name_server(host)
        return True

    # Operator

    async def _resets(self) -> bool:
        plan = self.chance.choice(PLANS[:2])
        back_s = self.chance.choice([0, 0, 600, 3600])
        timestamp_ms = self.world.clock.now_ms() - back_s * 1000 if back_s else -1
        judge = self.judge if plan.ordered else None
        for host in BROKERS:
            await self.operator.reset(host, self._ledger(plan.name), judge, timestamp_ms)
        return True

    async def _audit_anew(self) -> bool:
        """The group of the auditor is deleted, or given the offsets of another; then it reads on."""
        ledger, host = self.ledgers["audit"], "audit-1"
        if self.busy & {*BROKERS, host}:
            return False
        with _Busy(self.busy, host, *BROKERS):
            await self.members[host].leave()
            await asyncio.sleep(10)
            self.audit_at = self.world.loop.time()
            try:
                if self.chance.random() < 0.5:
                    for broker in BROKERS:
                        await self.operator.delete_group(broker, "audit")
                    ledger.start_over()
                else:
                    for broker in BROKERS:
                        await self.operator.clone(broker, "bill", ledger)
            except RocketlineError:
                ledger.excuse(self.sends.acked)
            await self.members[host].start()
        return True

    # The end of the day

    async def _mend(self) -> None:
        """No more trouble: what was going on ends by itself; senders stop, and each group has a member."""
        for sender in self.senders:
            sender.stopping = True
        while self.under_way:
            await asyncio.wait(self.under_way)
        self.world.network.unblock()
        for plan in PLANS[:2]:
            if not any(member.plan is plan for member in self.members.values()):
                await self._join(plan, 1)

    def _unsettled(self) -> dict[str, list[str]]:
        found = {}
        for name, ledger in self.ledgers.items():
            given_up = {item for item, count in ledger.failed.items() if count > MAX_RECONSUME_TIMES}
            if missing := ledger.missing(self.sends, given_up):
                found[name] = missing
        return found

    async def _settle(self) -> None:
        limit = self.world.loop.time() + SETTLE_S
        while self._unsettled() and self.world.loop.time() < limit:
            await asyncio.sleep(10)
        await asyncio.sleep(60)
        for host in BROKERS:
            await self._check_offsets(host)

    async def _close(self) -> None:
        world = self.world
        for member in self.members.values():
            await member.leave()
        self.report.trace = world.network.trace
        await world.close()
        await asyncio.sleep(10)
        self._look_for_leaks()

    def _look_for_leaks(self) -> None:
        violations = self.report.violations
        violations += leaks(self.world)
        self.members.clear()
        gc.collect()
        kinds = (PullLoop, Channel, ClientSession)
        living = Counter(type(item).__name__ for item in gc.get_objects() if isinstance(item, kinds))
        if living:
            violations.append(f"leak: still there: {dict(living)}")
        if self.report.peak_tasks > MOST_TASKS or self.report.peak_connections > MOST_CONNECTIONS:
            violations.append("leak: more tasks or connections than such a world needs")

    # Ledger against world

    def _compare(self) -> None:
        report, sends = self.report, self.sends
        violations = report.violations
        violations += sends.objections + self.judge.objections
        self._compare_stored()
        dead = {item for host in BROKERS for item in self._dead_letters(host)}
        for name, ledger in self.ledgers.items():
            violations += ledger.objections
            missing = ledger.missing(sends, dead if name == "bill" else frozenset())
            violations += [f"lost: {name} never got {sends.acked[item]}" for item in missing]
        too_early = [item for item in dead if self.ledgers["bill"].delivered[item] <= MAX_RECONSUME_TIMES]
        violations += [f"dead letters: {item} after {self.ledgers['bill'].delivered[item]} calls" for item in too_early]
        report.acked, report.unsure, report.dead = len(sends.acked), len(sends.unsure), len(dead)
        report.delivered = sum(ledger.delivered.total() for ledger in self.ledgers.values())
        report.again = sum(ledger.again for ledger in self.ledgers.values())
        report.excused = sum(len(ledger.excused) for ledger in self.ledgers.values())

    def _compare_stored(self) -> None:
        """I1, I2, I4, I5 and, counted, I9."""
        sends, violations = self.sends, self.report.violations
        found: Counter[str] = Counter()
        at: dict[tuple[str, int, int], str] = {}
        for host in BROKERS:
            for queue_id, messages in stored(self.world, host, TOPIC):
                offsets = [message.queue_offset for message in messages]
                if offsets != list(range(len(offsets))):
                    violations.append(f"I4: offsets of {TOPIC}@{host}:{queue_id} are not dense")
                for message in messages:
                    found[message.body.decode()] += 1
                    at[host, queue_id, message.queue_offset] = message.body.decode()
        for sent in sends.acked.values():
            there = at.get((sent.queue.broker_name, sent.queue.queue_id, sent.offset))
            if there != sent.name:
                violations.append(f"I1: {sent} is not there but {there}")
        strange = set(found) - set(sends.acked) - sends.unsure
        violations += [f"I2: nobody sent {name}" for name in strange]
        self.report.stored_twice = sum(count - 1 for count in found.values())

    def _dead_letters(self, host: str) -> list[str]:
        queues = stored(self.world, host, dlq_topic("bill"))
        return [message.body.decode() for _, messages in queues for message in messages]


class _Busy:
    """Hosts are busy for the length of a block."""

    def __init__(self, busy: set[str], *hosts: str) -> None:
        self._busy, self._hosts = busy, hosts

    def __enter__(self) -> None:
        self._busy.update(self._hosts)

    def __exit__(self, *_: object) -> None:
        self._busy.difference_update(self._hosts)


def run_day(seed: int, hours: float = 24.0) -> Report:
    """A day in a world of its own."""
    in_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # offsets of broadcasting members are files
    with TemporaryDirectory(prefix="rocketline-sim-", dir=in_memory) as folder:
        return run_world(lambda world: Day(world, hours, Path(folder)).live(), seed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.day", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1, help="so many days, with seeds that follow each other")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--plant", choices=sorted(FAULTS), help="a mistake that must be found")
    parser.add_argument("--log", default="CRITICAL", help="level of the log on standard error")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # A run is repeated only with equal hashes of names.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim.day", *sys.argv[1:]])
    logging.basicConfig(level=options.log, stream=sys.stderr)
    if options.plant:
        FAULTS[options.plant](Patches())
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        started = time.process_time()
        report = run_day(seed, options.hours)
        print(f"{report.line}, {time.process_time() - started:.0f} s", flush=True)
        for violation in report.violations[:20]:
            print(f"  {violation}")
        if report.violations:
            failed += 1
            print(f"  repeat with: python -m tests.sim.day --seed {seed} --hours {options.hours:g}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
