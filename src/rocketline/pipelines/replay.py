"""`replay`: sends messages of a cluster, or of a store's files, to another topic or cluster; with a condition and a rate.

What to read is fixed when the run begins, so a topic can be replayed into itself. Messages keep their unique id, tags,
keys and user properties; those of one queue keep their order. Delivery is at least once: messages sent again have the
same ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketline.pipelines.archive import selected
from rocketline.pipelines.origin import Origin
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.sending import in_order, send, sendable
from rocketline.pipelines.tasks import Progress, reporting_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    stored: DataFrame | None = None,
) -> Outcome:
    """Send the messages that `where` (Spark SQL over the source's columns) selects to `to_topic`, or to their own topics.

    `stored` are messages of tables, instead of those of the origin."""
    messages = origin.batch(spark) if stored is None else stored
    if where:
        messages = selected(messages, where)
    # Kept, because reading a live topic again could give more messages.
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
    rows = [(row["topic"], to_topic or row["topic"], row["count"]) for row in counts]
    return Outcome(f"replayed to {namesrv}", ("topic", "sent to", "messages"), rows)
