"""S23: flushes take long. Sends time out as documented (code 10), nothing piles up without bound, and the loop stays quick.

The waits of a real slow disk are scaled down with the time-out: what counts is that they are several times longer than it.
That the loop waits for no flush is counted and not timed: a shared machine is late for reasons of its own.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.support.patience import PATIENCE_S

from rocketline.protocol.codes import ResponseCode

from ..load import GROUP, QUEUES, Load, Mix
from ..outcome import Outcome
from ..plan import SYNC, Plan, Troubles, plan_for
from ..wire import Wire
from .lives import DidNotStart, Lives

RUNNING, FROM_START, TABLES = "running", "from the start", "tables"
"""Topics and groups are there before the disk gets slow; or are made meanwhile; or are made, but never saved."""
VARIANTS = (RUNNING, FROM_START, TABLES)

TIMEOUT_MS = 60
DELAY_MS = (20, 400)
LIFE_S = 1.5
FAULT_LIMIT_S = 30.0
"""A planted fault may keep every answer back, which is what is looked for then."""
LOG_FILE_BYTES = 16 << 20
"""From this size on the next file is made ahead; a smaller one is made on the spot, on the loop."""
MIX = Mix(producers=8, batch_share=0.2, max_bytes=4096)
MOST_THREADS = 24
TOLERATED = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.FLUSH_DISK_TIMEOUT)})
NEVER_MS = 600_000


async def run(folder: Path, seed: int, variant: str = RUNNING, runs: int = 1, faults: tuple[str, ...] = ()) -> Outcome:
    outcome = Outcome("S23", variant, seed)
    random = Random(seed)
    for number in range(runs):
        lives = Lives(outcome, random, MIX)
        place = folder / str(number)
        settings = {
            "syncFlushTimeout": str(TIMEOUT_MS),
            "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
            "brokerFastFailureEnable": "false",  # a busy machine is another reason to refuse sends
        }
        slow = plan_for(
            place / "store", SYNC, settings, troubles=_troubles(variant, random.getrandbits(32)), faults=faults
        )
        try:
            await _live_slowly(lives, slow, variant)
            async with lives.life(plan_for(place / "store", SYNC, settings, faults=faults)) as child:
                await lives.check(child, full=True)
        except DidNotStart as error:
            outcome.violations.append(f"S23: the broker did not come back: {error}")
        outcome.runs += 1
        outcome.acked += lives.ledger.ack_count
        outcome.duplicates += lives.checker.duplicates
        shutil.rmtree(place, ignore_errors=True)
    return outcome


def _troubles(variant: str, seed: int) -> Troubles:
    if variant == TABLES:
        return Troubles(sync_delay_ms=(NEVER_MS, NEVER_MS), slow_part="/config/", from_start=False)
    return Troubles(sync_delay_ms=DELAY_MS, delays_seed=seed, from_start=False)


async def _until_answered(load: Load, is_quick: bool, limit_s: float) -> None:
    """Wait until some send was answered, if need be: a busy machine may take long until the first is."""
    code = ResponseCode.SUCCESS if is_quick else ResponseCode.FLUSH_DISK_TIMEOUT
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while not load.codes[code]:
                await asyncio.sleep(0.01)


async def _live_slowly(lives: Lives, plan: Plan, variant: str) -> None:
    outcome = lives.outcome
    async with lives.life(plan) as child:
        if variant == RUNNING:
            async with Wire(child.address) as wire:
                for queue in QUEUES:
                    await wire.send(lives.ledger, [lives.ledger.new_attempt(0, queue, 200)])
                    await wire.pull(queue, 0, GROUP)
        await child.slow_down()
        seed = lives.random.getrandbits(32)
        async with Load(child.address, lives.ledger, seed, MIX, tolerated=TOLERATED) as load:
            await asyncio.sleep(LIFE_S)
            await _until_answered(load, variant == TABLES, FAULT_LIMIT_S if plan.faults else PATIENCE_S)
            stats = await child.stats()
            child.kill()
            await load.producers_end()
    outcome.note("loop lag s", stats["worst_lag_s"])
    outcome.note("threads", stats["threads"])
    outcome.note("waiting sends", stats["waiting"])
    outcome.note("timed out sends", load.codes[ResponseCode.FLUSH_DISK_TIMEOUT])
    outcome.require(set(load.codes) <= TOLERATED, f"S23: a slow disk was answered with {dict(load.codes)}")
    outcome.require(not stats["syncs_on_loop"], f"S23: the loop waited for flushes of {stats['syncs_on_loop']}")
    if variant == TABLES:
        outcome.require(lives.ledger.ack_count > 0, "S23: sends waited for a table that is never saved")
    else:
        outcome.require(load.codes[ResponseCode.FLUSH_DISK_TIMEOUT] > 0, "S23: no send was told that the disk is late")
    outcome.require(stats["threads"] <= MOST_THREADS, f"S23: {stats['threads']} threads")
    # Every producer has a few sends in flight, and those that timed out leave with the flush they waited for.
    most_waiting = MIX.producers * max(MIX.in_flight) * (2 + DELAY_MS[1] // TIMEOUT_MS) * 2
    outcome.require(stats["waiting"] <= most_waiting, f"S23: {stats['waiting']} sends wait, over {most_waiting}")
