"""S23: flushes take long. Sends time out as documented (code 10), nothing piles up without bound, and the loop stays quick.

The waits of a real slow disk are scaled down with the time-out: what counts is that they are several times longer than it.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random

from rocketline.protocol.codes import ResponseCode

from ..load import GROUP, QUEUES, Load, Mix
from ..outcome import Outcome
from ..plan import SYNC, Plan, Troubles, plan_for
from ..wire import Wire
from .lives import DidNotStart, Lives

RUNNING, FROM_START = "running", "from the start"
"""Whether topics and groups are there before the disk gets slow, or are made meanwhile."""

TIMEOUT_MS = 60
DELAY_MS = (20, 400)
LIFE_S = 1.5
MIX = Mix(producers=8, batch_share=0.2, max_bytes=4096)
MOST_THREADS = 24
TOLERATED = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.FLUSH_DISK_TIMEOUT)})
WHILE_TABLES_ARE_SAVED = TOLERATED | {int(ResponseCode.SYSTEM_BUSY)}
"""A topic is on disk before its first message is answered, and whoever waited behind that for too long is sent away."""


async def run(folder: Path, seed: int, variant: str = RUNNING, runs: int = 1) -> Outcome:
    outcome = Outcome("S23", variant, seed)
    random = Random(seed)
    for number in range(runs):
        lives = Lives(outcome, random, MIX)
        place = folder / str(number)
        troubles = Troubles(
            sync_delay_ms=DELAY_MS, delays_seed=random.getrandbits(32), from_start=variant == FROM_START
        )
        settings = {"syncFlushTimeout": str(TIMEOUT_MS)}
        try:
            await _live_slowly(lives, plan_for(place / "store", SYNC, settings, troubles=troubles))
            async with lives.life(plan_for(place / "store", SYNC)) as child:
                await lives.check(child, full=True)
        except DidNotStart as error:
            outcome.violations.append(f"S23: the broker did not come back: {error}")
        outcome.runs += 1
        outcome.acked += lives.ledger.ack_count
        outcome.duplicates += lives.checker.duplicates
        shutil.rmtree(place, ignore_errors=True)
    return outcome


async def _live_slowly(lives: Lives, plan: Plan) -> None:
    outcome = lives.outcome
    tolerated = WHILE_TABLES_ARE_SAVED if plan.troubles.from_start else TOLERATED
    async with lives.life(plan) as child:
        if not plan.troubles.from_start:
            async with Wire(child.address) as wire:
                for queue in QUEUES:
                    await wire.send(lives.ledger, [lives.ledger.new_attempt(0, queue, 200)])
                    await wire.pull(queue, 0, GROUP)
        await child.slow_down()
        seed = lives.random.getrandbits(32)
        async with Load(child.address, lives.ledger, seed, MIX, tolerated=tolerated) as load:
            await asyncio.sleep(LIFE_S)
            stats = await child.stats()
            child.kill()
            await load.producers_end()
    outcome.note("loop lag s", stats["worst_lag_s"])
    outcome.note("threads", stats["threads"])
    outcome.note("waiting sends", stats["waiting"])
    outcome.note("timed out sends", load.codes[ResponseCode.FLUSH_DISK_TIMEOUT])
    outcome.require(set(load.codes) <= tolerated, f"S23: a slow disk was answered with {dict(load.codes)}")
    if not plan.troubles.from_start:
        outcome.require(load.codes[ResponseCode.FLUSH_DISK_TIMEOUT] > 0, "S23: no send was told that the disk is late")
    outcome.require(stats["threads"] <= MOST_THREADS, f"S23: {stats['threads']} threads")
    # Every producer has a few sends in flight, and those that timed out leave with the flush they waited for.
    most_waiting = MIX.producers * max(MIX.in_flight) * (2 + DELAY_MS[1] // TIMEOUT_MS) * 2
    outcome.require(stats["waiting"] <= most_waiting, f"S23: {stats['waiting']} sends wait, over {most_waiting}")
