"""S8: the process dies inside the replacement of a metadata file, at each of its steps.

What is left must be the content before or the content after, never nothing and never a mix, and the broker must come back.
With a power cut on top the same holds for what had reached the disk.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

from tests.support.patience import PATIENCE_S

from rocketline.errors import BrokerError, TransportError
from rocketline.files import backup_of
from rocketline.message import DELAY
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.properties import encode_properties

from ..child import BrokerChild
from ..metadata_steps import STEPS, contents_of
from ..outcome import Outcome
from ..plan import SYNC, Troubles, plan_for
from ..shadow_disk import cut
from ..wire import Wire
from .lives import DidNotStart, Lives, shadow_of

TOPICS, GROUPS, OFFSETS, DELAYS = "topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"
FILES = (TOPICS, GROUPS, OFFSETS, DELAYS)
VARIANTS = tuple(f"{file}, {step}" for file in FILES for step in STEPS)
QUICK_SAVES = {
    "flushConsumerOffsetInterval": "5",
    "flushDelayOffsetInterval": "5",
    "messageDelayLevel": "0s 0s",
}


async def run(
    folder: Path, seed: int, variant: str = VARIANTS[0], runs: int = 1, faults: tuple[str, ...] = ()
) -> Outcome:
    """`variant` names the file and the step; every other run has a power cut as well."""
    outcome = Outcome("S8", variant, seed)
    random = Random(seed)
    file, _, step = variant.partition(", ")
    for number in range(runs):
        place = folder / str(number)
        with_cut = (seed + number) % 2 == 1
        store = place / "store"
        troubles = Troubles(die_in=file, die_before=step, die_at=random.randint(1, 6))
        shadow = shadow_of(store) if with_cut else ""
        lives = Lives(outcome, random)
        try:
            plan = plan_for(store, SYNC, QUICK_SAVES, troubles=troubles, shadow=shadow, faults=faults)
            async with lives.life(plan) as child:
                await asyncio.wait_for(_change_until_dead(child, file, lives), PATIENCE_S)
            if with_cut:
                cut(store, Path(shadow), random.getrandbits(32))
        except TimeoutError:
            outcome.violations.append(f"S8: the broker lived through the saves of {file}")
        except DidNotStart:
            pass  # the system topics are saved at the first start, so it may die in that
        _check_content(outcome, store / "config" / file, with_cut)
        try:
            async with lives.life(plan_for(store, SYNC, QUICK_SAVES)) as child:
                await lives.check(child, full=True)
        except DidNotStart as error:
            outcome.violations.append(f"S8: the broker did not come back: {error}")
        outcome.runs += 1
        outcome.acked += lives.ledger.ack_count
        shutil.rmtree(place, ignore_errors=True)
    return outcome


def _check_content(outcome: Outcome, path: Path, with_cut: bool) -> None:
    before, after = contents_of(path)
    found = _usable(path)
    allowed = {before, after}
    outcome.require(
        found in allowed,
        f"S8: {path.name} has {len(found or b'')} bytes that are neither its {len(before or b'')} before nor its "
        f"{len(after or b'')} after{' the power cut' if with_cut else ''}",
    )


def _usable(path: Path) -> bytes | None:
    """What a reader gets: the file, or its backup when it is missing or empty."""
    for candidate in (path, backup_of(path)):
        with suppress(FileNotFoundError):
            if content := candidate.read_bytes():
                return content
    return None


async def _change_until_dead(child: BrokerChild, file: str, lives: Lives) -> None:
    """Keep changing what the file holds until the broker is dead, not only slow to answer."""
    change, numbers = _CHANGES[file], count()
    while child.is_alive:
        with suppress(TransportError):
            async with Wire(child.address) as wire:
                for number in numbers:
                    await change(wire, lives, number)
        await asyncio.sleep(0.01)


async def _new_topic(wire: Wire, lives: Lives, number: int) -> None:
    await wire.send(lives.ledger, [lives.ledger.new_attempt(1, (f"topic-{number}", 0), 200)])


async def _new_group(wire: Wire, lives: Lives, number: int) -> None:
    with suppress(BrokerError):
        await wire.pull(("SELF_TEST_TOPIC", 0), 0, f"group-{number}")


async def _new_offset(wire: Wire, lives: Lives, number: int) -> None:
    with suppress(BrokerError):
        await wire.pull(("SELF_TEST_TOPIC", 0), 0, "readers", commit=number)


async def _new_delay(wire: Wire, lives: Lives, number: int) -> None:
    properties = encode_properties({"UNIQ_KEY": f"D{number}", DELAY: "1"})
    header = SendMessageHeader("producers", "delayed", "TBW102", 4, 0, 0, 1_700_000_000_000, 0, properties)
    await wire.broker.call(Command(RequestCode.SEND_MESSAGE_V2, header.encode(), b"late"), PATIENCE_S)


_CHANGES: dict[str, Callable[[Wire, Lives, int], Awaitable[None]]] = {
    TOPICS: _new_topic,
    GROUPS: _new_group,
    OFFSETS: _new_offset,
    DELAYS: _new_delay,
}
