"""A broker to be killed: `python -m tests.crash.broker_process PLAN`, a plan as JSON.

Says one line of JSON when it serves: process, port, and what recovery found. After that it answers lines on its standard
input: `stats` tells what can only be seen from inside, `slow` begins planned slowness and `fast` ends it, `fill` fills the
disk and `room` makes room, `fail` has the next flush of the log fail, `stall 0.5` keeps the event loop from everything for
so long, `heal` ends all trouble. It ends with its standard input, so no broker outlives the harness.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from tests.replication.planted import FIXED_FAULTS, GROUP_FAULTS, JUMPING_CLOCKS

from rocketline.broker import Broker
from rocketline.broker.config import BrokerConfig
from rocketline.cli.logs import LoggingOptions, log_to_stderr
from rocketline.cli.servers.serving import run
from rocketline.errors import RocketlineError
from rocketline.settings import load
from rocketline.store.events import StoreEvents
from rocketline.store.message_store import MessageStore, RecoveryReport

from .faults import FAULTS, plant
from .metadata_steps import die_inside
from .plan import Plan
from .shadow_disk import Shadow
from .syscalls import Syscalls

LAG_STEP_S = 0.005


class Opened:
    """The store of the one broker in this process, noted as it opens."""

    def __init__(self) -> None:
        self.store: MessageStore | None = None
        self.report: RecoveryReport | None = None
        self.seconds = 0.0
        really_open = MessageStore.open

        def open_and_note(store: MessageStore, events: StoreEvents) -> RecoveryReport:
            started = time.monotonic()
            report = really_open(store, events)
            self.store, self.report, self.seconds = store, report, time.monotonic() - started
            return report

        setattr(MessageStore, "open", open_and_note)


class Lag:
    """How late the event loop runs what is due."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def measure(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_STEP_S
            await asyncio.sleep(LAG_STEP_S)
            self.worst_s = max(self.worst_s, loop.time() - due)


async def serve(plan: Plan) -> None:
    shadow = Shadow(plan.root, Path(plan.shadow)) if plan.shadow else None
    syscalls = Syscalls(plan.troubles, shadow)
    syscalls.install()
    opened = Opened()
    for name in plan.faults:
        plant(name, FAULTS | GROUP_FAULTS | FIXED_FAULTS | JUMPING_CLOCKS)
    if plan.troubles.die_in:
        die_inside(plan.troubles.die_in, plan.troubles.die_before, plan.troubles.die_at)
    config, unknown = load(BrokerConfig, {**plan.settings, "storePathRootDir": plan.store}, "plan")
    assert not unknown, f"there is no setting {unknown}"
    async with Broker(config) as broker:
        assert opened.report is not None
        report = {"after_crash": opened.report.after_crash, **asdict(opened.report)}
        say({"pid": os.getpid(), "port": broker.port, "open_s": opened.seconds, "report": report})
        syscalls.watch_loop()
        lag = Lag()
        measuring = asyncio.create_task(lag.measure())
        answer_questions(broker, opened, syscalls, lag)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            measuring.cancel()


def answer_questions(broker: Broker, opened: Opened, syscalls: Syscalls, lag: Lag) -> None:
    loop = asyncio.get_running_loop()

    def answer(question: str) -> None:
        if question == "heal":
            syscalls.heal()
        elif question == "slow":
            syscalls.slow_down()
            lag.worst_s = 0.0
        elif question == "fast":
            syscalls.speed_up()
        elif question in ("fill", "room"):
            syscalls.have_space(question == "room")
        elif question.startswith("stall "):
            time.sleep(float(question.partition(" ")[2]))
        elif question == "fail":
            syscalls.fail_next_flush()
        say(stats(broker, opened, syscalls, lag))

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(answer, line.strip())
        os._exit(3)

    threading.Thread(target=listen, name="questions", daemon=True).start()


def stats(broker: Broker, opened: Opened, syscalls: Syscalls, lag: Lag) -> dict[str, Any]:
    store, source = opened.store, broker.parts.roles.source
    assert store is not None
    return {
        "reason": store.reason,
        "log_next_offset": store.log_next_offset,
        "flushed_offset": store.flushed_offset,
        "damaged_records": getattr(store, "damaged_records", None),
        "syncs": sum(syscalls.syncs.values()),
        "syncs_after_failure": syscalls.syncs_after_failure,
        "failed_empty": syscalls.failed_empty,
        "syncs_on_loop": dict(syscalls.on_loop),
        "threads": threading.active_count(),
        "waiting": len(broker.parts.durability._waiting),
        "worst_lag_s": lag.worst_s,
        "ha_connections": len(source.connections) if source is not None else 0,
        "connections": len(broker._server.channels),
        "tasks": Counter(getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()),
        "deleted_maps": deleted_maps(broker._root),
    }


def deleted_maps(root: Path) -> list[str]:
    """Files of the store that are mapped and have no name any more."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    return [line for line in lines if line.endswith("(deleted)") and str(root) in line]


def say(facts: dict[str, Any]) -> None:
    print(json.dumps(facts, default=str), flush=True)


def main() -> int:
    log_to_stderr(LoggingOptions())
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    try:
        run(serve(plan))
    except RocketlineError as error:
        say({"refused": f"{type(error).__name__}: {error}"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
