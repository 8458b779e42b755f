"""`audit-table` proves that a table has what its topic has: every message once, with the same bytes. And the messages of
tables, to send them again (`restore`).

Compared is what the topic still has, up to the position of the table, by queue, offset and CRC-32 of the body. Rows of
messages that the broker has deleted since are counted, not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketline.errors import ConfigError
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.tables.formats import table_in
from rocketline.pipelines.tables.table import TopicTable
from rocketline.pipelines.tasks import Progress, reporting_tasks
from rocketline.spark.live.options import LiveOptions
from rocketline.spark.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACE = ("brokerName", "queueId", "queueOffset")


def stored_messages(spark: SparkSession, target: str, topics: Sequence[str], table_format: str) -> DataFrame:
    """The messages in tables of topics, rejected ones included; ConfigError when there are none or they have no bodies."""
    if not topics:
        raise ConfigError("which tables? give --topic, once for each")
    found: DataFrame | None = None
    for topic in topics:
        messages = _messages(spark, target, topic, table_format)
        found = messages if found is None else found.unionByName(messages)
    assert found is not None
    return found


def _messages(spark: SparkSession, target: str, topic: str, table_format: str) -> DataFrame:
    main = table_in(spark, target, topic, table_format)
    rows = main.read()
    if rows is None:
        raise ConfigError(f"{main.path} is not a table of format {table_format}")
    messages = rows.select("message.*")
    if "body" not in messages.columns:
        raise ConfigError(f"{main.path} has no bodies: it was made with --no-keep-body")
    rejected = table_in(spark, target, f"{topic}_rejected", table_format).read()
    return messages if rejected is None else messages.unionByName(rejected.select("message.*"))


def audit_table(spark: SparkSession, wanted: TopicTable, tell: Progress) -> Outcome:
    from pyspark.sql import functions as f

    state = table_in(spark, wanted.target, wanted.topic, wanted.table_format).state()
    messages = _messages(spark, wanted.target, wanted.topic, wanted.table_format)
    start, end = _range(wanted, state.position)
    log = spark.read.format("rocketmq").options(**wanted.between(start, end)).load()
    begins = spark.createDataFrame(
        [(queue.broker_name, queue.queue_id, offset) for queue, offset in start.items()],
        "brokerName string, queueId int, begin bigint",
    )
    there = _counted(messages.join(begins, ["brokerName", "queueId"]).where("queueOffset >= begin"), "table")
    both = _counted(log, "log").join(there, [*_PLACE], "full")
    compared = both.groupBy("brokerName", "queueId").agg(
        f.count("log_crc").alias("in the log"),
        f.count("table_crc").alias("in the table"),
        f.count_if(f.col("table_crc").isNull()).alias("missing"),
        f.count_if(f.col("log_crc").isNull()).alias("unexpected"),
        f.count_if(f.col("table_rows") > 1).alias("twice"),
        f.count_if(f.col("log_crc") != f.col("table_crc")).alias("different"),
    )
    with reporting_tasks(spark, tell, "comparing"):
        outcome = Outcome.of(
            f"table of topic {wanted.topic} against its log", compared.orderBy("brokerName", "queueId")
        )
    older = messages.join(begins, ["brokerName", "queueId"]).where("queueOffset < begin").count()
    outcome.is_bad = any(any(row[4:]) for row in outcome.rows)
    outcome.notes += [f"{older:,} rows are older than the log"] if older else []
    outcome.notes.append("they differ" if outcome.is_bad else "every message is in the table once, with the same bytes")
    return outcome


def _counted(messages: DataFrame, name: str) -> DataFrame:
    from pyspark.sql import functions as f

    return messages.groupBy(*_PLACE).agg(
        f.count("*").alias(f"{name}_rows"), f.max(f.crc32("body")).alias(f"{name}_crc")
    )


def _range(wanted: TopicTable, position: Offsets) -> tuple[Offsets, Offsets]:
    """What the topic still has of what the table has."""
    with LiveOptions.parse(wanted.cluster).endpoint.reader() as reader:
        begins = reader.begins(reader.queues(wanted.topic))
    start = {queue: max(0, begin) for queue, begin in begins.items()}
    return start, {queue: max(position.get(queue, 0), start[queue]) for queue in start}
