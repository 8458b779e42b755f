"""S26: a second process on a store in use, and stores that are not ours to touch, are refused and left as they were."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from random import Random

from rocketline.clock import ManualClock
from rocketline.errors import StoreError
from rocketline.store.message_store import MessageStore

from ..child import BrokerChild, DidNotStart
from ..outcome import Outcome
from ..plan import SYNC, plan_for
from .derived_files import CONFIG, _fill
from .lives import Lives
from .torn_writes import HOST

IN_USE, MAGIC, SEGMENT_SIZE, NAMES = "in use", "unknown magic", "other segment size", "strange names"
VARIANTS = (IN_USE, MAGIC, SEGMENT_SIZE, NAMES)
OUR_MAGIC = b"\xda\xa3\x20\xa7"
NEWER_MAGIC = b"\xda\xa3\x20\xaf"


async def run(folder: Path, seed: int, variant: str = IN_USE, runs: int = 1) -> Outcome:
    outcome = Outcome("S26", variant, seed)
    random = Random(seed)
    for number in range(runs):
        place = folder / str(number)
        if variant == IN_USE:
            await _second_process(outcome, place, random)
        else:
            _foreign(outcome, place / "store", variant, random)
        outcome.runs += 1
        shutil.rmtree(place, ignore_errors=True)
    return outcome


async def _second_process(outcome: Outcome, place: Path, random: Random) -> None:
    lives = Lives(outcome, random)
    # Nothing saves or flushes by the clock meanwhile, so any change is the second process's doing.
    still = {"flushConsumerOffsetInterval": "600000", "flushDelayOffsetInterval": "600000"}
    plan = plan_for(place / "store", SYNC, still)
    async with lives.life(plan) as first:
        before = tree_hash(plan.root)
        second = BrokerChild(plan)
        try:
            await second.start()
            outcome.violations.append("S26: a second broker started on a folder in use")
        except DidNotStart as refusal:
            outcome.require("StoreInUse" in str(refusal), f"S26: the second broker was refused with {refusal}")
        finally:
            second.kill()
        outcome.require(tree_hash(plan.root) == before, "S26: the refused broker changed the folder")
        await lives.load_until_killed(first)
    async with lives.life(plan) as again:
        await lives.check(again, full=True)
    outcome.acked += lives.ledger.ack_count


def _foreign(outcome: Outcome, root: Path, variant: str, random: Random) -> None:
    _fill(root, random, crashes=random.random() < 0.5)
    _make_foreign(root, variant)
    before = tree_hash(root)
    store = MessageStore(root, CONFIG, HOST, clock=ManualClock())
    try:
        store.open()
    except StoreError as refusal:
        outcome.require(str(root) in str(refusal), f"S26: {variant}: the refusal names no file: {refusal}")
    else:
        outcome.require(variant == NAMES, f"S26: {variant}: the store was opened")
        store.close()
    if variant == NAMES:
        outcome.require((root / "commitlog" / "notes.txt").read_text() == "mine", "S26: a strange file was touched")
    else:
        outcome.require(tree_hash(root) == before, f"S26: {variant}: the refused folder was changed")


def _make_foreign(root: Path, variant: str) -> None:
    files = sorted((root / "commitlog").iterdir())
    if variant == MAGIC:
        for path in files:
            path.write_bytes(path.read_bytes().replace(OUR_MAGIC, NEWER_MAGIC))
    elif variant == SEGMENT_SIZE:
        for path in files:
            path.write_bytes(path.read_bytes() * 2)
    else:
        (root / "commitlog" / "notes.txt").write_text("mine")
        (root / "commitlog" / "12").write_text("short")
        (root / "consumequeue" / "README").write_text("mine")


def tree_hash(root: Path) -> str:
    """Of every name and byte in a folder, but for the lock, which whoever asks for it writes."""
    total = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.name == "lock":
            continue
        total.update(str(path.relative_to(root)).encode() + b"\0")
        if path.is_file():
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
