"""`replay`: messages of a cluster or of a store's files sent to another topic or cluster, selected by SQL, not too fast.

What is read is fixed when the run begins, so a topic can be replayed into itself. Messages keep unique id, tags, keys and
own properties; those of one queue keep their order. At least once: after a failure, what is sent again has the ids it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketline.pipelines.archive import selected
from rocketline.pipelines.origin import Origin
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.sending import in_order, send, sendable
from rocketline.pipelines.tasks import Progress, reporting_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay(
    spark: SparkSession,
    origin: Origin,
    namesrv: str,
    tell: Progress,
    *,
    to_topic: str | None = None,
    where: str | None = None,
    rate: float | None = None,
    keep_queues: bool = False,
) -> Outcome:
    """Send what `where` (Spark SQL over the source's columns) selects to `to_topic`, or to the topics they are in."""
    messages = origin.batch(spark)
    if where:
        messages = selected(messages, where)
    # Read once: a second look at a live topic could find more.
    messages = in_order(messages).persist()
    try:
        with reporting_tasks(spark, tell, "reading"):
            counts = messages.groupBy("topic").count().orderBy("topic").collect()
        total = sum(row["count"] for row in counts)
        tell(f"sending {total:,} messages to {namesrv}" + (f", {rate:g} a second" if rate else ""))
        with reporting_tasks(spark, tell, "sending"):
            chosen = sendable(messages, to_topic, keep_queues)
            send(chosen, namesrv, f"replay {origin} {where}", origin.access, rate)
    finally:
        messages.unpersist()
    rows = [(row["topic"], to_topic or row["topic"], f"{row['count']:,}") for row in counts]
    return Outcome(f"replayed to {namesrv}", ("topic", "sent to", "messages"), rows)
