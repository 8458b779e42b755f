"""`lag`: the lag of groups, the rates of groups and producers, and when the groups will have caught up.

Offsets are read from the brokers a few times. Each time gives a row for each group, topic and queue. The rows are added to a
Parquet table, so that several runs make a time series; the summary is a query over the rows of this run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocketline.client.bulk.reader import BulkReader
from rocketline.errors import ConfigError
from rocketline.pipelines.origin import NO_ACCESS
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.plot import plot_lines
from rocketline.pipelines.tasks import Progress
from rocketline.protocol.names import DEFAULT_TOPIC, NOT_SENDABLE
from rocketline.spark.access_options import client_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_RESERVED = {DEFAULT_TOPIC, *NOT_SENDABLE}


class LagSample(NamedTuple):
    """The offsets of a group in one queue at one time."""

    at: datetime
    group: str
    topic: str
    brokerName: str  # noqa: N815
    queueId: int  # noqa: N815
    committed: int
    end: int
    lag: int


SCHEMA = (
    "at timestamp, group string, topic string, brokerName string, queueId int, committed bigint, end bigint, lag bigint"
)


def samples_now(
    namesrv: str, groups: Iterable[str], topics: Sequence[str], access: Mapping[str, str] = NO_ACCESS
) -> Iterator[LagSample]:
    """A sample of every queue for which a group committed something; of all topics when none is named."""
    at = datetime.now(UTC)
    for group in groups:
        with BulkReader(namesrv, group=group, **client_options(access)) as reader:
            queues = [queue for topic in topics or _own_topics(reader) for queue in reader.queues(topic)]
            committed = reader.group_offsets(queues)
            ends = reader.ends(committed)
        for queue, offset in sorted(committed.items()):
            end = ends[queue]
            yield LagSample(
                at, group, queue.topic, queue.broker_name, queue.queue_id, offset, end, max(0, end - offset)
            )


def _own_topics(reader: BulkReader) -> list[str]:
    return [topic for topic in reader.topics() if topic not in _RESERVED and not topic.lower().startswith("rmq_sys_")]


def lag(
    spark: SparkSession,
    namesrv: str,
    groups: Sequence[str],
    tell: Progress,
    *,
    topics: Sequence[str] = (),
    times: int = 5,
    every_s: float = 2.0,
    out: Path | None = None,
    access: Mapping[str, str] = NO_ACCESS,
) -> Outcome:
    """LagSample `times` times; with `out`, keep the samples in `out`/samples and draw `out`/lag.svg."""
    if not groups:
        raise ConfigError("name at least one consumer group")
    taken: list[LagSample] = []
    for number in range(times):
        if number:
            time.sleep(every_s)
        now = list(samples_now(namesrv, groups, topics, access))
        taken += now
        tell(f"sample {number + 1} of {times}: {sum(sample.lag for sample in now):,} messages behind")
    if not taken:
        return Outcome("lag", notes=[f"{', '.join(groups)}: nothing was committed for any of these topics"])
    frame = spark.createDataFrame(taken, SCHEMA)
    outcome = Outcome.of("lag", summary(frame).orderBy("group", "topic", "brokerName", "queueId"))
    if out is not None:
        frame.write.mode("append").parquet(str(out / "samples"))
        _plot(out / "lag.svg", taken)
        outcome.notes.append(f"samples are in {out / 'samples'}, the plot is {out / 'lag.svg'}")
    return outcome


def summary(samples: DataFrame) -> DataFrame:
    """For each queue: lag, messages produced and consumed per second, and seconds until it is caught up; null when never."""
    from pyspark.sql import functions as f

    seconds = f.expr("unix_micros(max(at)) - unix_micros(min(at))") / 1e6
    rates = samples.groupBy("group", "topic", "brokerName", "queueId").agg(
        f.expr("max_by(lag, at)").alias("lag"),
        f.try_divide(f.expr("max_by(end, at) - min_by(end, at)"), seconds).alias("produced/s"),
        f.try_divide(f.expr("max_by(committed, at) - min_by(committed, at)"), seconds).alias("consumed/s"),
    )
    gain = f.col("`consumed/s`") - f.col("`produced/s`")
    eta = f.when(f.col("lag") == 0, f.lit(0.0)).when(gain > 0, f.col("lag") / gain)
    return rates.withColumn("caught up in s", eta)


def _plot(path: Path, taken: Sequence[LagSample]) -> None:
    start = min(sample.at for sample in taken)
    sums: dict[str, dict[float, float]] = {}
    for sample in taken:
        line = sums.setdefault(f"{sample.group} {sample.topic}", {})
        second = (sample.at - start).total_seconds()
        line[second] = line.get(second, 0.0) + sample.lag
    plot_lines(path, "messages behind", {name: sorted(line.items()) for name, line in sums.items()}, "")
