"""S6: a flush of the log fails. The kernel may have dropped what was dirty, so nothing after it can be believed.

The sends it should have covered are not acknowledged, the broker is read-only and says why, still serves reads, and leaves
the file alone. Then the power fails too, which shows what was on the disk, and the store is checked after a restart.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

from msgspec.structs import replace
from tests.support.patience import PATIENCE_S

from rocketline.errors import TransportError
from rocketline.protocol.codes import ResponseCode

from ..child import BrokerChild
from ..load import QUEUES, Load
from ..outcome import Outcome
from ..plan import SYNC, Troubles, plan_for
from ..shadow_disk import cut
from ..wire import Wire
from .lives import DidNotStart, Lives, shadow_of
from .power_cuts import MIX, SMALL

STRACE = "strace"
ACKS_A_FLUSH = 100
"""More than one flush covers: when the failing one must be long past, the broker has failed to notice."""


async def run(
    folder: Path,
    seed: int,
    variant: str = "patched",
    runs: int = 1,
    faults: tuple[str, ...] = (),
    troubles: Troubles | None = None,
) -> Outcome:
    """The flush of the log whose number is the seed fails, in more runs those after it; by strace the kernel says so."""
    outcome = Outcome("S6", variant, seed)
    random = Random(seed)
    for number in range(runs):
        lives = Lives(outcome, random, MIX)
        place = folder / str(number)
        failing = replace(troubles or Troubles(), sync_error_at=seed + number)
        try:
            if variant == STRACE:
                await _by_strace(lives, place, seed + number)
            else:
                await _by_patch(lives, place, failing, faults)
        except DidNotStart as error:
            outcome.violations.append(f"the broker did not come back: {error}")
        outcome.runs += 1
        outcome.acked += lives.ledger.ack_count
        outcome.duplicates += lives.checker.duplicates
        shutil.rmtree(place, ignore_errors=True)
    return outcome


async def _by_patch(lives: Lives, place: Path, troubles: Troubles, faults: tuple[str, ...]) -> None:
    store = place / "store"
    failing = plan_for(store, SYNC, SMALL, shadow=shadow_of(store), troubles=troubles, faults=faults)
    async with lives.life(failing) as child:
        await _load_until_refused(lives, child, troubles.sync_error_at)
        syncs = (await child.stats())["syncs_after_failure"]
        lives.outcome.require(syncs == 0, f"S6: after its failed flush the log file was flushed {syncs} more times")
    cut(store, Path(failing.shadow), lives.random.getrandbits(32))
    async with lives.life(plan_for(store, SYNC, SMALL)) as child:
        await lives.check(child, full=True)


async def _by_strace(lives: Lives, place: Path, nth: int) -> None:
    plan = plan_for(place / "store", SYNC, SMALL)
    child = BrokerChild(plan, under=[STRACE, *_inject(nth), "-o", str(place / "strace")])
    place.mkdir(parents=True)
    try:
        await child.start()
        await _load_until_refused(lives, child, nth)
    except DidNotStart as refused:
        # By strace any file's flush may be the one, also of those that are made before the broker serves.
        lives.outcome.require("cannot flush" in str(refused), f"S6: the reason for not starting is {refused}")
    finally:
        child.kill()
    async with lives.life(plan) as again:
        await lives.check(again, full=True)


def _inject(nth: int) -> list[str]:
    return ["-f", "-qq", "-e", "trace=fdatasync", "-e", f"inject=fdatasync:error=EIO:when={nth}"]


async def _load_until_refused(lives: Lives, child: BrokerChild, nth: int) -> None:
    outcome = lives.outcome
    seed, most_acks = lives.random.getrandbits(32), ACKS_A_FLUSH * (nth + 10)
    async with Load(child.address, lives.ledger, seed, MIX, most_acks=most_acks) as load:
        await load.producers_end()
    refusals = set(load.codes) - {ResponseCode.SUCCESS}
    outcome.require(
        refusals == {ResponseCode.SERVICE_NOT_AVAILABLE}, f"S6: the failed flush was answered with {dict(load.codes)}"
    )
    stats = await child.stats()
    if stats["failed_empty"] and not stats["reason"]:
        return  # a new file that failed before anything was in it may be thrown away and made again
    await _check_read_only(lives, child)


async def _check_read_only(lives: Lives, child: BrokerChild) -> None:
    """No further send is taken, the reason is told, and everything acknowledged is still served."""
    outcome, ledger = lives.outcome, lives.ledger
    reason = (await child.stats())["reason"]
    outcome.require("read-only" in reason and "cannot flush" in reason, f"S6: the reason given is {reason!r}")
    async with Wire(child.address) as wire:
        for producer in range(3):
            try:
                code = await wire.send(ledger, [ledger.new_attempt(producer, QUEUES[producer], 200)])
            except TransportError as error:
                outcome.violations.append(f"S6: a send to the read-only broker went unanswered: {error}")
                return
            outcome.require(
                code == ResponseCode.SERVICE_NOT_AVAILABLE, f"S6: a read-only broker answered a send with {code}"
            )
    await lives.check(child, full=True)


def can_strace() -> bool:
    """Whether strace is there and may inject failures on this machine."""
    command = shutil.which(STRACE)
    if command is None:
        return False
    probe = subprocess.run([command, *_inject(1), "true"], capture_output=True, timeout=PATIENCE_S)
    return probe.returncode == 0
