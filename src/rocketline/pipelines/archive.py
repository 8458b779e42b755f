"""`archive` copies topics to Parquet, each message exactly once, and continues with every run; `restore` sends them back.

    ARCHIVE/messages/topic=orders/day=2026-01-31/brokerName=broker-a/batch=17/part-*.parquet
    ARCHIVE/checkpoint        progress in a cluster, kept by Spark
    ARCHIVE/batches           progress in the log of each store, one row per batch

A batch may be written twice, when a run is killed before the batch is recorded as done. It then has the same number and
the same start, so it fills the same folders, which are replaced as a whole: files of the first attempt are gone.
Batches that were recorded are not touched again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rocketline.errors import ConfigError
from rocketline.pipelines.origin import NO_ACCESS, Origin
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.sending import in_order, send, sendable
from rocketline.pipelines.streams import finish
from rocketline.pipelines.tables.formats import is_missing
from rocketline.pipelines.tasks import Progress, reporting_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = ("topic", "day", "brokerName", "batch")
COLUMNS = (
    "queueId int, queueOffset bigint, commitLogOffset bigint, msgId string, tags string, keys string, body binary, "
    "properties map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, bornHost string, "
    "reconsumeTimes int, sysFlag int, topic string, day date, brokerName string, batch bigint"
)
_BATCHES = "store string, batch bigint, start bigint, end bigint, at timestamp"


def archive(
    spark: SparkSession,
    origin: Origin,
    target: str,
    tell: Progress,
    *,
    follow: bool = False,
    per_batch: int = 1_000_000,
) -> Outcome:
    """Add all new messages to an archive; with `follow`, keep doing so until stopped. `per_batch` limits the messages of one
    batch of a cluster."""
    if origin.is_live:
        _archive_topics(spark, origin, target, tell, follow, per_batch)
    elif follow:
        raise ConfigError("files of a store cannot be followed: run the archive again to add new messages")
    else:
        _archive_logs(spark, origin, target, tell)
    return _summary(spark, target)


def _archive_topics(
    spark: SparkSession, origin: Origin, target: str, tell: Progress, follow: bool, per_batch: int
) -> None:
    def write(batch: DataFrame, number: int) -> None:
        _write(batch, target, number)

    stream = origin.stream(spark, maxOffsetsPerTrigger=str(per_batch))
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", f"{target}/checkpoint")
    finish(writer.queryName("archive"), follow, tell)


def _archive_logs(spark: SparkSession, origin: Origin, target: str, tell: Progress) -> None:
    from rocketline.spark.log.plan import StoredLog
    from rocketline.store.tools.folder import find_stores
    from rocketline.store.tools.read_only import ReadOnlyDisk

    assert origin.path is not None
    disk = ReadOnlyDisk()
    for store in find_stores(disk, Path(origin.path).absolute()):
        name = store.name.name
        number, start = _progress(spark, target, name)
        with closing(StoredLog(store, disk)) as log:
            end, first = log.next_offset, log.files[0].base if log.files else 0
        if first > start > 0:
            tell(f"{store.name}: {first - start:,} bytes of the log were deleted before they could be archived")
        if end <= start:
            tell(f"{store.name}: nothing new since log offset {start:,}")
            continue
        window = {"startingLogOffset": str(start), "endingLogOffset": str(end), "brokerName": name}
        part = Origin(origin.topics, path=str(store.name), options=origin.options)
        tell(f"{store.name}: batch {number}, log offset {start:,} to {end:,}")
        with reporting_tasks(spark, tell, f"batch {number}"):
            _write(part.batch(spark, **window), target, number)
        _note(spark, target, (name, number, start, end, datetime.now(UTC)))


def _write(messages: DataFrame, target: str, number: int) -> None:
    from pyspark.sql import functions as f

    rows = messages.withColumns({"day": f.to_date("storeTimestamp"), "batch": f.lit(number).cast("bigint")})
    writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy(*PARTITIONS)
    writer.parquet(f"{target}/messages")


def _progress(spark: SparkSession, target: str, store: str) -> tuple[int, int]:
    """(number of the next batch of a store, log offset where it begins)."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    try:
        done = spark.read.schema(_BATCHES).json(f"{target}/batches").where(f.col("store") == store).collect()
    except AnalysisException as error:
        if not is_missing(error):
            raise
        return 0, 0
    return max((row.batch + 1 for row in done), default=0), max((row.end for row in done), default=0)


def _note(spark: SparkSession, target: str, batch: tuple[str, int, int, int, datetime]) -> None:
    """Record that a batch is done, in one file that appears as a whole."""
    spark.createDataFrame([batch], _BATCHES).coalesce(1).write.mode("append").json(f"{target}/batches")


def archived(spark: SparkSession, target: str) -> DataFrame:
    """The messages of an archive; ConfigError when there is none."""
    from pyspark.errors import AnalysisException

    try:
        return spark.read.schema(COLUMNS).parquet(f"{target}/messages")
    except AnalysisException as error:
        raise ConfigError(f"{target} is not an archive: it has no folder 'messages'") from error


def _summary(spark: SparkSession, target: str) -> Outcome:
    from pyspark.sql import functions as f

    try:
        messages = archived(spark, target)
    except ConfigError:
        return Outcome(f"archive {target}", notes=["nothing is archived yet"])
    counted = messages.groupBy("topic").agg(
        f.count("*").alias("messages"),
        f.countDistinct("brokerName", "queueId").alias("queues"),
        f.countDistinct("brokerName", "batch").alias("batches"),
        f.min("storeTimestamp").alias("first"),
        f.max("storeTimestamp").alias("last"),
        f.sum(f.length("body")).alias("body bytes"),
    )
    return Outcome.of(f"archive {target}", counted.orderBy("topic"))


def restore(
    spark: SparkSession,
    source: str,
    messages: DataFrame,
    namesrv: str,
    tell: Progress,
    *,
    topics: tuple[str, ...] = (),
    to_topic: str | None = None,
    where: str | None = None,
    rate: float | None = None,
    access: Mapping[str, str] = NO_ACCESS,
) -> Outcome:
    """Send the messages of `source` that `where` (Spark SQL over their columns) selects to their topics, or to another
    one."""
    from pyspark.sql import functions as f

    if topics:
        messages = messages.where(f.col("topic").isin(*topics))
    if where:
        messages = selected(messages, where)
    counts = messages.groupBy("topic").agg(f.count("*").alias("messages")).orderBy("topic").collect()
    tell(f"sending {sum(row.messages for row in counts):,} messages to {namesrv}")
    with reporting_tasks(spark, tell, "restore"):
        write_id = f"restore {source} {where} {topics}"
        send(sendable(in_order(messages), to_topic), namesrv, write_id, access, rate)
    rows = [(row.topic, to_topic or row.topic, row.messages) for row in counts]
    return Outcome(f"restored from {source}", ("topic", "sent to", "messages"), rows)


def selected(messages: DataFrame, where: str) -> DataFrame:
    """The rows that a condition selects; ConfigError when Spark does not accept it."""
    from pyspark.errors import AnalysisException

    try:
        found = messages.where(where)
        _ = found.schema
        return found
    except AnalysisException as error:
        message = str(error).splitlines()[0]
        raise ConfigError(f"the condition {where!r} is not valid: {message}") from error
