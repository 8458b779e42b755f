"""Tables of Iceberg without its runtime for Spark: Spark writes Parquet files, and PyIceberg commits them on the driver.

One transaction of the catalog has the new columns, the files of a batch, those that they replace, and the position, which is
a property of the table. A run that was killed before it leaves files that are no part of the table (`iceberg_files` removes
them); the next run writes the batch again, into another folder. If two jobs write, the one that comes second is refused: by
the number of its batch, or by the catalog.

A merge by key writes the files anew that have one of the keys. Small files are written into larger ones the same way.

Spark finds the columns of a file by their names, Iceberg by the numbers of fields. So a table whose columns another program
renamed is refused, before its rows are read without them or written anew without them.

    DIR             a folder: the catalog is DIR/catalog.db (SQLite), tables lie beside it
    catalog:NAME    a catalog of PyIceberg's own configuration: REST, Glue, Hive, SQL
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from importlib.util import find_spec
from itertools import pairwise
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rocketline.clock import SYSTEM_CLOCK
from rocketline.errors import ConfigError
from rocketline.pipelines.failures import PipelineFailed
from rocketline.pipelines.tables import iceberg_files
from rocketline.pipelines.tables.as_of import point
from rocketline.pipelines.tables.formats import NEWER, NOTHING, Past, State, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

NAMESPACE = "rocketline"
CONFIGURED = "catalog:"
STATE = "rocketline.state"
"""The property with batch and position, of the table and of each snapshot."""
COMPACT_EVERY = 100
"""Batches."""
MOST_SNAPSHOTS = 1000
"""The history that is kept: every commit writes the list of all snapshots."""
MOST_REPLACING = 100
"""The same of a table with the latest row of each key, whose snapshots keep the files that batches replaced."""

SMALL_BYTES = 64 << 20
FILE_ROWS = 5_000_000
_TIMES = "spark.sql.parquet.outputTimestampType"
FOLDER = "_folder"
"""A column that rows have on their way into files."""
_PROPERTIES = {
    # PyIceberg would add the files of a job that was overtaken to the table of the other one: rows would be there twice.
    "commit.retry.num-retries": "0",
    # Otherwise each commit leaves a list of all snapshots, and a manifest.
    "write.metadata.delete-after-commit.enabled": "true",
    "commit.manifest-merge.enabled": "true",
}


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

    def append(self, rows: DataFrame, next_state: State) -> None:
        table, kept = self._before(next_state), _without_small_numbers(rows)
        self._commit(self._change(table, kept.schema), kept, next_state)

    def merge(self, rows: DataFrame, next_state: State, key: Sequence[str], deleted: str) -> None:
        from pyspark.sql import functions as f

        table, changes = self._before(next_state), _without_small_numbers(rows)
        new = changes.where(~f.col(deleted)).drop(deleted)
        change = self._change(table, new.schema)
        columns = _columns(change.table_metadata.schema())
        files = self._files(table.scan()) if table is not None else []
        touched = self._with_keys(files, columns, changes, key) if files else []
        there = self._parquet(touched, columns)
        is_newer = f.expr(NEWER)
        kept = _without("t", there, "s", changes, _same(key) & is_newer)
        added = _without("s", new, "t", there, _same(key) & ~is_newer)
        self._commit(change, kept.unionByName(added, True), next_state, touched)

    def compact(self) -> None:
        table = self._table()
        if table is None:
            return
        self._write_together(table)
        self._forget()
        iceberg_files.remove_unnamed(self._table())

    def _write_together(self, table: Any) -> None:
        """Write small files of a day into one."""
        small = [file for file in self._files(table.scan()) if file.file_size_in_bytes < SMALL_BYTES]
        of_day = Counter(file.partition for file in small)
        few = [file for file in small if of_day[file.partition] > 1]
        if few:
            rows = self._parquet(few, _columns(table.schema())).repartition("day")
            self._commit(self._change(table, rows.schema), rows, self._state(table.properties.get(STATE)), few)

    def tidy(self, batch: int) -> None:
        if batch % COMPACT_EVERY == COMPACT_EVERY - 1:
            self.compact()

    def _forget(self) -> None:
        """Drop the oldest snapshots; not those that have a name, or were the newest a short time ago: they may be read."""
        table = self._table()
        most = MOST_REPLACING if self._state(table.properties.get(STATE)).key else MOST_SNAPSHOTS
        snapshots = sorted(table.snapshots(), key=lambda snapshot: -snapshot.sequence_number)
        named = {reference.snapshot_id for reference in table.metadata.refs.values()}
        limit_ms = SYSTEM_CLOCK.now_ms() - iceberg_files.OLD_MS
        old = [
            each.snapshot_id
            for following, each in pairwise(snapshots[most - 1 :])
            if following.timestamp_ms <= limit_ms and each.snapshot_id not in named
        ]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def _before(self, next_state: State) -> Any:
        """The table as the next state follows it; PipelineFailed when another job added a batch."""
        table = self._table()
        there = NOTHING if table is None else self._state(table.properties.get(STATE))
        if there.batch + 1 != next_state.batch:
            raise self._overtaken(next_state, f"it has batch {there.batch}")
        return table

    def _overtaken(self, state: State, why: object) -> PipelineFailed:
        return PipelineFailed(
            f"{self.path}: nothing of batch {state.batch} was changed, another job changed it meanwhile ({why}). Nothing is "
            "lost: run this again, with one job at a time"
        )

    def _change(self, table: Any, columns: StructType) -> Any:
        """A transaction that has these columns already; ConfigError when it cannot."""
        from pyiceberg.exceptions import ValidationError

        if table is not None:
            change = table.transaction()
        else:
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
            change = self._catalog.create_table_transaction(self._name, schema=_arrow(columns), properties=_PROPERTIES)
            with change.update_spec() as spec:
                spec.add_identity("day")
        try:
            with change.update_schema() as schema:
                schema.union_by_name(_arrow(columns))
        except ValidationError as error:
            raise ConfigError(f"{self.path} cannot have these columns: {error}") from error
        self._refuse_renamed(change.table_metadata)
        return change

    def _commit(self, change: Any, rows: DataFrame, state: State, replaced: Sequence[Any] = ()) -> None:
        """A snapshot with these rows, instead of the files that they replace."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        text, location = state.to_text(), change.table_metadata.location
        paths = self._write(rows, f"{location}/data/batch-{state.batch}-{uuid.uuid4().hex[:12]}")
        try:
            if paths and not replaced:
                change.add_files(paths, snapshot_properties={STATE: text}, check_duplicate_files=False)
            else:  # without files too there is a snapshot, so that this commit is refused after another job's
                update = change.update_snapshot(snapshot_properties={STATE: text})
                with update.overwrite() if replaced else update.fast_append() as snapshot:
                    for path in paths:
                        io = self._table().io
                        snapshot.append_data_file(parquet_file_to_data_file(io, change.table_metadata, path))
                    for file in replaced:
                        snapshot.delete_data_file(file)
            change.set_properties({STATE: text})
            change.commit_transaction()
        except (CommitFailedException, ValidationException) as error:
            raise self._overtaken(state, error) from error

    def _write(self, rows: DataFrame, folder: str) -> list[str]:
        """The files of a batch: each has rows of one day."""
        from pyspark.sql import functions as f

        with _set(self._spark, _TIMES, "TIMESTAMP_MICROS"):
            writer = rows.withColumn(FOLDER, f.col("day")).write.partitionBy(FOLDER)
            writer.option("maxRecordsPerFile", FILE_ROWS).parquet(folder)
        written = self._spark.read.schema(rows.schema).parquet(folder).inputFiles()
        return sorted(unquote(path) for path in written)

    def _rows(self, scan: Any) -> DataFrame:
        return self._parquet(self._files(scan), _columns(scan.projection()))

    def _files(self, scan: Any) -> list[Any]:
        tasks = list(scan.plan_files())
        if any(task.delete_files for task in tasks):
            raise ConfigError(f"{self.path} has deletes by another program, which cannot be read here")
        return [task.file for task in tasks]

    def _parquet(self, files: Sequence[Any], columns: StructType) -> DataFrame:
        if not files:
            return self._spark.createDataFrame([], columns)
        return self._spark.read.schema(columns).parquet(*(file.file_path for file in files))

    def _with_keys(
        self, files: Sequence[Any], columns: StructType, changes: DataFrame, key: Sequence[str]
    ) -> list[Any]:
        """The files with a row of one of these keys."""
        from pyspark.sql import functions as f

        rows = self._parquet(files, columns).withColumn(FOLDER, f.input_file_name())
        found = rows.alias("t").join(changes.alias("s"), _same(key), "left_semi").select(FOLDER).distinct().collect()
        paths = {unquote(row[0]) for row in found}
        touched = [file for file in files if file.file_path in paths]
        if len(touched) != len(paths):
            raise ConfigError(f"{self.path} has files of another program, whose rows cannot be merged here")
        return touched

    def _table(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        self._refuse_renamed(table.metadata)
        return table

    def _refuse_renamed(self, metadata: Any) -> None:
        """ConfigError when a column has not the name that it has in files, or the name of one that was dropped."""
        first: dict[int, str] = {}
        for schema in metadata.schemas:
            for number in schema.field_ids:
                first.setdefault(number, schema.find_column_name(number))
        owner: dict[str, int] = {}
        for number, name in sorted(first.items()):
            owner.setdefault(name, number)
        schema = metadata.schema()
        for number in sorted(schema.field_ids):
            name = schema.find_column_name(number)
            if first[number] != name:
                raise ConfigError(
                    f"{self.path}: another program renamed column {first[number]!r} to {name!r}. Its values would be lost "
                    "here: rename it back, or begin another table"
                )
            if owner[name] != number:
                raise ConfigError(
                    f"{self.path}: another program dropped column {name!r}, and its old values would come back with a new "
                    "column of that name: leave it out of --schema, or begin another table"
                )

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


def check_catalog(target: str) -> None:
    """ConfigError when this names no catalog, or there is no PyIceberg."""
    if find_spec("pyiceberg") is None:
        raise ConfigError("tables of Iceberg need PyIceberg: pip install 'rocketline[iceberg]'")
    if "://" in target and not target.startswith(("file://", CONFIGURED)):
        raise ConfigError(
            f"{target}: with --format iceberg give a folder of this machine, or {CONFIGURED}NAME of a catalog in "
            "PyIceberg's configuration (.pyiceberg.yaml), which says where tables lie"
        )


def _catalog(target: str) -> Any:
    check_catalog(target)
    from pyiceberg.catalog import load_catalog

    if target.startswith(CONFIGURED):
        return load_catalog(target.removeprefix(CONFIGURED))
    folder = Path(target.removeprefix("file://")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return load_catalog(NAMESPACE, type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def _same(key: Sequence[str]) -> Column:
    """Rows `t` and `s` have the same key; null is a key like any other."""
    from pyspark.sql import functions as f

    return reduce(and_, (f.col(f"t.{quoted(name)}").eqNullSafe(f.col(f"s.{quoted(name)}")) for name in key))


def _without(name: str, rows: DataFrame, other: str, others: DataFrame, condition: Column) -> DataFrame:
    """The rows for which no other one fulfils the condition."""
    return rows.alias(name).join(others.alias(other), condition, "left_anti")


def _columns(schema: Any) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema.as_arrow())


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
