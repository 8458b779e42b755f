"""Tables of Delta Lake: a commit has rows, and in its user metadata the position.

Number and application of the transaction keep a second job from adding the same rows. Delta Lake forgets old commits after a
time (30 days), and a RESTORE brings back old rows without their position. So the position is that of the newest commit of
ours that the rows of the table come from; if there is none any more, it follows from the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.as_of import point
from rocketline.pipelines.tables.formats import NEWER, NOTHING, OURS, Past, State, is_missing, position_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

RECENT = 50
"""So many commits are looked at before all of them are."""

OPTIMIZE_EVERY = 100
"""Batches."""

_APPLICATION = "rocketline pipeline table"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class DeltaTable:
    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path
        self._sql_name = f"delta.{quoted(path)}"

    def state(self) -> State:
        from pyspark.errors import AnalysisException

        try:
            commits = self._commits(RECENT)
            found = self._newest(commits)
            if found is None and len(commits) == RECENT:
                found = self._newest(commits := self._commits())
        except AnalysisException as error:
            if not is_missing(error):
                raise
            return NOTHING
        if found is not None:
            return found
        return self._state_by(self.read(), commits)

    def read(self) -> DataFrame | None:
        from pyspark.errors import AnalysisException

        try:
            rows = self._spark.read.format("delta").load(self.path)
            _ = rows.schema  # over Connect nothing is looked up before
        except AnalysisException as error:
            if not is_missing(error):
                raise
            return None
        return rows

    def past(self, as_of: str) -> Past | None:
        from pyspark.errors import AnalysisException

        version, time_ms = point(as_of)
        try:
            known = self._commits()
        except AnalysisException as error:
            if not is_missing(error):
                raise
            return None
        commits = [each for each in known if (each.at <= time_ms if version is None else each.version <= version)]
        if version is not None and (not commits or commits[0].version != version):
            raise ConfigError(f"{self.path} has no version {version}, or its history does not go back that far")
        if not commits:
            return None
        rows = self._spark.read.format("delta").option("versionAsOf", commits[0].version).load(self.path)
        return Past(rows, self._newest(commits) or self._state_by(rows, commits), commits[0].at)

    def append(self, rows: DataFrame, next_state: State) -> None:
        self._commit(rows, next_state, txnAppId=_APPLICATION, txnVersion=str(next_state.batch))

    def merge(self, rows: DataFrame, next_state: State, key: Sequence[str], deleted: str) -> None:
        plain = rows.drop(deleted)
        if self._lacks(plain):
            self._commit(plain.limit(0), self.state())  # makes the table, or its new columns
        rows.createOrReplaceTempView("rocketline_changes")
        self._spark.conf.set(_METADATA, next_state.to_text())
        try:
            self._spark.sql(_merge_sql(self._sql_name, plain.columns, key, deleted))
        finally:
            self._spark.conf.unset(_METADATA)
        if self.state().batch < next_state.batch:
            self.append(plain.limit(0), next_state)  # nothing to change is no commit for Delta, but progress for us

    def tidy(self, batch: int) -> None:
        if batch % OPTIMIZE_EVERY == OPTIMIZE_EVERY - 1:
            self.compact()

    def compact(self) -> None:
        self._spark.sql(f"OPTIMIZE {self._sql_name}")
        # What no version of the last seven days needs, or as the property delta.deletedFileRetentionDuration says.
        self._spark.sql(f"VACUUM {self._sql_name}")

    def _commit(self, rows: DataFrame, state: State, **more: str) -> None:
        options = {"userMetadata": state.to_text(), "mergeSchema": "true", "delta.enableTypeWidening": "true", **more}
        rows.write.format("delta").mode("append").partitionBy("day").options(**options).save(self.path)

    def _lacks(self, rows: DataFrame) -> bool:
        """Whether the table lacks one of these columns, or has it with another type."""
        there = self.read()
        known = {} if there is None else {field.name: field.dataType.simpleString() for field in there.schema}
        return any(known.get(field.name) != field.dataType.simpleString() for field in rows.schema)

    def _commits(self, most: int | None = None) -> list[Row]:
        """The newest commits that Delta Lake still knows, the newest first."""
        limit = "" if most is None else f" LIMIT {most}"
        history = self._spark.sql(f"DESCRIBE HISTORY {self._sql_name}{limit}")
        restored = [
            f"try_cast(IF(operation = 'RESTORE', operationParameters['{name}'], NULL) AS {kind}) AS to_{name}"
            for name, kind in (("version", "bigint"), ("timestamp", "timestamp"))
        ]
        at = "unix_millis(timestamp) AS at"
        rows = history.selectExpr("version", "timestamp", at, "userMetadata", *restored).collect()
        return sorted(rows, key=lambda row: -row.version)

    def _newest(self, commits: Sequence[Row]) -> State | None:
        """The state of the newest commit of ours that counts: after a RESTORE those up to its target do."""
        restore: Row | None = None
        for commit in commits:
            if restore is not None and not _is_restored(commit, restore):
                continue
            if commit.userMetadata is not None and commit.userMetadata.startswith(OURS):
                state = State.of(commit.userMetadata, self.path)
                # Numbers of batches that a RESTORE undid are used up; the number of a commit is above all of them.
                return state if restore is None else replace(state, batch=commits[0].version)
            if commit.to_version is not None or commit.to_timestamp is not None:
                restore = commit
        return None

    def _state_by(self, rows: DataFrame | None, commits: Sequence[Row]) -> State:
        """The state that follows from rows; the number of a commit is never below that of the batch in it."""
        if rows is None or not {"message", "day"} <= {*rows.columns}:
            raise ConfigError(
                f"{self.path} is a table that `rocketline pipeline table` did not write: choose another folder"
            )
        return State(commits[0].version, position_of(rows))


def _is_restored(commit: Row, restore: Row) -> bool:
    """Whether a commit is what a RESTORE brought back, or older than that."""
    if restore.to_version is not None:
        return bool(commit.version <= restore.to_version)
    return bool(commit.timestamp <= restore.to_timestamp)


def _merge_sql(table: str, columns: Sequence[str], key: Sequence[str], deleted: str) -> str:
    same = " AND ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in key)
    sets = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns)
    names = ", ".join(map(quoted, columns))
    values = ", ".join(f"s.{quoted(name)}" for name in columns)
    return (
        f"MERGE INTO {table} t USING rocketline_changes s ON {same} "  # noqa: S608 - names are quoted
        f"WHEN MATCHED AND ({NEWER}) AND s.{quoted(deleted)} THEN DELETE WHEN MATCHED AND ({NEWER}) THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s.{quoted(deleted)} THEN INSERT ({names}) VALUES ({values})"
    )
