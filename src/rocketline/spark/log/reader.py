"""Reading a `LogRange` of a commit log as Arrow batches: what a task of the source `rocketmq-log` does, without Spark.

The file is read in chunks; in each, records are located by their sizes, picked by topic, time and offset, and only what
is left is decoded. What is not a sound record is handled as the policy says:

    fail      CorruptRecord, with the place and the reason
    skip      a warning in the log, and on with the next sound record
    report    a row for each damaged stretch: where it begins in `commitLogOffset`, how long it is in `damagedBytes`, and
              why in `damage`; all other columns are null, and those two are null for every sound record
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from rocketline.errors import CorruptRecord, StoreError
from rocketline.protocol.record_layout import BLANK_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rocketline.protocol.records import read_start
from rocketline.spark.columns import ColumnPlan, Fault
from rocketline.spark.log.plan import EVERYTHING, LogRange, LogWindow
from rocketline.spark.memory import keep_memory
from rocketline.spark.record_table import RecordTable, read_table
from rocketline.store.files.disk import Disk
from rocketline.store.files.segment import Segment
from rocketline.store.recovery.scan import LogScan, sound_record
from rocketline.store.tools.read_only import ReadOnlyDisk

log = logging.getLogger(__name__)

FAIL, SKIP, REPORT = POLICIES = ("fail", "skip", "report")

DAMAGE_COLUMNS = pa.schema({"damage": pa.string(), "damagedBytes": pa.int64()})

CHUNK_BYTES = 4 << 20


class _Chunk(NamedTuple):
    table: RecordTable
    next_log_offset: int


@dataclass(frozen=True)
class LogReading:
    """What is to be read of a range; may be pickled."""

    plan: ColumnPlan
    """Columns without those of `DAMAGE_COLUMNS`."""
    topics: tuple[str, ...] = ()
    """All of them when none is named."""
    window: LogWindow = EVERYTHING
    on_damage: str = FAIL
    chunk_bytes: int = CHUNK_BYTES

    def read(self, part: LogRange, disk: Disk | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a range in the order of the log; with the policy `report` they end with `DAMAGE_COLUMNS`."""
        keep_memory()
        return _RangeReader(self, part, disk or ReadOnlyDisk()).batches()


class _RangeReader:
    def __init__(self, reading: LogReading, part: LogRange, disk: Disk) -> None:
        self._reading = reading
        self._part = part
        self._disk = disk

    def batches(self) -> Iterator[pa.RecordBatch]:
        part, reading = self._part, self._reading
        offset = part.start
        with _opened(part) as file:
            while offset < part.end:
                found = self._next_chunk(file, offset)
                if found is None:
                    return
                if isinstance(found, Fault):
                    yield from self._damaged([found])
                    offset = found.log_offset + found.size
                    continue
                for batch, faults in reading.plan.decode(self._picked(found.table)):
                    if batch.num_rows:
                        yield self._with_damage_columns(batch)
                    yield from self._damaged(faults)
                offset = found.next_log_offset

    def _next_chunk(self, file: BinaryIO, offset: int) -> _Chunk | Fault | None:
        """The sound records from an offset on; or the damage there; None when the file ends with a blank."""
        part = self._part
        chunk = _read(file, offset - part.base, min(self._reading.chunk_bytes, part.end - offset))
        table = read_table(chunk, offset)
        if not len(table) and (size := self._large_record(file, offset)) > len(chunk):
            chunk = _read(file, offset - part.base, size)
            table = read_table(chunk, offset)
        if len(table):
            return _Chunk(table, offset + table.end)
        if chunk[4:BLANK_BYTES] == _BLANK:
            return None
        return self._damage_at(offset)

    def _large_record(self, file: BinaryIO, offset: int) -> int:
        """The size of a record that did not fit into a chunk; 0 when there is none."""
        part = self._part
        head = _read(file, offset - part.base, BLANK_BYTES)
        size, magic = read_start(head, 0) if len(head) == BLANK_BYTES else (0, 0)
        return size if magic in (MAGIC_V1, MAGIC_V2) and 0 < size <= part.limit - offset else 0

    def _picked(self, table: RecordTable) -> RecordTable:
        window, topics = self._reading.window, self._reading.topics
        offsets = table.head["log_offset"]
        if window.start_offset is not None and self._part.start < window.start_offset:
            table = table.select(offsets >= window.start_offset)
        if window.since_ms is not None:
            table = table.select(table.store_ms >= window.since_ms)
        if window.until_ms is not None:
            table = table.select(table.store_ms < window.until_ms)
        return table.of_topics(topics) if topics and len(table) else table

    def _damage_at(self, offset: int) -> Fault:
        """What lies before the next sound record, with the reason why the first one is none."""
        part = self._part
        segment = Segment(self._disk, part.path, part.base, part.limit - part.base)
        try:
            try:
                sound_record(segment, offset - part.base, segment.size)
                reason = "its size does not fit"
            except CorruptRecord as error:
                reason = str(error)
            following = LogScan([segment], offset, end=part.end).find_record(offset + 1)
        finally:
            segment.close()
        return Fault(offset, (part.end if following is None else following) - offset, reason)

    def _damaged(self, faults: list[Fault]) -> Iterator[pa.RecordBatch]:
        start = self._reading.window.start_offset or 0
        faults = [fault for fault in faults if fault.log_offset + fault.size > start]
        if not faults:
            return
        if self._reading.on_damage == FAIL:
            raise CorruptRecord(
                f"{self._told(faults[0])}; option onDamage=skip passes over what is damaged, onDamage=report lists it"
            )
        for fault in faults:
            log.warning("%s", self._told(fault))
        if self._reading.on_damage == REPORT:
            yield self._damage_rows(faults)

    def _told(self, fault: Fault) -> str:
        place = f"log offset {fault.log_offset} to {fault.log_offset + fault.size}"
        return f"{self._part.path}: no sound record at {place}: {fault.reason}"

    def _with_damage_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._reading.on_damage != REPORT:
            return batch
        nulls = [pa.nulls(batch.num_rows, kind) for kind in DAMAGE_COLUMNS.types]
        return pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=self._schema())

    def _damage_rows(self, faults: list[Fault]) -> pa.RecordBatch:
        schema = self._schema()
        known = {
            "commitLogOffset": pa.array(np.array([fault.log_offset for fault in faults], np.int64)),
            "damage": pa.array([fault.reason for fault in faults], pa.string()),
            "damagedBytes": pa.array(np.array([fault.size for fault in faults], np.int64)),
        }
        arrays = [known.get(field.name, pa.nulls(len(faults), field.type)) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _schema(self) -> pa.Schema:
        return pa.schema([*self._reading.plan.schema, *DAMAGE_COLUMNS])


_BLANK = MAGIC_BLANK.to_bytes(4, "big", signed=True)


def _opened(part: LogRange) -> BinaryIO:
    # Kept open for the whole range: a file that the broker's retention removes meanwhile stays readable.
    try:
        return part.path.open("rb", buffering=0)
    except OSError as error:
        raise StoreError(
            f"{part.path} cannot be read here: {error.strerror}; it was there when the job was planned, so either it was "
            "removed by retention or this executor does not see the folder of the driver"
        ) from error


def _read(file: BinaryIO, position: int, size: int) -> bytes:
    try:
        file.seek(position)
        return file.read(size)
    except OSError as error:
        raise StoreError(f"{file.name} cannot be read at byte {position}: {error.strerror}") from error
