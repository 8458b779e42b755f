"""Tables of Iceberg without its runtime for Spark: Spark writes Parquet files, and PyIceberg commits them on the driver.

One transaction of the catalog has the new columns, the files of a batch and the position, which is a property of the table.
A run that was killed before it leaves files that are no part of the table; the next run writes the batch again, into another
folder. If two jobs write, the catalog refuses the commit that comes second.

    DIR             a folder: the catalog is DIR/catalog.db (SQLite), tables lie beside it
    catalog:NAME    a catalog of PyIceberg's own configuration: REST, Glue, Hive, SQL
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rocketline.errors import ConfigError
from rocketline.pipelines.failures import PipelineFailed
from rocketline.pipelines.tables.as_of import point
from rocketline.pipelines.tables.formats import NOTHING, Past, State, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

NAMESPACE = "rocketline"
CONFIGURED = "catalog:"
STATE = "rocketline.state"
"""The property with batch and position, of the table and of each snapshot."""
_TIMES = "spark.sql.parquet.outputTimestampType"
FOLDER = "_folder"
"""A column that rows have on their way into files."""
_NO_RETRY = {"commit.retry.num-retries": "0"}
"""PyIceberg would add the files of a job that was overtaken to the table of the other one: rows would be there twice."""


class IcebergTable:
    def __init__(self, spark: SparkSession, target: str, name: str) -> None:
        self._spark = spark
        self._catalog = _catalog(target)
        self._name = (NAMESPACE, name)
        self.path = f"{target.rstrip('/')}/{name}"

    def state(self) -> State:
        table = self._table()
        return NOTHING if table is None else self._state(table.properties.get(STATE))

    def _state(self, text: str | None) -> State:
        if not text:
            raise ConfigError(
                f"{self.path} is a table that `rocketline pipeline table` did not write: choose another topic or catalog"
            )
        return State.of(text, self.path)

    def read(self) -> DataFrame | None:
        table = self._table()
        return None if table is None else self._rows(table.scan())

    def past(self, as_of: str) -> Past | None:
        table = self._table()
        snapshot = None if table is None else self._snapshot(table, as_of)
        if snapshot is None:
            return None
        rows = self._rows(table.scan(snapshot_id=snapshot.snapshot_id))
        return Past(rows, self._state(snapshot.summary[STATE]), snapshot.timestamp_ms)

    def _rows(self, scan: Any) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        columns = from_arrow_schema(scan.projection().as_arrow())
        tasks = list(scan.plan_files())
        if any(task.delete_files for task in tasks):
            raise ConfigError(f"{self.path} has deletes by another program, which cannot be read here")
        if not tasks:
            return self._spark.createDataFrame([], columns)
        files = [task.file.file_path for task in tasks]
        return self._spark.read.schema(columns).parquet(*files).select(*map(quoted, columns.names))

    def append(self, rows: DataFrame, next_state: State) -> None:
        table = self._table()
        if table is None:
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
        kept = _without_small_numbers(rows)
        change = table.transaction() if table is not None else self._created(kept.schema)
        location = change.table_metadata.location
        files = self._write(kept, f"{location}/data/batch-{next_state.batch}-{uuid.uuid4().hex[:12]}")
        self._commit(change, kept.schema, files, next_state)

    def compact(self) -> None:
        raise ConfigError(
            f"{self.path}: Iceberg tables cannot be compacted from here: use rewrite_data_files of an engine"
        )

    def tidy(self, batch: int) -> None:
        """Small files stay: see `compact`."""

    def _created(self, columns: StructType) -> Any:
        change = self._catalog.create_table_transaction(self._name, schema=_arrow(columns), properties=_NO_RETRY)
        with change.update_spec() as spec:
            spec.add_identity("day")
        return change

    def _commit(self, change: Any, columns: StructType, files: list[str], state: State) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationError

        text = state.to_text()
        try:
            with change.update_schema() as schema:
                schema.union_by_name(_arrow(columns))
            if files:
                change.add_files(files, snapshot_properties={STATE: text}, check_duplicate_files=False)
            else:  # a snapshot of its own, so that this commit too is refused after another job's
                with change.update_snapshot(snapshot_properties={STATE: text}).fast_append():
                    pass
            change.set_properties({STATE: text})
            change.commit_transaction()
        except (CommitFailedException, ValidationError) as error:
            raise PipelineFailed(
                f"{self.path}: batch {state.batch} is not in the table, another job changed it meanwhile ({error}). Nothing "
                "is lost: run this again, with one job at a time"
            ) from error

    def _write(self, rows: DataFrame, folder: str) -> list[str]:
        """The files of a batch: each has rows of one day."""
        from pyspark.sql import functions as f

        with _set(self._spark, _TIMES, "TIMESTAMP_MICROS"):
            rows.withColumn(FOLDER, f.col("day")).write.partitionBy(FOLDER).parquet(folder)
        written = self._spark.read.schema(rows.schema).parquet(folder).inputFiles()
        return sorted(unquote(path) for path in written)

    def _table(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None

    def _snapshot(self, table: Any, as_of: str) -> Any:
        """The newest snapshot at a time, None when there was none; or that of a number, ConfigError when there is none."""
        number, time_ms = point(as_of)
        if number is not None:
            found = table.snapshot_by_id(number)
        else:
            found = table.snapshot_as_of_timestamp(time_ms)
        if found is None and number is not None:
            there = ", ".join(str(snapshot.snapshot_id) for snapshot in table.snapshots()[-5:])
            raise ConfigError(f"{self.path} has no snapshot {as_of}; the newest are {there or 'none'}")
        return found


def _catalog(target: str) -> Any:
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError  # noqa: F401
    except ImportError as error:
        raise ConfigError("tables of Iceberg need PyIceberg: pip install 'rocketline[iceberg]'") from error
    if target.startswith(CONFIGURED):
        return load_catalog(target.removeprefix(CONFIGURED))
    if "://" in target and not target.startswith("file://"):
        raise ConfigError(
            f"{target}: with --format iceberg give a folder of this machine, or {CONFIGURED}NAME of a catalog in "
            "PyIceberg's configuration (.pyiceberg.yaml), which says where tables lie"
        )
    folder = Path(target.removeprefix("file://")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def _arrow(columns: StructType) -> Any:
    """The columns as Iceberg takes them; all may be null, as in the files that Spark writes."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(_nullable(columns), timezone="UTC")


def _nullable(kind: DataType) -> Any:
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        return types.StructType([types.StructField(field.name, _nullable(field.dataType)) for field in kind])
    if isinstance(kind, types.ArrayType):
        return types.ArrayType(_nullable(kind.elementType))
    if isinstance(kind, types.MapType):
        return types.MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind


def _without_small_numbers(rows: DataFrame) -> DataFrame:
    """Iceberg has no tinyint and smallint."""
    from pyspark.sql import functions as f

    small = {field.name for field in rows.schema if field.dataType.simpleString() in ("tinyint", "smallint")}
    return rows.select(*(
        f.col(quoted(name)).cast("int").alias(name) if name in small else f.col(quoted(name)) for name in rows.columns
    ))  # fmt: skip


@contextmanager
def _set(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before or "INT96")
