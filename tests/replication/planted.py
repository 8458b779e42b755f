"""Mistakes in replication and elections, to be found by the harness. Each is one that somebody made, or could make."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tests.crash.faults import Patches

from rocketline.broker.durability import FAR, Durability, Durable
from rocketline.broker.replication import follower, rules
from rocketline.broker.replication.acks import MemberKey, Replica
from rocketline.broker.replication.epochs import Epochs, _encode
from rocketline.broker.replication.follower import MasterConnection
from rocketline.broker.replication.member import GroupMember
from rocketline.broker.replication.roles import Role, Roles
from rocketline.broker.replication.source import ReplicaConnection
from rocketline.clock import SystemClock
from rocketline.coordination import Agreed, GroupRecord
from rocketline.coordination.memory import MemoryGroup
from rocketline.errors import StoreError
from rocketline.protocol.replication_frames import Epoch, encode_report
from rocketline.store.copies import LogCopies


def acknowledged_before_the_replica(patches: Patches) -> None:
    """Answers wait for the disk alone."""
    really = Durability.wait_for_replicas
    patches.set(Durability, "wait_for_replicas", lambda self, limit: really(self, FAR))


def in_sync_shrunk_locally_first(patches: Patches) -> None:
    """As Apache 5.4.0 does: who is not connected is not waited for, before anybody agreed."""
    really = GroupMember._look

    async def look(self: GroupMember) -> None:
        if self.leads:
            self._count(self._situation().wanted | {self.member_id})
        await really(self)

    patches.set(GroupMember, "_look", look)


def empty_epoch_kept(patches: Patches) -> None:
    """As all of Apache's 5.x do: an epoch that begins where the last one did is not written down."""
    really = Epochs.with_epoch

    def with_epoch(self: Epochs, epoch: Epoch) -> tuple[Epoch, ...]:
        if self.last is not None and self.last.start >= epoch.start:
            return self.entries
        return really(self, epoch)

    patches.set(Epochs, "with_epoch", with_epoch)


def read_before_confirmed(patches: Patches) -> None:
    """Consumers see what may still go."""
    really = LogCopies.limit_reads
    patches.set(LogCopies, "limit_reads", lambda self, log_offset: really(self, None))


def nothing_cut_off(patches: Patches) -> None:
    """A member that returns keeps what nobody else has."""
    patches.set(follower, "common_end", lambda epochs, end, *_: end)


def reported_before_the_flush(patches: Patches) -> None:
    """A replica says that it has what only its memory has."""
    patches.set(LogCopies, "counted_end", property(lambda self: self._log.wrote))


def epoch_file_not_flushed(patches: Patches) -> None:
    def save(self: Epochs, entries: tuple[Epoch, ...]) -> None:
        self._path.write_bytes(_encode(entries))
        self.entries = entries

    patches.set(Epochs, "save", save)


def no_fencing(patches: Patches) -> None:
    """A master that hears nothing any more goes on giving out messages, whoever was elected meanwhile."""
    patches.set(Roles, "fence", lambda self: None)
    patches.set(Roles, "gives_out", property(lambda self: True))


def cut_below_confirmed(patches: Patches) -> None:
    """Who copies another log cuts off whatever that one does not have, and any member may be elected."""
    patches.set(Roles, "confirm_offset", property(lambda self: 0 if self.role is not Role.MASTER else self.log_end))
    patches.set(rules, "candidates", lambda view, record: sorted(view.live))


def own_epoch_resumed(patches: Patches) -> None:
    """A master that was restarted goes on in the epoch it had, because the record still names it."""
    really_init, really_decide, really_with = GroupMember.__init__, rules.decide, Epochs.with_epoch

    def init(self: GroupMember, *arguments: Any, **options: Any) -> None:
        really_init(self, *arguments, **options)
        self.incarnation = self._identity.token[:16]

    def decide(now: rules.Situation) -> rules.Action:
        record = now.view.agreed.record if now.view.agreed else GroupRecord()
        names_me = (record.master, record.incarnation) == (now.own.id, now.incarnation)
        if names_me and isinstance(now.part, rules.Fenced) and now.known_epoch == record.epoch:
            return rules.Lead(record.epoch, record.in_sync)
        return really_decide(now)

    def with_epoch(self: Epochs, epoch: Epoch) -> tuple[Epoch, ...]:
        return self.entries if epoch.number <= self.last_number else really_with(self, epoch)

    patches.set(GroupMember, "__init__", init)
    patches.set(rules, "decide", decide)
    patches.set(Epochs, "with_epoch", with_epoch)


