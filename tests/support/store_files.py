"""The files of a store, read and trimmed from outside, whichever broker wrote them.

What a log holds says what its consume queues must hold; the two readings are compared byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocketline.protocol.record_layout import MAGIC_BLANK
from rocketline.protocol.records import Record, decode_record, log_entry, read_start

UNIT = struct.Struct(">qiq")
INDEX_END = struct.Struct(">q")
FILLER = (0, 0x7FFFFFFF, 0)
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

QueueKey = tuple[str, int]
Unit = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LogWalk:
    """Every record of a log, checksums checked, and its blanks: size by log offset."""

    min_offset: int
    next_offset: int
    records: tuple[Record, ...]
    blanks: Mapping[int, int]


def walk_log(store: Path) -> LogWalk:
    """Read a log from its oldest file to the first place where nothing was written; CorruptRecord for anything else."""
    files = sorted((store / "commitlog").iterdir())
    records: list[Record] = []
    blanks: dict[int, int] = {}
    offset = min_offset = int(files[0].name)
    for file in files:
        base, content = int(file.name), file.read_bytes()
        while (size := read_start(content, offset - base)[0]) != 0:
            if read_start(content, offset - base)[1] == MAGIC_BLANK:
                blanks[offset] = size
            else:
                records.append(decode_record(content, offset - base, len(content), check_crc=True))
            offset += size
            if offset == base + len(content):
                break
        else:
            break
    return LogWalk(min_offset, offset, tuple(records), blanks)


def expected_units(records: Iterable[Record], delays_ms: tuple[int, ...]) -> dict[QueueKey, dict[int, Unit]]:
    """The unit each record must have in its consume queue, by queue offset; a delayed one has its deliver time as code."""
    units: dict[QueueKey, dict[int, Unit]] = {}
    for record in records:
        code = log_entry(record).tags_code
        if record.topic == SCHEDULE_TOPIC:
            code = record.store_ms + delays_ms[record.queue_id]
        queue = units.setdefault((record.topic, record.queue_id), {})
        queue[record.queue_offset] = (record.log_offset, record.size, code)
    return units


def written_units(store: Path) -> dict[QueueKey, dict[int, Unit]]:
    """The units in the files of all consume queues, fillers included, by queue offset."""
    found: dict[QueueKey, dict[int, Unit]] = {}
    for file in (store / "consumequeue").glob("*/*/*"):
        content, first = file.read_bytes(), int(file.name) // UNIT.size
        queue = found.setdefault((file.parent.parent.name, int(file.parent.name)), {})
        queue.update((first + number, unit) for number, unit in enumerate(UNIT.iter_unpack(content)) if unit[1])
    return found


def trim(store: Path, log_files: int) -> int:
    """Delete the oldest log files, and the queue and index files that only point there; the new log minimum.

    Apache 5.4.0's own retention leaves the same files, but begins a minute after its start.
    """
    files = sorted((store / "commitlog").iterdir())
    for file in files[:log_files]:
        file.unlink()
    log_minimum = int(files[log_files].name)
    for queue in (store / "consumequeue").glob("*/*"):
        for file in sorted(queue.iterdir())[:-1]:
            if UNIT.unpack(file.read_bytes()[-UNIT.size :])[0] >= log_minimum:
                break
            file.unlink()
    for file in sorted((store / "index").iterdir())[:-1]:
        if INDEX_END.unpack_from(file.read_bytes(), 24)[0] < log_minimum:
            file.unlink()
    return log_minimum
