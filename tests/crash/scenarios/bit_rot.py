"""S4: bits flip, or a sector turns to zeros, in an old log file; with a restart after it or under a running store.

The damaged record is reported and never served with another body; all its neighbours are served; no file goes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from rocketline.clock import ManualClock
from rocketline.errors import CorruptRecord, StoreError
from rocketline.protocol.records import Record, decode_record
from rocketline.store.message_store import MessageStore

from ..outcome import Outcome
from .derived_files import CONFIG, MESSAGES, TOPICS, _fill
from .torn_writes import HOST

VARIANTS = ("running", "clean stop", "crash")
SECTOR_BYTES = 512
Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


def run(folder: Path, seed: int, variant: str = VARIANTS[0], runs: int = 10) -> Outcome:
    outcome = Outcome("S4", variant, seed)
    random = Random(seed)
    _fill(folder / "sound", random, crashes=variant == "crash")
    for number in range(runs):
        root = folder / str(number)
        shutil.copytree(folder / "sound", root)
        _try(outcome, root, variant, random, f"seed {seed} run {number}")
        outcome.runs += 1
        shutil.rmtree(root)
    return outcome


def _try(outcome: Outcome, root: Path, variant: str, random: Random, case: str) -> None:
    files = sorted((root / "commitlog").iterdir())
    sound = _records(files)
    store = MessageStore(root, CONFIG, HOST, clock=ManualClock())
    if variant == "running":
        store.open()
    hurt = _hurt(random.choice(files[:-2]), random)
    what = f"{case}: bytes {hurt.start}-{hurt.stop} of the log"
    damaged = {place for place, record in sound.items() if _overlaps(record, hurt)}
    if variant != "running":
        try:
            store.open()
        except StoreError as error:
            outcome.violations.append(f"{what}: does not open: {error}")
            return
    found = _served(store)
    reported = getattr(store, "damaged_records", None)
    store.close()
    _judge(outcome, what, sound, found, damaged)
    outcome.require(not damaged - set(found) or reported != 0, f"{what}: {len(damaged)} damaged, none reported")
    outcome.require(set(files) <= set((root / "commitlog").iterdir()), f"{what}: a log file was deleted")


def _judge(
    outcome: Outcome, what: str, sound: dict[Place, Record], found: dict[Place, Record], damaged: set[Place]
) -> None:
    wrong = [place for place, record in found.items() if place not in sound or record.body != sound[place].body]
    missing = [place for place in sound if place not in found and place not in damaged]
    outcome.require(not wrong, f"{what}: served with another body: {wrong[:3]}")
    outcome.require(not missing, f"{what}: {len(missing)} sound neighbours are not served, such as {missing[:3]}")
    outcome.acked += len(sound)


def _hurt(path: Path, random: Random) -> range:
    """Damage a file in place, as a running store sees it too; the log offsets that changed."""
    data = path.read_bytes()
    base = int(path.name)
    if random.random() < 0.5:
        at = random.randrange(len(data))
        new = bytes([data[at] ^ 1 << random.randrange(8)])
    else:
        at = random.randrange(len(data) // SECTOR_BYTES) * SECTOR_BYTES
        new = bytes(SECTOR_BYTES)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(new)
    return range(base + at, base + at + len(new))


def _overlaps(record: Record, hurt: range) -> bool:
    return record.log_offset < hurt.stop and hurt.start < record.log_offset + record.size


def _records(files: list[Path]) -> dict[Place, Record]:
    """What the undamaged log holds, read without the store."""
    found: dict[Place, Record] = {}
    for path in files:
        data, position = path.read_bytes(), 0
        while position < len(data):
            try:
                record = decode_record(data, position, len(data), check_crc=True)
            except CorruptRecord:
                break
            found[record.topic, record.queue_id, record.queue_offset] = record
            position += record.size
    assert len(found) == MESSAGES
    return found


def _served(store: MessageStore) -> dict[Place, Record]:
    """Everything a reader gets from the store."""
    found: dict[Place, Record] = {}
    for topic in TOPICS:
        for queue_id in store.queue_ids(topic):
            offset = store.min_offset(topic, queue_id)
            while offset < store.max_offset(topic, queue_id):
                result = store.read(topic, queue_id, offset, 32)
                for chunk in result.chunks:
                    found.update(_decoded(topic, queue_id, bytes(chunk)))
                if result.next_queue_offset <= offset:
                    break
                offset = result.next_queue_offset
    return found


def _decoded(topic: str, queue_id: int, chunk: bytes) -> dict[Place, Record]:
    found: dict[Place, Record] = {}
    position = 0
    while position < len(chunk):
        try:
            record = decode_record(chunk, position, len(chunk))
        except CorruptRecord:
            break
        found[topic, queue_id, record.queue_offset] = record
        position += record.size
    return found
