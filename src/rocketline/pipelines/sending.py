"""Stored messages sent once more: which of their columns go along, in which order, and how fast.

A message keeps its unique id, so whoever reads the target can tell one that was sent twice. Properties that a broker or a
consumer wrote into it stay behind: with them the new one would count as delayed, as a retry or as part of a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rocketline.errors import ConfigError
from rocketline.pipelines.tasks import parallelism

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

BROKERS_OWN = (
    "CLUSTER", "CONSUME_START_TIME", "DELAY", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "INNER_BASE", "INNER_NUM", "KEYS",
    "MAX_OFFSET", "MAX_RECONSUME_TIMES", "MIN_OFFSET", "MSG_REGION", "ORIGIN_MESSAGE_ID", "PGROUP", "POP_CK", "REAL_QID",
    "REAL_TOPIC", "RECONSUME_TIME", "RETRY_TOPIC", "TAGS", "TIMER_DELAY_LEVEL", "TIMER_DELAY_MS", "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS", "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TRACE_ON",
    "TRANSACTION_CHECK_TIMES", "TRAN_MSG", "WAIT", "__SHARDINGKEY", "__transactionId__",
)  # fmt: skip

SLICE_ROWS = 100


def in_order(frame: DataFrame) -> DataFrame:
    """Queue by queue, each in its order and in one task."""
    queue = ("topic", "brokerName", "queueId")
    return frame.repartition(*queue).sortWithinPartitions(*queue, "queueOffset")


def sendable(frame: DataFrame, topic: str | None = None, keep_queues: bool = False) -> DataFrame:
    """The columns the sink takes; `topic` for all of them, otherwise each goes to the one it was in."""
    from pyspark.sql import functions as f

    names = ", ".join(f"'{name}'" for name in BROKERS_OWN)
    queue_id = [f.col("queueId")] if keep_queues else []
    return frame.select(
        "body",
        f.lit(topic).alias("topic") if topic else f.col("topic"),
        "tags",
        "keys",
        f.expr(f"map_filter(properties, (name, value) -> name NOT IN ({names}))").alias("properties"),
        f.expr("properties['__SHARDINGKEY']").alias("shardingKey"),
        *queue_id,
    )


def paced(frame: DataFrame, per_second: float | None) -> DataFrame:
    """The same rows, at most so many a second over all tasks: they share the rate, so their number is made known."""
    if per_second is None:
        return frame
    if per_second <= 0:
        raise ConfigError(f"a rate of {per_second:g} messages a second: it must be above 0")
    tasks = max(1, min(parallelism(frame.sparkSession), int(per_second)))
    share = per_second / tasks

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started, sent = time.monotonic(), 0
        for batch in batches:
            for start in range(0, batch.num_rows, SLICE_ROWS):
                piece = batch.slice(start, SLICE_ROWS)
                time.sleep(max(0.0, started + sent / share - time.monotonic()))
                sent += piece.num_rows
                yield piece

    # Rows of a queue stay in one task and in their order.
    return frame.coalesce(tasks).mapInArrow(slowly, frame.schema)


def send(frame: DataFrame, namesrv: str, write_id: str, access: Mapping[str, str]) -> None:
    """Send everything; done again with the same rows in the same order and the same `write_id`, it is recognisable."""
    writer = frame.write.format("rocketmq").options(namesrv=namesrv, writeId=write_id, **access)
    writer.mode("append").save()
