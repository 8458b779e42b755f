"""`dlq`: counts dead letters by group, topic of origin, reason and hour, and sends some again.

RocketMQ stores with a dead letter its topic of origin and the number of deliveries, but not why it failed. If programs store
the reason in a property of their messages, `error_property` names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rocketline.client.bulk.reader import BulkReader
from rocketline.errors import ConfigError
from rocketline.message import DLQ_PREFIX
from rocketline.pipelines.archive import selected
from rocketline.pipelines.origin import NO_ACCESS, Origin
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.sending import in_order, send, sendable
from rocketline.pipelines.tasks import Progress, reporting_tasks
from rocketline.protocol.names import dlq_topic
from rocketline.spark.access_options import client_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def dlq_origin(
    namesrv: str | None, path: str | None, groups: Sequence[str] = (), access: Mapping[str, str] = NO_ACCESS
) -> Origin | None:
    """The dead letters of some groups, or of all; None when the cluster has none."""
    topics = tuple(dlq_topic(group) for group in groups)
    if namesrv is not None and path is None and not topics:
        with BulkReader(namesrv, group="rocketline_dlq", **client_options(access)) as reader:
            topics = tuple(sorted(topic for topic in reader.topics() if topic.startswith(DLQ_PREFIX)))
        if not topics:
            return None
    return Origin(topics, namesrv=namesrv, path=path, access=access)


def dead_letters(messages: DataFrame, error_property: str | None = None) -> DataFrame:
    """The dead letters among messages, with the columns `group`, `origin` (a topic), `error` and `hour`."""
    from pyspark.sql import functions as f

    properties = f.col("properties")
    reason = f.concat(f.lit("given up after "), f.col("reconsumeTimes").cast("string"), f.lit(" retries"))
    if error_property:
        reason = f.coalesce(properties[error_property], reason)
    return messages.where(f.col("topic").startswith(DLQ_PREFIX)).withColumns(
        {
            "group": f.substring("topic", len(DLQ_PREFIX) + 1, 255),
            "origin": f.coalesce(properties["RETRY_TOPIC"], properties["DLQ_ORIGIN_TOPIC"]),
            "error": reason,
            "hour": f.date_trunc("hour", "storeTimestamp"),
        }
    )


def report(letters: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        letters.groupBy("group", "origin", "error", "hour")
        .agg(f.count("*").alias("messages"), f.min("msgId").alias("for example"))
        .orderBy("group", "origin", "hour", "error")
    )


def dlq(
    spark: SparkSession,
    origin: Origin | None,
    tell: Progress,
    *,
    error_property: str | None = None,
    redrive: str | None = None,
    namesrv: str | None = None,
    rate: float | None = None,
) -> Outcome:
    """Report dead letters; `redrive`, a Spark SQL condition over their columns, selects those to send to their topics
    again."""
    if origin is None:
        return Outcome("dead letters", notes=["there are none: the cluster has no dead-letter topic"])
    letters = in_order(dead_letters(origin.batch(spark), error_property)).persist()
    try:
        with reporting_tasks(spark, tell, "reading dead letters"):
            outcome = Outcome.of("dead letters", report(letters))
        if redrive is not None:
            target = namesrv or origin.namesrv
            outcome.notes.append(_redrive(selected(letters, redrive), redrive, target, origin.access, rate, tell))
    finally:
        letters.unpersist()
    return outcome


def _redrive(
    chosen: DataFrame,
    condition: str,
    namesrv: str | None,
    access: Mapping[str, str],
    rate: float | None,
    tell: Progress,
) -> str:
    from pyspark.sql import functions as f

    if namesrv is None:
        raise ConfigError("sending dead letters again needs the name server of a cluster: --to-namesrv HOST:PORT")
    known = chosen.where(f.col("origin").isNotNull()).withColumn("topic", f.col("origin"))
    count, unknown = known.count(), chosen.where(f.col("origin").isNull()).count()
    tell(f"sending {count:,} dead letters again")
    with reporting_tasks(chosen.sparkSession, tell, "sending"):
        send(sendable(known), namesrv, f"redrive {condition}", access, rate)
    left = f"; {unknown:,} do not name their topic and are left out" if unknown else ""
    return f"{count:,} were sent to the topics they came from{left}"
