"""The data source `rocketmq-log`: reads commit-log folders of our or Apache's broker directly, without a broker.

    spark.read.format("rocketmq-log").option("topic", "orders").load("/data/store")

| option | default | meaning |
| --- | --- | --- |
| path | needed | the folder given to `rocketline up --data`, a store root or a commit log; executors must see it too |
| topic | all | a topic, or several between commas |
| startingTimestamp, endingTimestamp | open | store times: milliseconds since 1970 or ISO 8601; the end is exclusive |
| startingLogOffset, endingLogOffset | open | log offsets; the end is exclusive |
| onDamage | fail | fail, skip or report: see `log.reader` |
| checkCrc | true | whether every body is compared with its checksum |
| partitionBytes | 128m | how much of the log a task reads |
| brokerName | none | value of the column `brokerName`; of several stores in a folder, the name of each one's folder |

The columns are `columns.COLUMNS`; a schema given by the user may have fewer, in any order, and any of
`columns.MORE_COLUMNS`. What it leaves out is not decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rocketline.errors import ConfigError
from rocketline.spark.columns import COLUMNS, ColumnPlan
from rocketline.spark.log.plan import EVERYTHING, LogRange, LogWindow, plan_folder
from rocketline.spark.log.reader import DAMAGE_COLUMNS, FAIL, POLICIES, REPORT, LogReading
from rocketline.spark.options import Options
from rocketline.spark.requested import RequestedColumns
from rocketline.store.tools.folder import find_stores
from rocketline.store.tools.read_only import ReadOnlyDisk

NAME = "rocketmq-log"


@dataclass(frozen=True)
class LogOptions:
    """The options of the source, checked."""

    path: Path
    topics: tuple[str, ...] = ()
    window: LogWindow = EVERYTHING
    on_damage: str = FAIL
    check_crc: bool = True
    partition_bytes: int = 128 << 20
    broker_name: str | None = None

    @staticmethod
    def parse(given: Mapping[str, str]) -> LogOptions:
        """ConfigError for options that are missing, unknown or invalid."""
        options = Options(NAME, given)
        parsed = LogOptions(
            path=_local_path(options, options.required("path", "the folder of a store, as in .load('/data/store')")),
            topics=options.names("topic", aliases=("topics", "subscribe")),
            window=LogWindow(
                options.number("startingLogOffset"),
                options.number("endingLogOffset"),
                options.time_ms("startingTimestamp"),
                options.time_ms("endingTimestamp"),
            ),
            on_damage=options.choice("onDamage", POLICIES, FAIL),
            check_crc=options.flag("checkCrc", True),
            partition_bytes=options.size("partitionBytes", 128 << 20),
            broker_name=options.text("brokerName"),
        )
        options.refuse_others()
        window = parsed.window
        for kind, start, end in (
            ("LogOffset", window.start_offset, window.end_offset),
            ("Timestamp", window.since_ms, window.until_ms),
        ):
            if start is not None and end is not None and start > end:
                raise options.wrong(f"starting{kind} {start} is behind ending{kind} {end}")
        return parsed

    @property
    def columns(self) -> pa.Schema:
        """The columns without a schema of the user."""
        return pa.schema([*COLUMNS, *DAMAGE_COLUMNS]) if self.on_damage == REPORT else COLUMNS


def _local_path(options: Options, path: str) -> Path:
    """The folder that a path or a file: URL names."""
    if "://" not in path and not path.startswith("file:"):
        return Path(path).absolute()
    address = urlsplit(path)
    if address.scheme != "file" or address.netloc not in ("", "localhost"):
        raise options.wrong(f"{path} is not on a disk of this machine: mount it, and give the folder")
    return Path(unquote(address.path)).absolute()


@dataclass
class LogPartition(InputPartition):
    """The part of the log that one task reads."""

    part: LogRange
    broker_name: str | None


class LogSource(DataSource):
    """`spark.read.format("rocketmq-log")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(LogOptions.parse(self.options).columns)

    def reader(self, schema: StructType) -> LogSourceReader:
        return LogSourceReader(LogOptions.parse(self.options), schema)


class LogSourceReader(DataSourceReader):
    """Plans on the driver and reads on executors; it is pickled in between."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._options = options
        more = DAMAGE_COLUMNS if options.on_damage == REPORT else None
        self._requested = RequestedColumns.of(NAME, schema, more)
        if more and "damage" not in self._requested.names:
            raise ConfigError(
                f"{NAME}: with onDamage=report the schema must have the columns damage and commitLogOffset"
            )

    def partitions(self) -> list[InputPartition]:
        options = self._options
        disk = ReadOnlyDisk()
        stores = find_stores(disk, options.path)
        return [
            LogPartition(part, options.broker_name or (store.name.name if len(stores) > 1 else None))
            for store in stores
            for part in plan_folder(store, disk, options.window, options.partition_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark runs one task without a partition when there is nothing to read.
        if not isinstance(partition, LogPartition):
            return
        options = self._options
        plan = ColumnPlan(self._requested.decoded, partition.broker_name, options.check_crc)
        reading = LogReading(plan, options.topics, options.window, options.on_damage)
        for batch in reading.read(partition.part):
            yield self._requested.fit(batch)
