"""S2: the power fails under load: only what was flushed stays, and a random part of what was not.

With SYNC_FLUSH nothing acknowledged may be missing. Otherwise what is lost must be the end of the log and nothing else, and
none of it may have been on the disk: acknowledged before a flush of its file that has returned, or there when the broker
started.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import NamedTuple

from ..ledger import Attempt
from ..load import Mix
from ..outcome import Outcome
from ..plan import ASYNC, SYNC, Plan, Troubles, plan_for
from ..shadow_disk import Remains, cut
from .lives import MAX_LIFE_S, DidNotStart, Lives, shadow_of

MODES = {
    "SYNC_FLUSH": SYNC,
    "ASYNC_FLUSH": ASYNC,
    "ASYNC_FLUSH with pool": {**ASYNC, "transientStorePoolEnable": "true", "transientStorePoolSize": "3"},
}
SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "mappedFileSizeConsumeQueue": "2000"}
FLUSH_MS = (5, 25, 120)
MIX = Mix(max_bytes=32 << 10)


async def run(
    folder: Path,
    seed: int,
    variant: str = "SYNC_FLUSH",
    runs: int = 5,
    faults: tuple[str, ...] = (),
    troubles: Troubles | None = None,
    settings: dict[str, str] | None = None,
    most_s: float = MAX_LIFE_S,
) -> Outcome:
    outcome = Outcome("S2", variant, seed)
    random = Random(seed)
    lives = Lives(outcome, random, MIX)
    store = folder / "store"
    chosen = {"flushIntervalCommitLog": str(random.choice(FLUSH_MS)), **(settings or {})}
    plan = plan_for(store, MODES[variant], SMALL, chosen, shadow=shadow_of(store), faults=faults, troubles=troubles)
    last_cut: _Cut | None = None
    try:
        for number in range(runs + 1):
            async with lives.life(plan) as child:
                started = time.monotonic()
                if last_cut is not None:
                    if not plan.is_sync:
                        _judge_loss(outcome, plan, lives.ledger.lose_from(child.report["log_next_offset"]), last_cut)
                    await lives.check(child, full=True, lossy=not plan.is_sync)
                if number == runs:
                    break
                await lives.load_until_killed(child, most_s)
            remains = cut(store, Path(plan.shadow), random.getrandbits(32))
            last_cut = _Cut(started, time.monotonic(), remains)
            outcome.note("sectors lost", remains.sectors_lost)
            outcome.note("sectors kept", remains.sectors_kept)
            outcome.runs += 1
    except DidNotStart as error:
        outcome.violations.append(f"the broker did not come back: {error}")
    return lives.total()


class _Cut(NamedTuple):
    """When the broker that met the cut had started, when the power failed, and what was left."""

    started: float
    ended: float
    remains: Remains


def _judge_loss(outcome: Outcome, plan: Plan, lost: list[Attempt], last: _Cut) -> None:
    segment_bytes = int(plan.settings["mappedFileSizeCommitLog"])
    for attempt in lost:
        outcome.note("oldest loss s", last.ended - attempt.acked_at)
        file = f"{attempt.log_offset // segment_bytes * segment_bytes:020d}"
        # A flush brings to the disk what the pool has committed to the file, which is less than was acknowledged.
        was_flushed = "pool" not in outcome.variant and attempt.acked_at < last.remains.last_log_syncs.get(file, 0.0)
        outcome.require(
            attempt.acked_at >= last.started and not was_flushed,
            f"I1: {attempt} at log offset {attempt.log_offset} is lost although it was on the disk",
        )
