"""Points in the history of a table: the number of a version or snapshot, or a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.formats import OURS, State, state_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def point(text: str) -> tuple[int | None, int]:
    """(version or snapshot, 0) or (None, milliseconds since 1970). A time without a zone is UTC.

    >>> point("17"), point("1970-01-01T00:00:01Z")
    ((17, 0), (None, 1000))
    """
    if text.isascii() and text.isdigit():
        return int(text), 0
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--as-of {text}: the number of a version (Delta) or snapshot (Iceberg) is expected, or a time like "
            "2026-01-31T12:00:00Z"
        ) from None
    return None, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(frozen=True)
class Past:
    """A table as it was: its rows, its position, and when that was."""

    rows: DataFrame
    state: State
    time_ms: int


def past(spark: SparkSession, target: str, name: str, table_format: str, as_of: str) -> Past | None:
    """None when there was no table yet; ConfigError when the format keeps no history, or not so much of it."""
    if table_format == "iceberg":
        from rocketline.pipelines.tables.iceberg import IcebergTable

        return IcebergTable(spark, target, name, as_of).past()
    if table_format != "delta":
        raise ConfigError(f"--as-of needs --format delta or iceberg: tables of {table_format} keep no history")
    return _past_delta(spark, f"{target.rstrip('/')}/{name}", *point(as_of))


def _past_delta(spark: SparkSession, path: str, version: int | None, time_ms: int) -> Past | None:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    try:
        history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`")  # `table_in` refuses backquotes
    except AnalysisException:
        return None
    until = f.col("version") <= version if version is not None else f.unix_millis("timestamp") <= time_ms
    when = f.unix_millis("timestamp").alias("at")
    commits = history.where(until).orderBy(f.desc("version")).select("version", when, "userMetadata").collect()
    if not commits or (version is not None and commits[0].version != version):
        if version is None:
            return None
        raise ConfigError(f"{path} has no version {version}, or its history does not go back that far")
    found = next((commit.userMetadata for commit in commits if (commit.userMetadata or "").startswith(OURS)), None)
    if found is None:
        raise ConfigError(f"{path} has no position at version {commits[0].version}: it was not written by us then")
    rows = spark.read.format("delta").option("versionAsOf", commits[0].version).load(path)
    return Past(rows, state_of(found, path), commits[0].at)
