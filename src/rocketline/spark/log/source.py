"""The data source `rocketmq-log`: reads commit-log folders of our or Apache's broker directly, without a broker.

    spark.read.format("rocketmq-log").option("topic", "orders").load("/data/store")

| option | default | meaning |
| --- | --- | --- |
| path | needed | the folder given to `rocketline up --data`, a store root or a commit log; executors must see it too |
| | | or where `rocketline pipeline offload` copied log files to: `s3://bucket/folder`, or a folder |
| topic | all | a topic, or several between commas |
| startingTimestamp, endingTimestamp | open | store times: milliseconds since 1970 or ISO 8601; the end is exclusive |
| startingLogOffset, endingLogOffset | open | log offsets; the end is exclusive |
| onDamage | fail | fail, skip or report: see `log.reader` |
| checkCrc | true | whether every body is compared with its checksum |
| partitionBytes | 128m | how much of the log a task reads; of an offload a whole file, unless given |
| cacheDir | temporary files | of an offload: the folder in which a worker keeps copies of files |
| cacheBytes | 10g | of an offload: how much it keeps there, beside what is being read |
| brokerName | none | value of the column `brokerName`; of several stores in a folder, the name of each one's folder |

The columns are `columns.COLUMNS`; a schema given by the user may have fewer, in any order, and any of
`columns.MORE_COLUMNS`. What it leaves out is not decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rocketline.errors import ConfigError
from rocketline.spark.columns import COLUMNS, ColumnPlan
from rocketline.spark.log.file_cache import DEFAULT_BYTES, FileCache
from rocketline.spark.log.object_store import is_remote
from rocketline.spark.log.offloaded import MANIFEST, OffloadedFile, find_offloaded, plan_offloaded
from rocketline.spark.log.plan import EVERYTHING, LogRange, LogWindow, plan_folder
from rocketline.spark.log.reader import DAMAGE_COLUMNS, FAIL, POLICIES, REPORT, LogReading
from rocketline.spark.options import Options
from rocketline.spark.requested import RequestedColumns
from rocketline.store.tools.folder import find_stores
from rocketline.store.tools.read_only import ReadOnlyDisk

NAME = "rocketmq-log"
PARTITION_BYTES = 128 << 20


@dataclass(frozen=True)
class LogOptions:
    """The options of the source, checked."""

    path: Path | str
    """A folder, or the address of a place that log files were offloaded to."""
    topics: tuple[str, ...] = ()
    window: LogWindow = EVERYTHING
    on_damage: str = FAIL
    check_crc: bool = True
    partition_bytes: int | None = None
    broker_name: str | None = None
    cache: FileCache = field(default_factory=FileCache)

    @staticmethod
    def parse(given: Mapping[str, str]) -> LogOptions:
        """ConfigError for options that are missing, unknown or invalid."""
        options = Options(NAME, given)
        parsed = LogOptions(
            path=_place(options, options.required("path", "the folder of a store, as in .load('/data/store')")),
            topics=options.names("topic", aliases=("topics", "subscribe")),
            window=LogWindow(
                options.number("startingLogOffset"),
                options.number("endingLogOffset"),
                options.time_ms("startingTimestamp"),
                options.time_ms("endingTimestamp"),
            ),
            on_damage=options.choice("onDamage", POLICIES, FAIL),
            check_crc=options.flag("checkCrc", True),
            partition_bytes=options.size("partitionBytes", 0) or None,
            broker_name=options.text("brokerName"),
            cache=FileCache(options.size("cacheBytes", DEFAULT_BYTES), _folder(options.text("cacheDir"))),
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


def _folder(path: str | None) -> Path | None:
    return None if path is None else Path(path).absolute()


def _place(options: Options, path: str) -> Path | str:
    """The folder that a path or a file: URL names, or the address of an offload."""
    if is_remote(path):
        return path
    folder = _local_path(options, path)
    return str(folder) if (folder / MANIFEST).exists() or any(folder.glob(f"*/{MANIFEST}")) else folder


def _local_path(options: Options, path: str) -> Path:
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
    offload: tuple[str, OffloadedFile] | None = None
    """The address and the file that the part is of; None when its path can be read here."""


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
        if isinstance(options.path, str):
            return list(self._offloaded(options.path))
        disk = ReadOnlyDisk()
        stores = find_stores(disk, options.path)
        return [
            LogPartition(part, options.broker_name or (store.name.name if len(stores) > 1 else None))
            for store in stores
            for part in plan_folder(store, disk, options.window, options.partition_bytes or PARTITION_BYTES)
        ]

    def _offloaded(self, address: str) -> Iterator[LogPartition]:
        options = self._options
        found = find_offloaded(address)
        for place, manifest in found:
            name = options.broker_name or (manifest.store if len(found) > 1 else None)
            files = {file.base: file for file in manifest.files}
            for part in plan_offloaded(manifest, options.window, options.partition_bytes):
                yield LogPartition(part, name, (place, files[part.base]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark runs one task without a partition when there is nothing to read.
        if not isinstance(partition, LogPartition):
            return
        options = self._options
        plan = ColumnPlan(self._requested.decoded, partition.broker_name, options.check_crc)
        reading = LogReading(plan, options.topics, options.window, options.on_damage)
        with self._readable(partition) as part:
            for batch in reading.read(part):
                yield self._requested.fit(batch)

    @contextmanager
    def _readable(self, partition: LogPartition) -> Iterator[LogRange]:
        """The part with the path of a file that can be read here."""
        if partition.offload is None:
            yield partition.part
            return
        address, file = partition.offload
        with self._options.cache.copy_of(address, file.name, file.sha256, file.size) as path:
            yield replace(partition.part, path=path)
