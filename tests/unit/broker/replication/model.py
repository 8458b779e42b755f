"""A group of members on virtual time whose logs are lists: the election as it is, replication as a model of it.

A log has entries (epoch, value). A follower cuts its log where the epochs say, copies, and reports its end. Links between
members, and each member's way to the record, can be blocked in one direction; members are killed, frozen, and lose power.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rocketline.broker.replication.acks import Replica
from rocketline.broker.replication.identity import IdentityFile, Takes
from rocketline.broker.replication.member import GroupMember
from rocketline.coordination import Member
from rocketline.coordination.memory import MemoryGroup
from rocketline.errors import StoreError
from rocketline.testing.disks import MemoryDisk
from rocketline.testing.sim import SimLoop, belongs_to

STEP_S = (0.001, 0.01)
FLUSH_S = 0.5
"""A log is on disk so long after it was written: members do not wait for that."""


@dataclass
class Reported(Replica):
    seen_at: float = 0.0


@dataclass
class Disk:
    """What stays when the process of a member dies."""

    files: MemoryDisk
    log: list[tuple[int, str]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    boot: int = 1
    flushed: int = 0
    has_crashed: bool = False
    """Unless a clean stop says otherwise."""


class ModelRoles:
    """One process of a member."""

    def __init__(self, world: ModelGroup, name: str, process: str) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.world, self.name, self.process = world, name, process
        self.disk = world.disks[name]
        self.id = 0
        self.epoch = 0
        self.is_master = False
        self.counted: frozenset[int] = frozenset()
        self.reports: dict[int, Reported] = {}
        self.lease_until = 0.0
        self.fails_to_lead = False
        self.is_broken = False
        self.is_settled = False
        self.waiting: list[tuple[int, str]] = []
        self._confirmed = 0
        self._following: asyncio.Task[None] | None = None
        self._confirmed_before: int | None = None

    @property
    def log_end(self) -> int:
        return len(self.disk.log)

    @property
    def last_epoch(self) -> int:
        return self.disk.epochs[-1][0] if self.disk.epochs else 0

    @property
    def problem(self) -> str:
        return ""

    @property
    def confirm_offset(self) -> int:
        ends = [self.log_end] + [self._end_of(other) for other in self.counted if other != self.id]
        self._confirmed = max(self._confirmed, min(ends)) if self.is_master else self._confirmed
        return self._confirmed

    @property
    def has_all_confirmed(self) -> bool:
        return self._confirmed_before is not None and self.log_end >= self._confirmed_before

    def _end_of(self, member_id: int) -> int:
        reported = self.reports.get(member_id)
        return reported.end if reported else -1

    def be(self, member_id: int, token: str) -> None:
        self.id = member_id
        self.world.names[member_id] = self.name

    def fence(self) -> None:
        self.is_master = False
        self.waiting.clear()
        self.reports.clear()
        self._confirmed_before = None
        if self._following is not None:
            self._following.cancel()
            self._following = None

    async def become_master(self, epoch: int, in_sync: frozenset[int]) -> None:
        if self.fails_to_lead:
            self.fails_to_lead = False
            raise StoreError("the epoch file cannot be written")
        if epoch <= self.last_epoch:
            raise StoreError(f"epoch {epoch} began already")
        start = self.log_end
        self.disk.epochs = [item for item in self.disk.epochs if item[1] < start]
        self.disk.epochs.append((epoch, start))
        await asyncio.sleep(0.001)
        self.epoch, self.counted, self.is_master = epoch, in_sync, True
        self._confirmed = self.log_end if in_sync == {self.id} else min(self._confirmed, self.log_end)
        self.reports.clear()

    async def follow(self, epoch: int, master: Member) -> None:
        self.epoch = epoch
        self._following = asyncio.get_running_loop().create_task(self._copy(self.world.names[master.id]))

    def count(self, in_sync: frozenset[int]) -> None:
        self.counted, self.is_settled = in_sync, False
        self.confirm()

    def know(self, members: Mapping[int, Member]) -> None:
        """Nothing is to be proved here."""

    def hold_lease(self, until: float) -> None:
        self.lease_until = until

    def replicas(self) -> Mapping[int, Reported]:
        return self.reports

    async def settle(self) -> None:
        self.is_settled = True
        for _ in range(100):
            await asyncio.sleep(0.01)
            if all(reported.end >= self.log_end for reported in self.reports.values()):
                return

    # The data path

    def send(self, value: str) -> bool:
        if not self.is_master or self.is_settled:
            return False
        self.disk.log.append((self.epoch, value))
        self.waiting.append((self.log_end, value))
        self.confirm()
        return True

    def confirm(self) -> None:
        if not self.is_master:
            return
        confirmed = self.confirm_offset
        self.world.readable(self.disk.log[:confirmed])
        while self.waiting and self.waiting[0][0] <= confirmed:
            end, value = self.waiting.pop(0)
            self.world.acknowledged(self, end - 1, value)

    async def _copy(self, master_name: str) -> None:
        chance = self.world.chance
        is_cut = False
        while True:
            await asyncio.sleep(chance.uniform(*STEP_S))
            master = self.world.roles.get(master_name)
            if master is None or not master.is_master or master.epoch < self.epoch:
                is_cut, self._confirmed_before = False, None
                continue
            if not self.world.is_open(self.name, master_name) or not self.world.is_open(master_name, self.name):
                continue
            if not is_cut:
                self._cut(master.disk)
                is_cut = True
            more = master.disk.log[self.log_end : self.log_end + chance.randint(1, self.world.most_copied)]
            self.disk.log += more
            self.disk.epochs = [item for item in master.disk.epochs if item[1] <= self.log_end]
            end = self.log_end
            await asyncio.sleep(chance.uniform(*STEP_S))
            if self.world.is_open(self.name, master_name) and self.world.roles.get(master_name) is master:
                master.reported(self.id, end)
                if self._confirmed_before is None:
                    self._confirmed_before = master.confirm_offset

    def _cut(self, master: Disk) -> None:
        theirs = dict(master.epochs)
        for number, (epoch, start) in reversed(list(enumerate(self.disk.epochs))):
            if theirs.get(epoch) == start:
                own_end = self.disk.epochs[number + 1][1] if number + 1 < len(self.disk.epochs) else self.log_end
                later = [begin for other, begin in master.epochs if other > epoch]
                del self.disk.log[min([own_end, *later[:1], len(master.log)]) :]
                return
        self.disk.log.clear()

    def reported(self, member_id: int, end: int) -> None:
        is_new = member_id not in self.reports
        reported = self.reports.setdefault(member_id, Reported())
        reported.end, reported.seen_at = end, asyncio.get_running_loop().time()
        reported.look(reported.seen_at, self.log_end)
        self.confirm()
        if is_new or member_id not in self.counted:
            self.on_change()

    async def watch_links(self) -> None:
        """A member that is not heard of any more is not connected any more. And flush the log."""
        while True:
            await asyncio.sleep(FLUSH_S)
            self.disk.flushed = self.log_end
            now = asyncio.get_running_loop().time()
            silent = [key for key, reported in self.reports.items() if now - reported.seen_at > 1.0]
            for key in silent:
                del self.reports[key]
            if silent:
                self.on_change()


class ModelGroup:
    def __init__(self, loop: SimLoop, seed: int, size: int = 3) -> None:
        self.loop, self.chance = loop, Random(seed)
        self.record = MemoryGroup(
            loop.clock,
            latency_s=self.chance.choice([0.002, 0.05, 0.2]),
            lateness=lambda: self.chance.choice([None, 0.5, 2.0, 6.0]),
        )
        self.names: dict[int, str] = {}
        self.roles: dict[str, ModelRoles] = {}
        self.members: dict[str, GroupMember] = {}
        self.disks = {f"m{number}": Disk(MemoryDisk(loop.clock)) for number in range(1, size + 1)}
        self.blocked: set[tuple[str, str]] = set()
        self.acked: dict[int, str] = {}
        """By position in the log."""
        self.acked_in: dict[int, set[str]] = {}
        """By epoch: who acknowledged."""
        self.read: list[tuple[int, str]] = []
        """What any master ever confirmed: consumers have seen it."""
        self.problems: list[str] = []
        self.last_power_cut = -100.0
        self.most_copied = 5
        self._lives = 0

    def is_open(self, source: str, target: str) -> bool:
        return (source, target) not in self.blocked

    def acknowledged(self, by: ModelRoles, position: int, value: str) -> None:
        other = self.acked.setdefault(position, value)
        if other != value:
            self.problems.append(f"{value} and {other} were both acknowledged at {position}")
        self.acked_in.setdefault(by.epoch, set()).add(by.process)

    def readable(self, confirmed: list[tuple[int, str]]) -> None:
        known = min(len(self.read), len(confirmed))
        if confirmed[:known] != self.read[:known]:
            self.problems.append(f"what was read below {known} is not what it was")
        self.read += confirmed[known:]

    def start(self, name: str) -> None:
        self._lives += 1
        process = f"{name}#{self._lives}"
        disk = self.disks[name]
        file = IdentityFile(Path("/data"), disk.files)
        with belongs_to(process):
            roles = ModelRoles(self, name, process)
            identity = file.open("c", "g").opened(
                str(disk.boot), Takes.POWER, after_crash=disk.has_crashed, is_shorter=False
            )
            file.save(identity)
            disk.has_crashed = True
            member = GroupMember(
                roles,
                self.record.coordinator(name),
                file,
                identity,
                (f"{name}:1", f"{name}:2"),
                clock=self.loop.clock,
            )
            self.roles[name], self.members[name] = roles, member
            self.loop.create_task(member.run())
            self.loop.create_task(roles.watch_links())

    def kill(self, name: str, *, power: bool = False, lost: int | None = None) -> None:
        """`lost`: so many entries of the log, with power; None: some."""
        roles = self.roles.pop(name, None)
        self.members.pop(name, None)
        if roles is None:
            return
        self.loop.kill(roles.process)
        disk = self.disks[name]
        disk.files = disk.files.after_kill()
        if power:
            self.last_power_cut = self.loop.time()
            disk.boot += 1
            kept = self.chance.randint(min(disk.flushed, len(disk.log)), len(disk.log))
            del disk.log[kept if lost is None else len(disk.log) - lost :]
            disk.epochs = [item for item in disk.epochs if item[1] <= len(disk.log)]

    @property
    def master(self) -> ModelRoles | None:
        """Who leads by the record."""
        agreed = self.record.agreed
        if agreed is None:
            return None
        roles = self.roles.get(self.names.get(agreed.record.master, ""))
        return roles if roles and roles.is_master and roles.epoch == agreed.record.epoch else None

    def check(self) -> list[str]:
        """After healing: what was acknowledged is where it was, at the master and at all who are in sync."""
        problems = list(self.problems)
        master, agreed = self.master, self.record.agreed
        if master is None or agreed is None:
            return [*problems, "there is no master"]
        for member_id in sorted(agreed.record.in_sync):
            log = self.disks[self.names[member_id]].log
            found = {position: log[position][1] if position < len(log) else None for position in self.acked}
            lost = [value for position, value in self.acked.items() if found[position] != value]
            if lost:
                problems.append(f"member {member_id} lacks {len(lost)} acknowledged, the first is {lost[0]}")
        problems += [f"epoch {epoch} had masters {by}" for epoch, by in self.acked_in.items() if len(by) > 1]
        return problems
