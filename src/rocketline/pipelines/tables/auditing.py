"""`audit-table` proves that a table has what its topic has: every message once, with the same bytes. And the messages of
tables, to send them again (`restore`).

Compared is what the topic still has, up to the position of the table, by queue, offset and CRC-32 of the body. Rows of
messages that the broker has deleted since, or of queues that the topic does not have now, are counted, not compared. A table
with the latest row of each key is compared with the latest messages of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rocketline.errors import ConfigError
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.tables.bodies import DELETED, body_fields, parse
from rocketline.pipelines.tables.decoding.registry import Wire
from rocketline.pipelines.tables.formats import Past, State, check_topic, table_in
from rocketline.pipelines.tables.table import TopicTable, latest
from rocketline.pipelines.tasks import Progress, reporting_tasks
from rocketline.spark.live.options import LiveOptions
from rocketline.spark.offsets import Offsets
from rocketline.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACE = ("brokerName", "queueId", "queueOffset")


@dataclass(frozen=True)
class Window:
    """Store times in milliseconds; None means no limit. The end is exclusive."""

    since_ms: int | None = None
    until_ms: int | None = None

    @staticmethod
    def parse(since: str | None, until: str | None) -> Window:
        """From milliseconds or ISO 8601."""
        given = {name: text for name, text in (("since", since), ("until", until)) if text is not None}
        options = Options("table", given)
        return Window(options.time_ms("since"), options.time_ms("until"))

    def of(self, messages: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        stored = f.unix_millis("storeTimestamp")
        if self.since_ms is not None:
            messages = messages.where(stored >= self.since_ms)
        return messages if self.until_ms is None else messages.where(stored < self.until_ms)


EVERYTHING = Window()


def stored_messages(
    spark: SparkSession, target: str, topics: Sequence[str], table_format: str, as_of: str | None = None
) -> DataFrame:
    """The messages in tables of topics, rejected ones included; ConfigError when there are none or they have no bodies.

    `as_of`: as the tables were then."""
    if not topics:
        raise ConfigError("which tables? give --topic, once for each")
    found: DataFrame | None = None
    for topic in topics:
        messages, _ = _messages(spark, target, topic, table_format, as_of)
        found = messages if found is None else found.unionByName(messages)
    assert found is not None
    return found


def _messages(
    spark: SparkSession, target: str, topic: str, table_format: str, as_of: str | None
) -> tuple[DataFrame, State]:
    """(the messages of a table and of its rejected ones, its state)."""
    main = table_in(spark, target, topic, table_format)
    then = None if as_of is None else main.past(as_of)
    rows = main.read() if as_of is None else None if then is None else then.rows
    if rows is None:
        when = "" if as_of is None else f" at {as_of}"
        raise ConfigError(f"{main.path} is not a table of format {table_format}{when}")
    state = main.state() if then is None else then.state
    check_topic(main.path, state, topic)
    messages = rows.select("message.*")
    if "body" not in messages.columns:
        raise ConfigError(f"{main.path} has no bodies: it was made with --no-keep-body")
    rejected = _rejected(spark, target, topic, table_format, then)
    return messages if rejected is None else messages.unionByName(rejected.select("message.*")), state


def _rejected(spark: SparkSession, target: str, topic: str, table_format: str, then: Past | None) -> DataFrame | None:
    """The rows of the side table, as it was when the other one had its commit: it is written first."""
    side = table_in(spark, target, f"{topic}_rejected", table_format)
    check_topic(side.path, side.state(), topic)
    if then is None:
        return side.read()
    found = side.past(datetime.fromtimestamp(then.time_ms / 1000, UTC).isoformat())
    return None if found is None else found.rows


def audit_table(
    spark: SparkSession, wanted: TopicTable, tell: Progress, *, as_of: str | None = None, window: Window = EVERYTHING
) -> Outcome:
    """Compare a table, as it is or as it was, with the log, or only what was stored in a window of time."""
    from pyspark.sql import functions as f

    messages, state = _messages(spark, wanted.target, wanted.topic, wanted.table_format, as_of)
    start, end = _range(wanted, state.position)
    log = spark.read.format("rocketmq").options(**wanted.between(start, end)).load()
    if state.key:
        log = _expected(spark, wanted, state, log, as_of)
    log, messages = window.of(log), window.of(messages)
    begins = spark.createDataFrame(
        [(queue.broker_name, queue.queue_id, offset) for queue, offset in start.items()],
        "brokerName string, queueId int, begin bigint",
    )
    placed = messages.join(begins, ["brokerName", "queueId"], "left")
    there = _counted(placed.where("queueOffset >= begin"), "table")
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
    older, gone = placed.agg(
        f.count_if(f.col("queueOffset") < f.col("begin")), f.count_if(f.isnull("begin"))
    ).first() or (0, 0)
    outcome.is_bad = any(any(row[4:]) for row in outcome.rows)
    outcome.notes += [f"{older:,} rows are older than the log"] if older else []
    outcome.notes += [f"{gone:,} rows are of queues that the topic does not have now"] if gone else []
    outcome.notes.append("they differ" if outcome.is_bad else _proven(state))
    return outcome


def _proven(state: State) -> str:
    if state.key:
        return f"the table has the latest message of each {', '.join(state.key)} in the log, with the same bytes"
    return "every message is in the table once, with the same bytes"


def _expected(spark: SparkSession, wanted: TopicTable, state: State, log: DataFrame, as_of: str | None) -> DataFrame:
    """What a table with a merge key must have of the messages of the log: the latest of each key, and the rejected ones."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    if state.body != "json" or as_of is not None:
        why = f"of bodies in {state.body}" if as_of is None else "as it was (--as-of)"
        raise ConfigError(
            f"{wanted.topic}: the table has the latest row of each {', '.join(state.key or ())}, not every message, so it "
            f"is not compared {why}. Possible are tables of JSON bodies, as they are now"
        )
    rows = table_in(spark, wanted.target, wanted.topic, wanted.table_format).read()
    rejected = _rejected(spark, wanted.target, wanted.topic, wanted.table_format, None)
    assert rows is not None
    columns = StructType(body_fields(rows.schema))
    if rejected is not None:
        known = rejected.select("message.*")
        log, aside = log.join(known, [*_PLACE], "left_anti"), log.join(known, [*_PLACE], "left_semi")
    wire = None if state.wire is None else Wire(state.wire)
    kept = latest(parse(log, columns, columns, state.body, True, wire=wire, keep=False).accepted, state)
    expected = kept.where(~f.col(DELETED)).select("message.*")
    return expected if rejected is None else expected.unionByName(aside.select(*expected.columns))


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
