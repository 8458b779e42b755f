"""R3 and R4 as functions: what must hold of a group's records, of an epoch file, and of who acknowledged what.

Real processes and the simulation are judged by the same ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tests.replication.load import Ack

from rocketline.coordination import GroupRecord

EpochStarts = Sequence[tuple[int, int]]
"""Epochs and where they begin in the log, as in Apache's file."""


def epochs_in(text: str) -> list[tuple[int, int]]:
    """
    >>> epochs_in("2\\n1763523775\\n1-0\\n2-1272\\n")
    [(1, 0), (2, 1272)]
    """
    pairs = [line.split("-") for line in text.split("\n")[2:] if "-" in line]
    return [(int(epoch), int(start)) for epoch, start in pairs]


def history_problems(history: Iterable[GroupRecord]) -> list[str]:
    """Every record follows from the one before."""
    return [f"R3: {problem}" for old, new in pairwise(history) for problem in _steps(old, new)]


def _steps(old: GroupRecord, new: GroupRecord) -> Iterable[str]:
    if new.epoch == old.epoch:
        if new.master != old.master:
            yield f"epoch {new.epoch} had masters {old.master} and {new.master}"
    elif new.epoch != old.epoch + 1:
        yield f"epoch {new.epoch} after {old.epoch}"
    elif old.epoch and new.master not in old.in_sync:
        yield f"member {new.master} was elected, and only {sorted(old.in_sync)} were in sync"


def epoch_problems(epochs: EpochStarts) -> Iterable[str]:
    """Epochs rise, and so do their starts."""
    for found in ([epoch for epoch, _ in epochs], [start for _, start in epochs]):
        if found != sorted(set(found)):
            yield f"R4: the epochs do not rise: {epochs}"
            return


def ack_problems(acks: Iterable[Ack], history: Iterable[GroupRecord], epochs: EpochStarts) -> Iterable[str]:
    """What was acknowledged in an epoch was acknowledged by its master alone; the first that was not."""
    leaders = {record.epoch: record.members[record.master].address for record in history if record.master}
    starts = [start for _, start in epochs]
    for ack in acks:
        place = bisect_right(starts, ack.log_offset) - 1
        epoch = epochs[place][0] if place >= 0 else 0
        if leaders.get(epoch) != ack.address:
            yield f"R3: {ack.address} acknowledged what is at {ack.log_offset}, in epoch {epoch} of {leaders.get(epoch)}"
            return
