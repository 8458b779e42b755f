"""Mistakes in replication and elections, to be found by the harness. Each is one that somebody made, or could make."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.crash.faults import Patches

from rocketline.broker.durability import FAR, Durability
from rocketline.broker.replication import follower, rules
from rocketline.broker.replication.epochs import Epochs, _encode
from rocketline.broker.replication.member import GroupMember
from rocketline.broker.replication.roles import Role, Roles
from rocketline.clock import SystemClock
from rocketline.protocol.replication_frames import Epoch
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


def clock_jumps(patches: Patches) -> None:
    """No mistake: the wall clock of this process is set anew twice a second, by an hour or a day, forward and back."""
    shift_s = (0, 3_600, -3_600, 86_400, -86_400)
    start = os.getpid()  # no two members have the same time
    really = SystemClock.now_ms

    def now_ms(self: SystemClock) -> int:
        return really(self) + 1000 * shift_s[(start + int(2 * self.monotonic())) % len(shift_s)]

    patches.set(SystemClock, "now_ms", now_ms)


JUMPING_CLOCKS = {clock_jumps.__name__: clock_jumps}

SIMULATED_FAULTS: dict[str, Callable[[Patches], None]] = {
    fault.__name__: fault for fault in (no_fencing, cut_below_confirmed)
}
"""Found in the simulation."""

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