def lease_counted_from_the_answer(patches: Patches) -> None:
    """A master takes its lease to begin when etcd's answer comes, and not when it asked."""
    really = GroupMember._renew

    async def renew(self: GroupMember) -> None:
        before = self._renewed_at
        await really(self)
        if self._renewed_at != before:
            self._renewed_at = self._clock.monotonic()

    patches.set(GroupMember, "_renew", renew)


def deposed_master_drains_its_queue(patches: Patches) -> None:
    """Who is not the master any more answers what waits as if it had been confirmed."""

    def fail(self: Durability, error: StoreError) -> None:
        while self._waiting:
            self._waiting.popleft().end(Durable.YES)

    patches.set(Durability, "fail", fail)


def partial_record_reported(patches: Patches) -> None:
    """A replica says that it has the first part of a record, of which it can keep nothing."""
    really = MasterConnection.report

    def report(self: MasterConnection, always: bool = False) -> None:
        end = self._appender.next_offset
        if not self.is_following or self._reported < 0 or end <= self._parts.store.log_next_offset:
            return really(self, always)
        self._reported = end
        self._write(encode_report(self._parts.dialect, end))
        return None

    patches.set(MasterConnection, "report", report)


def told_before_the_epoch_entry(patches: Patches) -> None:
    """Name servers hear of a new master before its epoch is written down."""
    really = Roles.become_master

    async def become_master(self: Roles, epoch: int, in_sync: frozenset[int] = frozenset()) -> None:
        former = self.role, self.epoch
        self.role, self.epoch = Role.MASTER, epoch
        try:
            await self._parts.work.announce()
        finally:
            self.role, self.epoch = former
        await really(self, epoch, in_sync)

    patches.set(Roles, "become_master", become_master)


def record_written_without_comparison(patches: Patches) -> None:
    """Whoever wants another record writes it, whatever it has become meanwhile."""

    def replace(self: MemoryGroup, old: Agreed | None, new: GroupRecord) -> bool:
        self.put(new)
        return True

    patches.set(MemoryGroup, "replace", replace)


def acks_counted_by_connection(patches: Patches) -> None:
    """Two connections that show the ticket of one replica are two copies."""

    def count_as(self: ReplicaConnection, key: MemberKey) -> None:
        self.key = key, id(self)
        self._replica = self._parts.acks.replicas[self.key] = Replica()

    patches.set(ReplicaConnection, "_count_as", count_as)


def clock_jumps(patches: Patches) -> None:
    """No mistake: the wall clock of this process is set anew twice a second, by an hour or a day, forward and back, and
    between that it is 5 % too fast or too slow."""
    shift_s = (0, 3_600, -3_600, 86_400, -86_400)
    start = os.getpid()  # no two members have the same time
    really = SystemClock.now_ms

    def now_ms(self: SystemClock) -> int:
        now = self.monotonic()
        drift_ms = (50 if start % 2 else -50) * now
        return really(self) + round(drift_ms) + 1000 * shift_s[(start + int(2 * now)) % len(shift_s)]

    patches.set(SystemClock, "now_ms", now_ms)


JUMPING_CLOCKS = {clock_jumps.__name__: clock_jumps}

SIMULATED_FAULTS: dict[str, Callable[[Patches], None]] = {
    fault.__name__: fault
    for fault in (
        no_fencing,
        cut_below_confirmed,
        own_epoch_resumed,
        lease_counted_from_the_answer,
        deposed_master_drains_its_queue,
        partial_record_reported,
        told_before_the_epoch_entry,
        record_written_without_comparison,
    )
}
"""Found in the simulation."""

FIXED_FAULTS: dict[str, Callable[[Patches], None]] = {acks_counted_by_connection.__name__: acks_counted_by_connection}
"""Found with fixed roles, where some replicas have to acknowledge, whichever they are."""

GROUP_FAULTS: dict[str, Callable[[Patches], None]] = {
    fault.__name__: fault
    for fault in (
        acknowledged_before_the_replica,
        in_sync_shrunk_locally_first,
        empty_epoch_kept,
        read_before_confirmed,
        nothing_cut_off,
        reported_before_the_flush,
        epoch_file_not_flushed,
    )
}
