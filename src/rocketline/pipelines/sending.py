"""Sending stored messages again: which columns are kept, the order, and the rate.

A message keeps its unique id, so that readers can recognise one that was sent twice. Properties that a broker or a
consumer set are dropped: with them the new message would count as delayed, as a retry or as part of a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketline.errors import ConfigError
from rocketline.pipelines.tasks import parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BROKER_PROPERTIES = (
    "CLUSTER", "CONSUME_START_TIME", "DELAY", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "INNER_BASE", "INNER_NUM", "KEYS",
    "MAX_OFFSET", "MAX_RECONSUME_TIMES", "MIN_OFFSET", "MSG_REGION", "ORIGIN_MESSAGE_ID", "PGROUP", "POP_CK", "REAL_QID",
    "REAL_TOPIC", "RECONSUME_TIME", "RETRY_TOPIC", "TAGS", "TIMER_DELAY_LEVEL", "TIMER_DELAY_MS", "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS", "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TRACE_ON",
    "TRANSACTION_CHECK_TIMES", "TRAN_MSG", "WAIT", "__SHARDINGKEY", "__transactionId__",
)  # fmt: skip


def in_order(frame: DataFrame) -> DataFrame:
    """The rows sorted by queue and offset, each queue in one task."""
    queue = ("topic", "brokerName", "queueId")
    return frame.repartition(*queue).sortWithinPartitions(*queue, "queueOffset")


def sendable(frame: DataFrame, topic: str | None = None, keep_queues: bool = False) -> DataFrame:
    """The columns for the sink; all messages go to `topic`, or without it each to its own topic."""
    from pyspark.sql import functions as f

    names = ", ".join(f"'{name}'" for name in BROKER_PROPERTIES)
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


def send(frame: DataFrame, namesrv: str, write_id: str, access: Mapping[str, str], rate: float | None = None) -> None:
    """Send all rows, at most `rate` messages per second. Sent again with the same rows, order and `write_id`, messages
    have the same unique ids."""
    options = {"namesrv": namesrv, "writeId": write_id, **access}
    if rate is not None:
        if not rate > 0:
            raise ConfigError(f"a rate of {rate:g} messages a second: it must be above 0")
        # Tasks share the rate, so their number must be fixed; rows of a queue stay in one task and in their order.
        tasks = max(1, min(parallelism(frame.sparkSession), int(rate)))
        frame, options["rowsPerSecond"] = frame.coalesce(tasks), str(rate / tasks)
    frame.write.format("rocketmq").options(**options).mode("append").save()
