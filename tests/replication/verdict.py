"""What must hold once a group is whole again: R1 to R6, R9, R10, from its answers, files and processes and all its records.

R1 everything acknowledged is at its place, on the master and in the log of everybody in sync. R2 what was read once at a
place never changes. R3 what was acknowledged in an epoch was acknowledged by the master of that epoch alone. R4 the logs are
equal, and the epoch files. R5 offsets are dense, and the order of each producer is kept. R6 no group is past the end, or
goes forward by itself, or back by more than `load.Progress` allows. R9 no other answers than those that mean "not now".
R10 no connection, lease, memory map, task or waiting answer is left of what has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from tests.crash.outcome import Outcome
from tests.crash.wire import Wire
from tests.replication.group import Peer, ReplicatedGroup
from tests.replication.load import QUEUES, READERS, GroupChecker, GroupLedger
from tests.replication.record_rules import ack_problems, epoch_problems, epochs_in, history_problems
from tests.support.patience import PATIENCE_S

from rocketline.errors import BrokerError, ServiceNotAvailable, TransportError

USUAL_CODES = frozenset({0, 1, 2, 10, 12, 14})
LEFT_S = min(PATIENCE_S, 30.0)
HARNESS_CONNECTIONS = 2
TASKS_MORE = 2
"""Of one kind: what happens to run when it is looked at."""


class Judge:
    """Holds one group against its ledger, again and again."""

    def __init__(self, group: ReplicatedGroup, ledger: GroupLedger, outcome: Outcome) -> None:
        self._group, self._ledger, self._outcome = group, ledger, outcome
        self._checker = GroupChecker(ledger, READERS)
        self._usual_tasks: dict[bool, Counter[str]] = {}
        """Of a master and of a replica, when they were first looked at."""

    async def check(self) -> None:
        """The group is whole, unless that is a violation already, and nobody sends."""
        group, outcome = self._group, self._outcome
        master = await group.master()
        before = len(outcome.violations)
        if not any(text.startswith("R8") for text in outcome.violations):
            await group.all_in_sync()
        await logs_equal(group.peers)
        if not before:
            outcome.violations += await self._left_over(master)
        outcome.violations += await self._read_all()
        outcome.violations += self._stored_twice_differently(master)
        outcome.violations += await self._history()
        outcome.violations += self._answers()
        outcome.acked, outcome.duplicates = self._ledger.ack_count, self._checker.duplicates
        outcome.lost = sum("R1" in text or "I1" in text for text in outcome.violations)
        if len(outcome.violations) > before:
            outcome.violations.append(f"answers {dict(self._ledger.codes)}, epochs {epochs_of(master.folder)}")

    async def _read_all(self) -> list[str]:
        """On a machine so busy that leases end, another one may lead meanwhile: it is asked then."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                master = await self._group.master()
                try:
                    await can_be_read(master)
                    return await self._checker.check(master.address)
                except (ServiceNotAvailable, TransportError):
                    await asyncio.sleep(0.1)
                except BrokerError:
                    if await self._group.master() is master:
                        raise

    def _stored_twice_differently(self, master: Peer) -> Iterable[str]:
        """R1, R4: byte for byte."""
        expected, epochs = log_of(master.folder), epochs_of(master.folder)
        for peer in self._group.peers:
            if (found := log_of(peer.folder)) != expected:
                yield f"R4: the log of member {peer.number} differs from byte {first_difference(found, expected)} on"
            if (theirs := epochs_of(peer.folder)) != epochs:
                yield f"R4: member {peer.number} has epochs {theirs}, the master has {epochs}"

    async def _history(self) -> list[str]:
        """R3, and that every record follows from the one before."""
        history = await self._group.history()
        epochs = epochs_of(self._group.peers[0].folder)
        return [
            *history_problems(history),
            *epoch_problems(epochs),
            *ack_problems(self._ledger.acks, history, epochs),
        ]

    async def _left_over(self, master: Peer) -> list[str]:
        """R10. What goes by itself, such as the lease of a dead process, is waited for."""
        limit = time.monotonic() + LEFT_S
        while problems := [text async for text in self._leftovers(master)]:
            if time.monotonic() > limit:
                return problems
            await asyncio.sleep(0.1)
        return []

    async def _leftovers(self, master: Peer) -> AsyncIterator[str]:
        others = len(self._group.peers) - 1
        if (leases := await self._group.lease_count()) != others + 1:
            yield f"R10: etcd has {leases} leases of {others + 1} members"
        for peer in self._group.peers:
            found, leads = await peer.child.stats(), peer is master
            if found["ha_connections"] != (others if leads else 0):
                yield f"R10: member {peer.number} has {found['ha_connections']} replicas"
            if found["connections"] > others + HARNESS_CONNECTIONS:
                yield f"R10: member {peer.number} has {found['connections']} connections, and nobody sends"
            if found["waiting"]:
                yield f"R10: member {peer.number} has {found['waiting']} answers that wait, and nobody sends"
            if found["deleted_maps"]:
                yield f"R10: member {peer.number} has mapped files that are gone: {found['deleted_maps'][:3]}"
            usual = self._usual_tasks.setdefault(leads, Counter(found["tasks"]))
            if more := Counter(found["tasks"]) - usual - Counter(dict.fromkeys(found["tasks"], TASKS_MORE)):
                yield f"R10: member {peer.number} has more tasks than at first: {dict(more)}"

    def _answers(self) -> Iterable[str]:
        for code in self._ledger.codes.keys() - USUAL_CODES:
            yield f"R9: answer {code}: {[text for text in self._ledger.refusals if text.startswith(str(code))][:3]}"


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
    try:
        return epochs_in((folder / "epochFileCheckpoint").read_text())
    except FileNotFoundError:
        return []


def first_difference(one: bytes, other: bytes) -> int:
    for position, (left, right) in enumerate(zip(one, other)):
        if left != right:
            return position
    return min(len(one), len(other))
