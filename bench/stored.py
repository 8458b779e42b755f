"""Measures the cost of a send with more and more stored messages: brokers with 10 and 100 times as many.

The brokers take turns and get the same number of sends, so that the smallest stays small and conditions are equal:
memory that a virtual machine has not used before costs several times as much, and the later broker would get it. The
figure is the broker's CPU time per message.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import machine, wire
from bench.generators import LoadFailed
from bench.loads import BODY_BYTES, SEND_TOPIC, Loads
from bench.results import MeasuredRun
from bench.sides import Side

SENDS = {"connections": 8, "window": 32}
REPEATS = 5
STEP_NAMES = ("stored-small", "stored-x10", "stored-x100")


def costs(sides: Sequence[Side], loads: Loads, scratch: Path, say: Callable[[str], None]) -> Iterator[MeasuredRun]:
    """Runs on new brokers, one for each size."""
    names = dict(zip(STEP_NAMES, sides, strict=True))
    try:
        for (name, side), size in zip(names.items(), loads.plan.stored, strict=True):
            _fill(side, scratch / name, loads, size)
            say(f"{side.label}: {size:,} messages stored")
        for repeat in range(REPEATS):
            for name, side in names.items():
                side.thaw()
                yield _run(side, loads, name, repeat)
                side.freeze()
    finally:
        for name, side in names.items():
            side.stop()
            shutil.rmtree(scratch / name, ignore_errors=True)


def _fill(side: Side, directory: Path, loads: Loads, size: int) -> None:
    """Start a broker, let it store `size` messages, flush them to disk, and freeze it."""
    side.start(directory)
    wire.create_topic(side.namesrv, side.broker, SEND_TOPIC, loads.plan.queues)
    loads.send_batches(side, SEND_TOPIC, size)
    os.sync()
    side.freeze()


def _run(side: Side, loads: Loads, name: str, repeat: int) -> MeasuredRun:
    queues = loads.plan.queues
    before = wire.stored_messages(side.broker, SEND_TOPIC, queues)
    cpu = machine.cpu_seconds(side.pids())
    count = min(loads.plan.stored[0], 100_000)
    try:
        found = loads.raw.run(
            side.broker, side.broker_name, 60, topic=SEND_TOPIC, queues=queues, body=BODY_BYTES, count=count, **SENDS
        )
        void = loads.wrongly_stored(side, [SEND_TOPIC], queues, before, found)
    except (LoadFailed, wire.WireError) as error:
        return MeasuredRun(side.label, name, repeat, void=str(error))
    cpu = machine.cpu_seconds(side.pids()) - cpu
    return MeasuredRun(
        side.label, name, repeat, void, cpu_per_million_s=cpu / max(1, found["acked"]) * 1e6, details=found
    )
