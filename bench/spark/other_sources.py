"""Sources to compare the log source with: one that gives tuples, and one whose batches cost nothing to make."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rocketline.protocol.record_layout import MAGIC_BLANK
from rocketline.protocol.records import decode_message, read_start
from rocketline.spark.log.plan import LogRange
from rocketline.spark.log.source import LogPartition, LogSource, LogSourceReader


class TupleSource(LogSource):
    """The log source as it would be without columns: one decoded record, one tuple at a time."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-log-tuples"

    def reader(self, schema: Any) -> TupleReader:  # type: ignore[override]
        return TupleReader(super().reader(schema))


class TupleReader(DataSourceReader):
    def __init__(self, planner: LogSourceReader) -> None:
        self._planner = planner

    def partitions(self) -> list[InputPartition]:
        return self._planner.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if isinstance(partition, LogPartition):
            yield from rows(partition.part)


def rows(part: LogRange) -> Iterator[tuple[Any, ...]]:
    with part.path.open("rb") as file:
        file.seek(part.start - part.base)
        content = file.read(part.limit - part.start)
    position = 0
    while position < part.end - part.start and read_start(content, position)[1] != MAGIC_BLANK:
        view = decode_message(content, position, len(content))
        position += view.stored_bytes
        born = datetime.fromtimestamp(view.born_ms / 1000, UTC)
        stored = datetime.fromtimestamp(view.store_ms / 1000, UTC)
        yield (
            view.topic, None, view.queue_id, view.queue_offset, view.log_offset, view.message_id, view.tag,
            view.properties.get("KEYS"), view.body, view.properties, born, stored, view.born_host,
            view.reconsume_times, view.sys_flag,
        )  # fmt: skip


class ReadySource(LogSource):
    """Repeats the first batch of each range, about as often as the range has batches.

    What remains is the work of Spark for rows of any source in Python: no source can be faster.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq-log-ready"

    def reader(self, schema: Any) -> ReadyReader:  # type: ignore[override]
        return ReadyReader(super().reader(schema))


class ReadyReader(DataSourceReader):
    def __init__(self, reader: LogSourceReader) -> None:
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batches = self._reader.read(partition)
        first, second = next(batches), next(batches)
        assert isinstance(partition, LogPartition)
        offsets = [batch.column("commitLogOffset")[0].as_py() for batch in (first, second)]
        times = (partition.part.end - partition.part.start) // (offsets[1] - offsets[0])
        yield from repeat(first, times)
