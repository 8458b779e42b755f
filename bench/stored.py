"""What a send costs our broker when it already holds ever more: a fresh broker is filled in steps of ten.

The same number of sends at every size, so that the smallest size stays small; the figure is the broker's processor time per
message.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import machine, wire
from bench.generators import LoadFailed
from bench.loads import BODY_BYTES, SEND_TOPIC, Loads
from bench.results import Run
from bench.sides import Side

SENDS = {"connections": 8, "window": 32}
REPEATS = 5
STEP_NAMES = ("stored-small", "stored-x10", "stored-x100")


def costs(side: Side, loads: Loads, scratch: Path, say: Callable[[str], None]) -> Iterator[Run]:
    directory = scratch / "stored"
    try:
        side.start(directory)
        wire.create_topic(side.namesrv, side.broker, SEND_TOPIC, loads.plan.queues)
        for size, name in zip(loads.plan.stored, STEP_NAMES, strict=True):
            missing = size - wire.stored_messages(side.broker, SEND_TOPIC, loads.plan.queues)
            if missing > 0:
                loads.send_batches(side, SEND_TOPIC, missing)
            for repeat in range(REPEATS):
                yield _run(side, loads, name, repeat)
            say(f"{side.label}: measured sends with {size:,} messages stored")
    finally:
        side.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _run(side: Side, loads: Loads, name: str, repeat: int) -> Run:
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
        return Run(side.label, name, repeat, void=str(error))
    cpu = machine.cpu_seconds(side.pids()) - cpu
    return Run(side.label, name, repeat, void, cpu_per_million_s=cpu / max(1, found["acked"]) * 1e6, details=found)
