"""S5: consume queues, index, checkpoint and abort file are deleted, truncated, swapped or flipped.

All of them follow from the log. After a start the queues must be byte for byte what dispatching the same log into a fresh
folder gives, and every key must be found. Flipped bits inside a queue file are looked for only when asked to.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

from rocketline.clock import ManualClock
from rocketline.errors import StoreError
from rocketline.store.config import UNIT_BYTES, FlushConfig, StoreConfig
from rocketline.store.message_store import MessageStore, StoreMessage

from ..outcome import Outcome
from .torn_writes import HOST, _message

CONFIG = StoreConfig(
    log_segment_bytes=32 << 10,
    queue_segment_bytes=50 * UNIT_BYTES,
    index_slots=100,
    index_entries=400,
    max_message_bytes=8192,
    flush=FlushConfig(log_interval_ms=10**9, queue_interval_ms=10**9),
)
MESSAGES = 500
TOPICS = ("orders", "events", "audit")
VARIANTS = (
    "delete queue", "truncate queue", "swap queues", "flip queue", "delete index", "truncate index", "flip index",
    "delete checkpoint", "truncate checkpoint", "flip checkpoint", "delete abort", "add abort", "delete everything derived",
)  # fmt: skip


def run(folder: Path, seed: int, variant: str = VARIANTS[0], runs: int = 5) -> Outcome:
    outcome = Outcome("S5", variant, seed)
    random = Random(seed)
    for number in range(runs):
        place = folder / str(number)
        _fill(place / "store", random, crashes=variant == "delete abort" or random.random() < 0.5)
        _damage(place / "store", variant, random)
        _check(outcome, place, variant, f"seed {seed} run {number}")
        outcome.runs += 1
        shutil.rmtree(place)
    return outcome


def _fill(root: Path, random: Random, crashes: bool) -> None:
    """A store with rolled files, closed, or left as a kill would leave it."""
    clock = ManualClock()
    store = MessageStore(root, CONFIG, HOST, clock=clock)
    store.open()
    for number in range(MESSAGES):
        store.append(_numbered(number, random))
        if number % 50 == 49:
            clock.advance(2.0)
            store.dispatch()
        if number == MESSAGES * 3 // 4:
            store.flush_now()
    store.dispatch()
    if crashes:
        store.flush_now()  # or what lies behind the last flush may be cut off, and rightly so
        killed = root.with_name("killed")
        shutil.copytree(root, killed)
        store.close()
        shutil.rmtree(root)
        os.replace(killed, root)
    else:
        store.close()


def _numbered(number: int, random: Random) -> StoreMessage:
    message = _message(
        random.randbytes(random.randint(1, 400)), random.choice(TOPICS), UNIQ_KEY=f"U{number}", KEYS=f"key{number}"
    )
    message.queue_id = random.randrange(3)
    return message


def _damage(root: Path, variant: str, random: Random) -> None:
    verb, _, kind = variant.partition(" ")
    if variant == "delete everything derived":
        for name in ("consumequeue", "index"):
            shutil.rmtree(root / name)
        (root / "checkpoint").unlink()
    elif kind == "abort":
        (root / "abort").write_bytes(b"1") if verb == "add" else (root / "abort").unlink(missing_ok=True)
    elif verb == "swap":
        one, other = random.sample(_files(root, "consumequeue"), 2)
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(kept)
    else:
        target = random.choice(_files(root, {"queue": "consumequeue", "index": "index"}.get(kind, kind)))
        _hurt(target, verb, random)


def _hurt(path: Path, verb: str, random: Random) -> None:
    if verb == "delete":
        path.unlink()
    elif verb == "truncate":
        os.truncate(path, random.randrange(path.stat().st_size))
    else:
        data = bytearray(path.read_bytes())
        used = len(data.rstrip(b"\0")) or 1
        data[random.randrange(used)] ^= 1 << random.randrange(8)
        path.write_bytes(data)


def _files(root: Path, name: str) -> list[Path]:
    path = root / name
    return [path] if path.is_file() else sorted(item for item in path.rglob("*") if item.is_file())


def _check(outcome: Outcome, place: Path, variant: str, case: str) -> None:
    root, fresh = place / "store", place / "fresh"
    shutil.copytree(root / "commitlog", fresh / "commitlog")
    # A queue is only compared unit by unit with the log when asked to; everything else must be noticed without.
    config = (
        replace(CONFIG, verify_on_start=True) if "queue" in variant and not variant.startswith("delete") else CONFIG
    )
    for folder, settings in ((fresh, CONFIG), (root, config)):
        store = MessageStore(folder, settings, HOST, clock=ManualClock(1_800_000_000_000))
        try:
            store.open()
        except StoreError as error:
            outcome.violations.append(f"{case}, {variant}: does not open: {error}")
            return
        # An index has no checksum: a flipped entry can lose its key, and nobody can tell.
        wanted = range(MESSAGES) if variant != "flip index" else ()
        missing = [number for number in wanted if not _is_found(store, number)]
        outcome.require(
            not missing, f"{case}, {variant}: keys of {len(missing)} messages are not found in {folder.name}"
        )
        store.close()
    outcome.require(_tree(root) == _tree(fresh), f"{case}, {variant}: queues differ from freshly dispatched ones")


def _is_found(store: MessageStore, number: int) -> bool:
    return any(store.query(topic, f"key{number}", 4).records for topic in TOPICS)


def _tree(root: Path) -> dict[str, bytes]:
    """Content of every queue file that lists anything."""
    found = {str(path.relative_to(root)): path.read_bytes() for path in _files(root, "consumequeue")}
    return {name: data for name, data in found.items() if any(data)}
