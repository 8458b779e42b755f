"""Reads a `LogRange` of a commit log as Arrow batches: the work of a task of the source `rocketmq-log`, without Spark.

The file is read in chunks. In each, records are located by their sizes and selected by topic, time and offset; only
these are decoded. Damage is handled by the policy:

    fail      raise CorruptRecord, with the log offset and the reason skip      log a warning and continue with the next
    sound record report    give a row for each damaged part: its start in `commitLogOffset`, its length in
    `damagedBytes` and the reason in
              `damage`; all other columns are null. For sound records the last two columns are null
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
from rocketline.spark.memory import keep_memory, spare_collections
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
    """What to read of a range, and how; can be pickled."""

    plan: ColumnPlan
    """The columns, without those of `DAMAGE_COLUMNS`."""
    topics: tuple[str, ...] = ()
    """Empty: all topics."""
    window: LogWindow = EVERYTHING
    on_damage: str = FAIL
    chunk_bytes: int = CHUNK_BYTES

    def read(self, part: LogRange, disk: Disk | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a range in the order of the log; with the policy `report` the last columns are `DAMAGE_COLUMNS`."""
        keep_memory()
        spare_collections()
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
                for batch, faults in reading.plan.decode(self._selected(found.table)):
                    if batch.num_rows:
                        yield self._with_damage_columns(batch)
                    yield from self._damaged(faults)
                offset = found.next_log_offset

    def _next_chunk(self, file: BinaryIO, offset: int) -> _Chunk | Fault | None:
        """The sound records from an offset on, or the damage there; None at the blank record that ends a file."""
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
        """The size of a record that does not fit into a chunk; 0 if there is none at the offset."""
        part = self._part
        head = _read(file, offset - part.base, BLANK_BYTES)
        size, magic = read_start(head, 0) if len(head) == BLANK_BYTES else (0, 0)
        return size if magic in (MAGIC_V1, MAGIC_V2) and 0 < size <= part.limit - offset else 0

    def _selected(self, table: RecordTable) -> RecordTable:
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
        """The damage from an offset to the next sound record, with its reason."""
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
                f"{self._describe(faults[0])}; option onDamage=skip leaves damaged records out, onDamage=report lists them"
            )
        for fault in faults:
            log.warning("%s", self._describe(fault))
        if self._reading.on_damage == REPORT:
            yield self._damage_rows(faults)

    def _describe(self, fault: Fault) -> str:
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
    # Open for the whole range, so that it stays readable if the broker's retention removes the file.
    try:
        return part.path.open("rb", buffering=0)
    except OSError as error:
        raise StoreError(
            f"{part.path} cannot be read here: {error.strerror}; it existed when the job was planned: either "
            "retention removed it, or this executor does not see the folder of the driver"
        ) from error


def _read(file: BinaryIO, position: int, size: int) -> bytes:
    try:
        file.seek(position)
        return file.read(size)
    except OSError as error:
        raise StoreError(f"{file.name} cannot be read at byte {position}: {error.strerror}") from error
