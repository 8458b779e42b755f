"""Tables in the two formats: appending rows together with a position, reading, compacting.

Delta: a commit of Delta Lake. The position is in its user metadata; number and application of the transaction keep a second
job from adding the same rows.

Parquet: files of one batch in a folder of its own, then a line in `batches` that says which folders count. Files of a
batch without such a line were left by a run that was killed, and the next batch replaces them. Only one job may write such
a table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from rocketline.errors import ConfigError
from rocketline.spark.offsets import Offsets, from_json, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BATCHES = "batch bigint, live array<bigint>, state string"
OURS = '{"rocketline":'


@dataclass(frozen=True)
class State:
    """What a table contains: batches up to this number, messages up to this position."""

    batch: int
    position: Offsets
    live: tuple[int, ...] = ()
    """Parquet only: the batches whose folders count."""

    def to_text(self, columns: StructType | None = None) -> str:
        content = {"batch": self.batch, "position": to_json(self.position)}
        if columns is not None:
            content["columns"] = columns.jsonValue()
        return json.dumps({"rocketline": content}, separators=(",", ":"))


NOTHING = State(-1, {})


class Table(Protocol):
    """A table that grows by batches."""

    path: str

    def state(self) -> State:
        """NOTHING when there is no table."""

    def read(self) -> DataFrame | None:
        """All rows; None when there is no table."""

    def append(self, rows: DataFrame, next_state: State) -> None:
        """Add rows; they and the state count together or not at all."""

    def compact(self) -> None:
        """Write the rows into fewer files."""


def table_in(spark: SparkSession, target: str, name: str, table_format: str) -> Table:
    if table_format == "iceberg":
        from rocketline.pipelines.tables.iceberg import IcebergTable

        return IcebergTable(spark, target, name)
    path = f"{target.rstrip('/')}/{name}"
    if "`" in path:
        raise ConfigError(f"{path}: a backquote cannot be part of the path of a table")
    return DeltaTable(spark, path) if table_format == "delta" else ParquetTable(spark, path)


class DeltaTable:
    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path
        self._sql_name = f"delta.`{path}`"

    def state(self) -> State:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as f

        try:
            history = self._spark.sql(f"DESCRIBE HISTORY {self._sql_name}")
        except AnalysisException:
            return NOTHING
        ours = history.where(f.col("userMetadata").startswith(OURS)).orderBy(f.desc("version"))
        found = ours.select("userMetadata").head()
        if found is None:
            raise ConfigError(
                f"{self.path} is a table that `rocketline pipeline table` did not write: choose another folder"
            )
        return state_of(found[0], self.path)

    def read(self) -> DataFrame | None:
        from pyspark.errors import AnalysisException

        try:
            return self._spark.read.format("delta").load(self.path)
        except AnalysisException:
            return None

    def append(self, rows: DataFrame, next_state: State) -> None:
        self._commit(rows, next_state, txnAppId="rocketline pipeline table", txnVersion=str(next_state.batch))

    def _commit(self, rows: DataFrame, state: State, **more: str) -> None:
        options = {"userMetadata": state.to_text(), "mergeSchema": "true", "delta.enableTypeWidening": "true", **more}
        rows.write.format("delta").mode("append").partitionBy("day").options(**options).save(self.path)

    def merge(self, rows: DataFrame, next_state: State, key: Sequence[str], deleted: str) -> None:
        """Update, insert or delete the row of each key; `rows` has one row for a key, and a column `deleted`."""
        plain = rows.drop(deleted)
        if self._lacks(plain):
            self._commit(plain.limit(0), self.state())  # makes the table, or its new columns
        rows.createOrReplaceTempView("rocketline_changes")
        same = " AND ".join(f"t.{_quoted(name)} <=> s.{_quoted(name)}" for name in key)
        sets = ", ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in plain.columns)
        names = ", ".join(map(_quoted, plain.columns))
        values = ", ".join(f"s.{_quoted(name)}" for name in plain.columns)
        setting = "spark.databricks.delta.commitInfo.userMetadata"
        self._spark.conf.set(setting, next_state.to_text())
        try:
            self._spark.sql(
                f"MERGE INTO {self._sql_name} t USING rocketline_changes s ON {same} "  # noqa: S608 - names are quoted
                f"WHEN MATCHED AND s.{_quoted(deleted)} THEN DELETE WHEN MATCHED THEN UPDATE SET {sets} "
                f"WHEN NOT MATCHED AND NOT s.{_quoted(deleted)} THEN INSERT ({names}) VALUES ({values})"
            )
        finally:
            self._spark.conf.unset(setting)
        if self.state().batch < next_state.batch:
            self.append(plain.limit(0), next_state)  # nothing to change is no commit for Delta, but progress for us

    def _lacks(self, rows: DataFrame) -> bool:
        """Whether rows have columns or types that the table does not have."""
        there = self.read()
        known = {} if there is None else {field.name: field.dataType.simpleString() for field in there.schema}
        return any(known.get(field.name) != field.dataType.simpleString() for field in rows.schema)

    def compact(self) -> None:
        self._spark.sql(f"OPTIMIZE {self._sql_name}")


class ParquetTable:
    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path

    def state(self) -> State:
        return self._newest()[0]

    def read(self) -> DataFrame | None:
        from pyspark.sql.types import StructType

        state, text = self._newest()
        if not state.live:
            return None
        columns = StructType.fromJson(json.loads(text)["rocketline"]["columns"])
        folders = [f"{self.path}/rows/batch={number}" for number in state.live]
        reader = self._spark.read.schema(columns).option("basePath", f"{self.path}/rows")
        return reader.parquet(*folders).select(*columns.names)

    def append(self, rows: DataFrame, next_state: State) -> None:
        live = self.state().live
        self._write(rows, next_state.batch)
        self._note(replace(next_state, live=(*live, next_state.batch)), rows.schema)

    def compact(self) -> None:
        state, rows = self.state(), self.read()
        if rows is None or len(state.live) < 2:
            return
        number = state.batch + 1
        self._write(rows.repartition("day"), number)
        self._note(replace(state, batch=number, live=(number,)), rows.schema)
        self._remove(state.live)

    def _write(self, rows: DataFrame, number: int) -> None:
        rows.write.mode("overwrite").partitionBy("day").parquet(f"{self.path}/rows/batch={number}")

    def _note(self, state: State, columns: StructType) -> None:
        """Make a batch count, by a file that appears as a whole."""
        line = self._spark.createDataFrame([(state.batch, list(state.live), state.to_text(columns))], _BATCHES)
        line.coalesce(1).write.mode("append").json(f"{self.path}/batches")

    def _newest(self) -> tuple[State, str]:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as f

        try:
            found = self._spark.read.schema(_BATCHES).json(f"{self.path}/batches").orderBy(f.desc("batch")).head()
        except AnalysisException:
            return NOTHING, ""
        if found is None:
            return NOTHING, ""
        return replace(state_of(found.state, self.path), live=tuple(found.live)), found.state

    def _remove(self, batches: Sequence[int]) -> None:
        """Remove folders that do not count any more; over Connect there is no file system to do it with, and they stay."""
        jvm = getattr(self._spark, "_jvm", None)
        if jvm is None:
            return
        configuration = self._spark.sparkContext._jsc.hadoopConfiguration()
        for number in batches:
            folder = jvm.org.apache.hadoop.fs.Path(f"{self.path}/rows/batch={number}")
            folder.getFileSystem(configuration).delete(folder, True)


def state_of(text: str, path: str) -> State:
    content = json.loads(text)["rocketline"]
    return State(content["batch"], from_json(content["position"], f"the position of {path}"))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
