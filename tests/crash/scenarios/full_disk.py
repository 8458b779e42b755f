"""S7: the disk is full. Sends get a clear refusal, reads go on, and when space returns so do sends, without a restart.

Space runs out at a chosen reservation of blocks, or for real on a small file system in memory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from tests.support.patience import PATIENCE_S

from rocketline.protocol.codes import ResponseCode

from ..child import BrokerChild
from ..load import QUEUES, Load
from ..outcome import Outcome
from ..plan import ASYNC, SYNC, Plan, Troubles, plan_for
from ..wire import Wire
from .lives import DidNotStart, Lives
from .power_cuts import MIX, SMALL

INJECTED, TMPFS = "injected", "tmpfs"
TMPFS_MIB = 64
BALLAST_MIB = 24
MOST_ACKS = 60_000
KEEP_OLD_FILES = {
    "cleanFileForciblyEnable": "false",
    "diskSpaceWarningLevelRatio": "99",
    "diskSpaceCleanForciblyRatio": "98",
    "diskMaxUsedSpaceRatio": "97",
}


async def run(folder: Path, seed: int, variant: str = INJECTED, runs: int = 1, faults: tuple[str, ...] = ()) -> Outcome:
    outcome = Outcome("S7", variant, seed)
    random = Random(seed)
    for number in range(runs):
        lives = Lives(outcome, random, MIX)
        place = folder / str(number)
        mode = random.choice((SYNC, ASYNC))
        try:
            if variant == TMPFS:
                async with _small_disk(place):
                    plan = plan_for(place / "store", mode, SMALL, KEEP_OLD_FILES)
                    await _fill_up(lives, plan, place)
            else:
                troubles = Troubles(no_space_at=random.randint(3, 40))
                await _fill_up(lives, plan_for(place / "store", mode, SMALL, troubles=troubles, faults=faults), None)
        except DidNotStart as error:
            outcome.violations.append(f"S7: the broker did not come back: {error}")
        outcome.runs += 1
        outcome.acked += lives.ledger.ack_count
        outcome.duplicates += lives.checker.duplicates
        shutil.rmtree(place, ignore_errors=True)
    return outcome


async def _fill_up(lives: Lives, plan: Plan, disk: Path | None) -> None:
    outcome = lives.outcome
    async with lives.life(plan) as child:
        async with Load(child.address, lives.ledger, lives.random.getrandbits(32), MIX, most_acks=MOST_ACKS) as load:
            await load.producers_end()
        refusals = set(load.codes) - {ResponseCode.SUCCESS}
        outcome.require(
            refusals == {ResponseCode.SERVICE_NOT_AVAILABLE}, f"S7: a full disk was answered with {dict(load.codes)}"
        )
        if disk is None:
            await child.heal()
        else:
            (disk / "ballast").unlink()
        await _resumes(lives, child)
        await lives.check(child, full=True)
    async with lives.life(plan_for(plan.root, plan.settings)) as again:
        await lives.check(again, full=True)


async def _resumes(lives: Lives, child: BrokerChild) -> None:
    """Sends are taken again soon, and what was refused to be listed is readable."""
    ledger = lives.ledger
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    async with Wire(child.address) as wire:
        for queue in QUEUES:
            while await wire.send(ledger, [ledger.new_attempt(1, queue, 300)]) != ResponseCode.SUCCESS:
                if loop.time() > deadline:
                    reason = (await child.stats())["reason"]
                    lives.outcome.violations.append(f"S7: space is back, sends are not: {reason!r}")
                    return
                await asyncio.sleep(0.05)
        for queue in QUEUES:
            while (await wire.ends(queue))[1] <= max(ledger.acked[queue], default=-1) and loop.time() < deadline:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def _small_disk(place: Path) -> AsyncIterator[None]:
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={TMPFS_MIB}m", "tmpfs", str(place)], check=True)
    try:
        with open(place / "ballast", "wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, BALLAST_MIB << 20)
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def can_mount(folder: Path) -> bool:
    """Whether this process may mount a file system of its own."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True).returncode != 0:
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True
