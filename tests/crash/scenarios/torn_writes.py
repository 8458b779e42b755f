"""S3: the last record of the log is torn at every byte: cut, zeroed, filled with garbage, or followed by a later one.

Recovery must keep every record before it, end there, put the next message in its place, and still agree after another crash.
The record itself may come back only as it was written. The format has no checksum over properties, so garbage in their bytes
alone cannot be told from properties; there only the other records are checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rocketline.clock import ManualClock
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import BatchItem, decode_record
from rocketline.store.config import FlushConfig, StoreConfig
from rocketline.store.message_store import AppendResult, AppendStatus, MessageStore, StoreMessage
from rocketline.testing.disks import MemoryDisk

from ..outcome import Outcome

ROOT = Path("/data")
HOST = encode_host("127.0.0.1", 10911)
SEGMENT_BYTES = 8192
CONFIG = StoreConfig(
    log_segment_bytes=SEGMENT_BYTES,
    queue_segment_bytes=400,
    index_slots=20,
    index_entries=60,
    max_message_bytes=6000,
    flush=FlushConfig(log_interval_ms=10**9, queue_interval_ms=10**9),
)
SECTOR_BYTES = 512
KINDS = ("zeros", "garbage", "followed", "start lost", "hole")
_QUEUE = ("orders", 0)


@dataclass(frozen=True)
class Shape:
    """A kind of record to tear, and how much log to have before it."""

    name: str
    message: StoreMessage
    batch: int = 1
    before_bytes: int = 0


def _message(body: bytes, topic: str = _QUEUE[0], born: str = "127.0.0.1", **properties: str) -> StoreMessage:
    raw = encode_properties(properties).encode()
    return StoreMessage(topic, 0, body, properties, raw, 0, 0, 1_600_000_000_000, encode_host(born, 5555))


def shapes() -> dict[str, Shape]:
    """Twenty kinds of record; `fits ...` are placed against the ends of a file."""
    noise = Random(3).randbytes(5000)
    one = {"UNIQ_KEY": "0A0B0C"}
    found = [
        Shape("empty body", _message(b"", **one)),
        Shape("one byte", _message(b"x", **one)),
        Shape("plain", _message(noise[:100], **one)),
        Shape("no properties", _message(noise[:100])),
        Shape("empty body, no properties", _message(b"")),
        Shape("body of zeros", _message(bytes(300), **one)),
        Shape("body ends in zeros", _message(noise[:100] + bytes(200), **one)),
        Shape("body of ones", _message(b"\xff" * 300, **one)),
        Shape("one sector", _message(noise[:512], **one)),
        Shape("several sectors", _message(noise[:1500], **one)),
        Shape("a page", _message(noise[:4096], **one)),
        Shape("tags and keys", _message(noise[:80], TAGS="red", KEYS="a b c", **one)),
        Shape("long properties", _message(noise[:40], long="v" * 1100, **one)),
        Shape("topic over 127 bytes", _message(noise[:60], "t" * 130, **one)),
        Shape("topic beyond ASCII", _message(noise[:60], "größe", **one)),
        Shape("born on IPv6", _message(noise[:60], born="::1", **one)),
        Shape("last of a batch", _message(noise[:90]), batch=3),
        Shape("other topic, no properties", _message(noise[:60], "a-topic-of-its-own")),
        Shape("fits the file's end", _message(noise[:200], **one), before_bytes=SEGMENT_BYTES - 8),
        Shape("first of a file", _message(noise[:200], **one), before_bytes=SEGMENT_BYTES),
    ]
    return {shape.name: shape for shape in found}


@dataclass
class Scene:
    """A store that crashed right after its last record was written."""

    files: dict[Path, bytes]
    records: list[bytes]
    """All records but the last, in log order."""
    last: bytes
    last_at: int
    """Log offset of the last record."""
    unprotected_at: int
    """Position in the last record from which on nothing vouches for its bytes."""


def run(folder: Path, seed: int, variant: str = "", runs: int = 1, stride: int = 1) -> Outcome:
    """Every `stride`-th byte of the shape named by `variant`; `runs` counts the cases. Needs no folder."""
    outcome = Outcome("S3", variant, seed)
    shape = shapes()[variant]
    scene = _scene(shape, followed=False)
    followed = _scene(shape, followed=True)
    for kind in KINDS:
        for position in _positions(scene, kind, stride, seed):
            torn = _torn(scene.last, position, kind, Random(seed * 1_000_003 + position))
            _try(outcome, followed if kind == "followed" else scene, shape, torn, f"{variant}, {kind} at {position}")
    return outcome


def _positions(scene: Scene, kind: str, stride: int, seed: int) -> range:
    size = len(scene.last)
    if kind in ("zeros", "garbage"):
        return range(seed % stride, size, stride)
    # A record with something sound after the tear means a power cut, and that loses whole sectors.
    return range(-scene.last_at % SECTOR_BYTES, size, SECTOR_BYTES)


def _torn(record: bytes, position: int, kind: str, random: Random) -> bytes:
    tail = len(record) - position
    if kind == "start lost":
        return bytes(position) + record[position:]
    if kind == "hole":
        return record[:position] + bytes(min(SECTOR_BYTES, tail)) + record[position + SECTOR_BYTES :]
    return record[:position] + (random.randbytes(tail) if kind == "garbage" else bytes(tail))


def _scene(shape: Shape, followed: bool) -> Scene:
    disk = MemoryDisk()
    store = MessageStore(ROOT, CONFIG, HOST, disk=disk, clock=ManualClock())
    store.open()
    for number in range(3):
        store.append(_message(b"before %d" % number, UNIQ_KEY=f"B{number}"))
    if shape.before_bytes:
        _fill(store, shape)
    # What comes now is never flushed: only such a record can be torn.
    store.flush_now()
    result = _append(store, shape, shape.message)
    if followed:
        store.append(_message(b"written later", UNIQ_KEY="L"))
    store.dispatch()
    files = {path: disk.read(path) or b"" for path in _paths(disk, ROOT)}
    last_at = result.log_offsets[-1] if result.log_offsets else result.log_offset
    last = bytes(store.record_at(last_at) or b"")
    records = [raw for at, raw in _log_records(store) if at < last_at]
    store.close()
    properties_bytes = len(decode_record(last, 0, len(last)).properties)
    return Scene(files, records, last, last_at, len(last) - properties_bytes - 1)


def _fill(store: MessageStore, shape: Shape) -> None:
    """Bring the log's end to where the shape's record ends at, or begins after, `before_bytes`."""
    size = len(_record_of(shape.message))
    wanted = shape.before_bytes - (size if shape.before_bytes < SEGMENT_BYTES else 0)
    overhead = len(_record_of(_message(b"")))
    room = wanted - store.log_next_offset
    if shape.before_bytes == SEGMENT_BYTES:
        room -= 8  # a blank is needed, and one of its size is enough
    for body_bytes in (room // 2 - overhead, room - room // 2 - overhead):
        assert store.append(_message(b"f" * body_bytes)).status is AppendStatus.OK


def _record_of(message: StoreMessage) -> bytes:
    store = MessageStore(ROOT, CONFIG, HOST, disk=MemoryDisk(), clock=ManualClock())
    store.open()
    record = bytes(store.record_at(store.append(message).log_offset) or b"")
    store.close()
    return record


def _append(store: MessageStore, shape: Shape, message: StoreMessage) -> AppendResult:
    if shape.batch == 1:
        return store.append(message)
    items = [
        BatchItem(0, bytes([65 + number]) * 30 + bytes(message.body), b"N\x01%d\x02" % number) for number in range(3)
    ]
    return store.append_batch(message, items)


def _try(outcome: Outcome, scene: Scene, shape: Shape, torn: bytes, case: str) -> None:
    """Recover from one torn record, write on, crash again, recover again."""
    outcome.runs += 1
    is_whole = torn == scene.last
    kept = _changed(scene, torn)
    first = _recovered(kept)
    found = _log_records(first)
    records = [raw for _, raw in found]
    expected = scene.records + ([scene.last] if is_whole else [])
    if records[: len(scene.records)] != scene.records:
        outcome.violations.append(f"{case}: records before it are missing or changed")
    elif not is_whole and torn[: scene.unprotected_at] == scene.last[: scene.unprotected_at] and torn[-1]:
        first.close()
        return  # garbage in properties: nothing more can be asked
    elif records[: len(expected)] != expected or (len(records) != len(expected) and not is_whole):
        outcome.violations.append(f"{case}: {len(records)} records instead of {len(expected)}, or others")
    else:
        _write_on(outcome, first, shape, kept, scene, is_whole, case)
    first.close()


def _write_on(
    outcome: Outcome, store: MessageStore, shape: Shape, disk: MemoryDisk, scene: Scene, is_whole: bool, case: str
) -> None:
    before = _log_records(store)
    message = _message(bytes(shape.message.body), shape.message.topic, **shape.message.properties)
    message.born_host = shape.message.born_host
    result = _append(store, Shape("", message), message)
    store.dispatch()
    if not is_whole and shape.batch == 1 and result.log_offset != scene.last_at:
        outcome.violations.append(f"{case}: the next message went to {result.log_offset}, not to {scene.last_at}")
    written = _log_records(store)
    if len(written) != len(before) + 1 or not _queues_agree(store, written):
        outcome.violations.append(f"{case}: the next message is not found, or not in its queue")
    for path in _paths(disk, ROOT):
        disk.sync(path)
    again = _recovered(disk.crash())
    if _log_records(again) != written or not _queues_agree(again, written):
        outcome.violations.append(f"{case}: after another crash the log has other records than before it")
    again.close()


def _changed(scene: Scene, torn: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    base = scene.last_at // SEGMENT_BYTES * SEGMENT_BYTES
    for path, data in scene.files.items():
        disk.make_folder(path.parent)
        if path == ROOT / "commitlog" / f"{base:020d}":
            at = scene.last_at - base
            data = data[:at] + torn + data[at + len(torn) :]
        disk.write_atomic(path, data)
    return disk


def _recovered(disk: MemoryDisk) -> MessageStore:
    store = MessageStore(ROOT, CONFIG, HOST, disk=disk, clock=ManualClock())
    store.open()
    return store


def _log_records(store: MessageStore) -> list[tuple[int, bytes]]:
    """Every record of the log with its offset, in log order, by walking it."""
    found: list[tuple[int, bytes]] = []
    offset = store.log_min_offset
    while offset < store.log_next_offset:
        record = store.record_at(offset)
        if record is None:
            offset = (offset // SEGMENT_BYTES + 1) * SEGMENT_BYTES
            continue
        found.append((offset, bytes(record)))
        offset += len(record)
    return found


def _queues_agree(store: MessageStore, records: list[tuple[int, bytes]]) -> bool:
    """Whether the queues list exactly these records, in order and densely."""
    expected: dict[tuple[str, int], list[int]] = {}
    for at, raw in records:
        record = decode_record(raw, 0, len(raw))
        places = expected.setdefault((record.topic, record.queue_id), [])
        if record.queue_offset != len(places):
            return False
        places.append(at)
    found = {
        (topic, queue_id): list(_unit_offsets(store, topic, queue_id))
        for topic in store.topics()
        for queue_id in store.queue_ids(topic)
    }
    return {queue: places for queue, places in found.items() if places} == expected


def _unit_offsets(store: MessageStore, topic: str, queue_id: int) -> Iterator[int]:
    for queue_offset in range(store.max_offset(topic, queue_id)):
        unit = store.unit_at(topic, queue_id, queue_offset)
        yield unit.log_offset if unit is not None else -1


def _paths(disk: MemoryDisk, folder: Path) -> Iterator[Path]:
    for name, _, is_folder in disk.list(folder):
        if is_folder:
            yield from _paths(disk, folder / name)
        elif name != "lock":
            yield folder / name
