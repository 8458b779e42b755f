"""`trace`: computes latencies from the message trace topic: times of sending, of delivery to a group and of handling, as
percentiles by topic and group.

Trace records are joined by the unique id of the message. The end-to-end time is from when a producer got its answer to
when a consumer first began to handle the message, by the clocks of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketline.pipelines.origin import Origin
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.plot import plot_bars
from rocketline.pipelines.tasks import Progress, reporting_tasks
from rocketline.protocol.trace import Pub, SubAfter, SubBefore, decode_traces

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SCHEMA = (
    "kind string, at_ms bigint, group string, topic string, msgId string, request string, cost_ms bigint, retries int, "
    "success boolean"
)
PERCENTILES = (0.5, 0.9, 0.99)


def trace_rows(body: bytes) -> Iterator[tuple[Any, ...]]:
    """Rows for the records about sending and consuming in a trace message."""
    for record in decode_traces(body):
        if isinstance(record, Pub):
            yield (
                "Pub", record.timestamp_ms, record.group, record.topic, record.message_id, None, record.cost_ms, 0,
                record.success,
            )  # fmt: skip
        elif isinstance(record, SubBefore):
            yield (
                "SubBefore", record.timestamp_ms, record.group, None, record.message_id, record.request_id, None,
                record.retry_times, None,
            )  # fmt: skip
        elif isinstance(record, SubAfter):
            yield (
                "SubAfter", record.timestamp_ms, record.group, None, record.message_id, record.request_id,
                record.cost_ms, None, record.success,
            )  # fmt: skip


def traces(messages: DataFrame) -> DataFrame:
    """A row for each record of the trace messages; messages that are no traces are skipped."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from rocketline.errors import RemoteProtocolError

    spark = messages.sparkSession
    schema = to_arrow_schema(spark.createDataFrame([], SCHEMA).schema)

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            rows: list[tuple[Any, ...]] = []
            for body in batch.column("body").to_pylist():
                try:
                    rows += trace_rows(body)
                except RemoteProtocolError:
                    continue
            columns = list(zip(*rows)) or [()] * len(schema)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, schema)], schema=schema
            )

    return messages.select("body").mapInArrow(decode, SCHEMA)


def latencies(records: DataFrame) -> DataFrame:
    """Percentiles in milliseconds by topic and group: of sending for producers, of arriving and handling for consumers."""
    from pyspark.sql import functions as f

    sent = records.where("kind = 'Pub' AND success").dropDuplicates(["msgId"])
    taken = (
        records.where("kind = 'SubBefore' AND retries = 0")
        .groupBy("msgId", "group")
        .agg(f.min("at_ms").alias("taken_ms"), f.min_by("request", "at_ms").alias("request"))
    )
    done = records.where("kind = 'SubAfter'").groupBy("request", "msgId").agg(f.max("cost_ms").alias("cost"))
    sends = sent.select("topic", "group", f.lit("send").alias("what"), f.col("cost_ms").alias("ms"))
    arrivals = taken.join(sent.select("msgId", "topic", "at_ms"), "msgId")
    arriving = arrivals.select(
        "topic", "group", f.lit("end to end").alias("what"), (f.col("taken_ms") - f.col("at_ms")).alias("ms")
    )
    handling = arrivals.join(done, ["request", "msgId"]).select(
        "topic", "group", f.lit("handle").alias("what"), f.col("cost").alias("ms")
    )
    percentiles = [f.percentile_approx("ms", share, 10_000).alias(f"p{round(share * 100)}") for share in PERCENTILES]
    return (
        sends.unionByName(arriving)
        .unionByName(handling)
        .groupBy("topic", "group", "what")
        .agg(f.count("*").alias("messages"), *percentiles, f.max("ms").alias("max"))
    )


def trace(spark: SparkSession, origin: Origin, tell: Progress, *, out: Path | None = None) -> Outcome:
    """Latencies of the traced messages; with `out`, also as `out`/latencies (Parquet) and `out`/latencies.svg."""
    found = latencies(traces(origin.batch(spark))).orderBy("topic", "what", "group").persist()
    try:
        with reporting_tasks(spark, tell, "reading traces"):
            outcome = Outcome.of("latencies in ms", found)
        if out is not None:
            found.write.mode("overwrite").parquet(str(out / "latencies"))
            bars = {
                f"{row['topic']} {row['group']} {row['what']}": {
                    name: float(row[name]) for name in ("p50", "p90", "p99")
                }
                for row in found.collect()
            }
            plot_bars(out / "latencies.svg", "latencies", bars, "ms")
            outcome.notes.append(f"the table is {out / 'latencies'}, the plot {out / 'latencies.svg'}")
    finally:
        found.unpersist()
    return outcome
