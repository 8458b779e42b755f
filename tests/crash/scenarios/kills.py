"""S1: kill -9 at a random moment under load, again and again on one store.

The page cache survives a kill, so nothing acknowledged may be missing in either flush mode.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from ..outcome import Outcome
from ..plan import ASYNC, SYNC, plan_for
from .lives import DidNotStart, Lives

MODES = {"SYNC_FLUSH": SYNC, "ASYNC_FLUSH": ASYNC}
FULL_EVERY = 25


async def run(
    folder: Path, seed: int, variant: str = "SYNC_FLUSH", runs: int = 10, faults: tuple[str, ...] = ()
) -> Outcome:
    outcome = Outcome("S1", variant, seed)
    lives = Lives(outcome, Random(seed))
    plan = plan_for(folder / "store", MODES[variant], faults=faults)
    try:
        for number in range(runs):
            async with lives.life(plan) as child:
                await lives.check(child, full=number % FULL_EVERY == FULL_EVERY - 1)
                await lives.load_until_killed(child)
            outcome.runs += 1
        async with lives.life(plan) as child:
            await lives.check(child, full=True)
    except DidNotStart as error:
        outcome.violations.append(f"the broker did not come back: {error}")
    return lives.total()
