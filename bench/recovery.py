"""Measures how long a broker takes to serve again after kill -9, with `recovery_gib` in its store.

Each pair starts both sides on empty folders, fills them with the same messages, kills them and starts them again. All
acknowledged messages must be there: the page cache survives the process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import wire
from bench.loads import SEND_TOPIC, Loads
from bench.results import BACKLOG_BATCH, RecoveryTime
from bench.sides import Side, SideFailed

BODY_BYTES = 1024
RECORD_BYTES = 91 + BODY_BYTES + len(SEND_TOPIC) + 52  # of a stored message: fields, body, topic, properties
LEAST_MESSAGES = BACKLOG_BATCH * 8


def messages_for(gib: float) -> int:
    """How many messages fill so much of a commit log, in whole batches.

    >>> messages_for(0.5) * RECORD_BYTES / 2**30
    0.4999...
    """
    return max(LEAST_MESSAGES, int(gib * 2**30 / RECORD_BYTES) // BACKLOG_BATCH * BACKLOG_BATCH)


def recoveries(sides: list[Side], loads: Loads, scratch: Path, say: Callable[[str], None]) -> Iterator[RecoveryTime]:
    for pair in range(loads.plan.recoveries):
        for side in sides:
            directory = scratch / f"{side.label}-recovery-{pair}"
            try:
                found = _recover(side, pair, loads, directory)
            finally:
                side.stop()
                shutil.rmtree(directory, ignore_errors=True)
            said = f"VOID: {found.void}" if found.void else f"first ack after {found.first_ack_s:.2f} s"
            say(f"{side.label}: kill -9 with {found.messages:,} messages of 1 KiB, {said}")
            yield found


def _recover(side: Side, pair: int, loads: Loads, directory: Path) -> RecoveryTime:
    count = messages_for(loads.plan.recovery_gib)
    side.start(directory)
    wire.create_topic(side.namesrv, side.broker, SEND_TOPIC, loads.plan.queues)
    filled = loads.send_batches(side, SEND_TOPIC, count, body=BODY_BYTES)
    if filled["errors"]:
        return RecoveryTime(side.label, pair, count, void=f"it could not be filled: {filled['first_error']}")
    side.crash()
    try:
        times = side.start_again()
    except SideFailed as error:
        return RecoveryTime(side.label, pair, count, void=f"it did not start again: {error}")
    stored = wire.stored_messages(side.broker, SEND_TOPIC, loads.plan.queues)
    void = "" if stored == count else f"{count} messages were acknowledged, {stored} are there"
    return RecoveryTime(side.label, pair, count, times.ready_s, times.first_ack_s, void)
