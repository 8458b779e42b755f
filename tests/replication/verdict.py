"""What must hold once a group is whole again: R1 to R5, R9, from its answers, its files and the history of its record.

R1 everything acknowledged is at its place, on the master and in the log of everybody in sync. R2 what was read once at a
place never changes. R3 what was acknowledged in an epoch was acknowledged by the master of that epoch alone. R4 the logs are
equal, and the epoch files. R5 offsets are dense, and the order of each producer is kept. R6 no group is past the end. R9 no
other answers than those that mean "not now".
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from tests.crash.outcome import Outcome
from tests.crash.wire import Wire
from tests.replication.group import Peer, ReplicatedGroup
from tests.replication.load import QUEUES, READERS, GroupChecker, GroupLedger
from tests.support.patience import PATIENCE_S

from rocketline.coordination import GroupRecord
from rocketline.errors import BrokerError, ServiceNotAvailable

USUAL_CODES = frozenset({0, 1, 2, 10, 12, 14})


class Judge:
    """Holds one group against its ledger, again and again."""

    def __init__(self, group: ReplicatedGroup, ledger: GroupLedger, outcome: Outcome) -> None:
        self._group, self._ledger, self._outcome = group, ledger, outcome
        self._checker = GroupChecker(ledger, READERS)

    async def check(self) -> None:
        """The group is whole, unless that is a violation already, and nobody sends."""
        group, outcome = self._group, self._outcome
        master = await group.master()
        before = len(outcome.violations)
        if not before:
            await group.all_in_sync()
            await logs_equal(group.peers)
        await can_be_read(master)
        outcome.violations += await self._checker.check(master.address)
        outcome.violations += self._stored_twice_differently(master)
        outcome.violations += await self._history()
        outcome.violations += self._answers()
        outcome.acked, outcome.duplicates = self._ledger.ack_count, self._checker.duplicates
        outcome.lost = sum("R1" in text or "I1" in text for text in outcome.violations)
        if len(outcome.violations) > before:
            outcome.violations.append(f"answers {dict(self._ledger.codes)}, epochs {epochs_of(master.folder)}")

    def _stored_twice_differently(self, master: Peer) -> Iterable[str]:
        """R1, R4: byte for byte."""
        expected, epochs = log_of(master.folder), epochs_of(master.folder)
        for peer in self._group.peers:
            if (found := log_of(peer.folder)) != expected:
                yield f"R4: the log of member {peer.number} differs from byte {_first_difference(found, expected)} on"
            if (theirs := epochs_of(peer.folder)) != epochs:
                yield f"R4: member {peer.number} has epochs {theirs}, the master has {epochs}"

    async def _history(self) -> list[str]:
        """R3, and that every record follows from the one before."""
        history = await self._group.history()
        problems = [problem for old, new in pairwise(history) for problem in _steps(old, new)]
        leaders = {item.epoch: item.members[item.master].address for item in history if item.master}
        epochs = epochs_of(self._group.peers[0].folder)
        starts = [start for _, start in epochs]
        if [epoch for epoch, _ in epochs] != sorted({epoch for epoch, _ in epochs}) or starts != sorted(set(starts)):
            problems.append(f"R4: the epochs do not rise: {epochs}")
        for ack in self._ledger.acks:
            epoch = epochs[bisect_right(starts, ack.log_offset) - 1][0]
            if leaders.get(epoch) != ack.address:
                problems.append(
                    f"R3: {ack.address} acknowledged what is at {ack.log_offset}, in epoch {epoch} of {leaders.get(epoch)}"
                )
                break
        return problems

    def _answers(self) -> Iterable[str]:
        for code in self._ledger.codes.keys() - USUAL_CODES:
            yield f"R9: answer {code}: {[text for text in self._ledger.refusals if text.startswith(str(code))][:3]}"


def _steps(old: GroupRecord, new: GroupRecord) -> Iterable[str]:
    if new.epoch == old.epoch:
        if new.master != old.master:
            yield f"epoch {new.epoch} had masters {old.master} and {new.master}"
    elif new.epoch != old.epoch + 1:
        yield f"epoch {new.epoch} after {old.epoch}"
    elif old.epoch and new.master not in old.in_sync:
        yield f"member {new.master} was elected, and only {sorted(old.in_sync)} were in sync"


async def can_be_read(master: Peer) -> None:
    """Wait until a master gives out messages: it does not while etcd, with a new leader, has not heard from it yet."""
    async with asyncio.timeout(PATIENCE_S), Wire(master.address) as wire:
        while True:
            try:
                await wire.pull(QUEUES[0], 0, "checkers")
                return
            except ServiceNotAvailable:
                await asyncio.sleep(0.1)
            except BrokerError:
                return


async def logs_equal(peers: Iterable[Peer]) -> None:
    """Wait until replicas have all that the master has; what stays different is found later."""
    limit = time.monotonic() + min(PATIENCE_S, 20.0)
    while time.monotonic() < limit:
        sizes = {len(log_of(peer.folder)) for peer in peers}
        epochs = {tuple(epochs_of(peer.folder)) for peer in peers}
        if len(sizes) == 1 and len(epochs) == 1:
            return
        await asyncio.sleep(0.05)


def log_of(folder: Path) -> bytes:
    """The commit log without the zeros behind its end."""
    files = sorted((folder / "commitlog").iterdir()) if (folder / "commitlog").is_dir() else []
    return b"".join(path.read_bytes() for path in files if path.name.isdecimal()).rstrip(b"\0")


def epochs_of(folder: Path) -> list[tuple[int, int]]:
    """Epochs and their starts, as in Apache's file."""
    try:
        lines = (folder / "epochFileCheckpoint").read_text().split("\n")
    except FileNotFoundError:
        return []
    pairs = [line.split("-") for line in lines[2:] if "-" in line]
    return [(int(epoch), int(start)) for epoch, start in pairs]


def _first_difference(one: bytes, other: bytes) -> int:
    for position, (left, right) in enumerate(zip(one, other)):
        if left != right:
            return position
    return min(len(one), len(other))
