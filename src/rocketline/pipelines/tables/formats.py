"""What all formats of tables have in common: rows are added together with a position, and what counts is read from commits.

`delta`, `iceberg` and `parquet` have the formats.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rocketline.errors import ConfigError
from rocketline.message import MessageQueue
from rocketline.pipelines.tables.runtimes import check_format
from rocketline.spark.offsets import Offsets, from_json, to_json

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame, SparkSession

OURS = '{"rocketline":'
"""How a state begins as a text."""

_MISSING = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND")
_NO_TABLE = (*_MISSING, "DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_ONLY_OPERATION")


@dataclass(frozen=True)
class State:
    """What a table contains: batches up to this number, messages up to this position."""

    batch: int
    position: Offsets
    key: tuple[str, ...] | None = None
    """Columns of which the table has the latest row of each value; () when it has every message, None when not known."""
    delete_when: str | None = None
    body: str = ""
    """What its bodies are."""
    wire: str | None = None
    """How they begin."""

    def to_text(self) -> str:
        content = {"batch": self.batch, "position": to_json(self.position)}
        kind = {"key": self.key, "delete_when": self.delete_when, "body": self.body, "wire": self.wire}
        return json.dumps({"rocketline": {**content, **kind}}, separators=(",", ":"))

    @staticmethod
    def of(text: str, path: str) -> State:
        content = json.loads(text)["rocketline"]
        key = content.get("key")
        return State(
            content["batch"],
            from_json(content["position"], f"the position of {path}"),
            None if key is None else tuple(key),
            content.get("delete_when"),
            content.get("body", ""),
            content.get("wire"),
        )


NOTHING = State(-1, {})
NEWER = (
    "(s.message.brokerName = t.message.brokerName AND s.message.queueId = t.message.queueId"
    " AND s.message.queueOffset >= t.message.queueOffset) OR s.message.storeTimestamp >= t.message.storeTimestamp"
)
"""Whether row `s` of a batch is not older than row `t` of a table. Within a queue offsets tell it, as the clock of a broker
may be set back; a queue that was created again begins at 0, with later times."""
GROWS = "--merge-key needs --format delta or iceberg: tables of parquet only grow"


@dataclass(frozen=True)
class Past:
    """A table as it was: its rows, its position, and when that was."""

    rows: DataFrame
    state: State
    time_ms: int


class Table(Protocol):
    """A table that grows by batches."""

    path: str

    def state(self) -> State:
        """NOTHING when there is no table."""

    def read(self) -> DataFrame | None:
        """All rows; None when there is no table."""

    def past(self, as_of: str) -> Past | None:
        """The table as it was at a version or a time; None when there was none at that time. ConfigError when the format
        keeps no history, or not so much of it."""

    def append(self, rows: DataFrame, next_state: State) -> None:
        """Add rows; they and the state count together or not at all."""

    def merge(self, rows: DataFrame, next_state: State, key: Sequence[str], deleted: str) -> None:
        """Update, insert or delete the row of each key; `rows` has one row for a key, and a column `deleted`. What is not
        NEWER than the row that is there changes nothing. ConfigError when the format only grows."""

    def tidy(self, batch: int) -> None:
        """After a batch of this number: write small files into larger ones, if it is time for that."""

    def compact(self) -> None:
        """Write small files into larger ones now."""


def check_place(target: str, table_format: str) -> None:
    """ConfigError when there cannot be tables of this format; without a session, which takes seconds to begin."""
    from rocketline.pipelines.tables.iceberg import check_catalog

    check_format(table_format)
    if table_format == "iceberg":
        check_catalog(target)
    elif "`" in target:
        raise ConfigError(f"{target}: a backquote cannot be part of the path of a table")


def table_in(spark: SparkSession, target: str, name: str, table_format: str) -> Table:
    from rocketline.pipelines.tables.delta import DeltaTable
    from rocketline.pipelines.tables.iceberg import IcebergTable
    from rocketline.pipelines.tables.parquet import ParquetTable

    check_place(target, table_format)
    if table_format == "iceberg":
        return IcebergTable(spark, target, name)
    path = f"{target.rstrip('/')}/{name}"
    return DeltaTable(spark, path) if table_format == "delta" else ParquetTable(spark, path)


def check_topic(path: str, state: State, topic: str) -> None:
    """ConfigError when a table is that of another topic: `x_rejected` is also where rejected messages of topic `x` are."""
    if others := sorted({queue.topic for queue in state.position} - {topic}):
        raise ConfigError(
            f"{path} has messages of topic {others[0]}, not of {topic}: use another folder for this topic"
        )


def is_missing(error: AnalysisException) -> bool:
    """Whether Spark says that there is no such table; anything else it says is an error."""
    return (error.getCondition() or "").split(".")[0] in _NO_TABLE


def position_of(rows: DataFrame) -> Offsets:
    """Where a table ends, by its own rows. A queue whose last messages are not in it ends too early."""
    from pyspark.sql import functions as f

    queues = rows.groupBy("message.topic", "message.brokerName", "message.queueId")
    return {
        MessageQueue(topic, broker, queue_id): offset + 1
        for topic, broker, queue_id, offset in queues.agg(f.max("message.queueOffset")).collect()
    }


def quoted(name: str) -> str:
    """A name as SQL has it.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"
