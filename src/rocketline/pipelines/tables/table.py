"""`table`: keeps a table of a topic up to date, batch by batch.

Each batch begins at the position of the table's last commit. Rejected rows are written first: if the run ends before the
rest is written, the next one finds them by the position of their own table, and does not add them again.

With a merge key the table has the latest message of each key: a MERGE for each batch, which gives the same when it is
repeated.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketline.client.bulk.reader import BulkReader
from rocketline.errors import ConfigError, RangeNotAvailable
from rocketline.message import MessageQueue
from rocketline.pipelines.failures import PipelineFailed
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.tables.bodies import body_columns, evolved, parse
from rocketline.pipelines.tables.decoding.interface import Decoding
from rocketline.pipelines.tables.formats import DeltaTable, State, Table, table_in
from rocketline.pipelines.tasks import Progress, reporting_tasks
from rocketline.spark.live.options import LiveOptions
from rocketline.spark.live.planner import advance, limited, ranges_between
from rocketline.spark.offsets import Offsets, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

FOLLOW_EVERY_S = 2.0
COMPACT_EVERY = 100
"""Batches after which a table that is followed is compacted."""
_DELETED = "_deleted"


@dataclass(frozen=True)
class TopicTable:
    """A topic, and the table that is made of it."""

    namesrv: str
    topic: str
    target: str
    table_format: str = "delta"
    body: str = "raw"
    schema: str | None = None
    keep_body: bool = True
    merge_key: tuple[str, ...] = ()
    delete_when: str | None = None
    per_batch: int = 1_000_000
    fail_on_loss: bool = True
    access: Mapping[str, str] = field(default_factory=dict, repr=False)
    decoding: Decoding | None = None
    """For bodies in Avro or Protobuf."""

    def __post_init__(self) -> None:
        if self.merge_key and self.table_format != "delta":
            raise ConfigError("--merge-key needs --format delta: tables of other formats only grow")
        if self.delete_when and not self.merge_key:
            raise ConfigError("--delete-when has no effect without --merge-key")

    @property
    def cluster(self) -> dict[str, str]:
        loss = {"failOnDataLoss": "true" if self.fail_on_loss else "false"}
        return {"namesrv": self.namesrv, "subscribe": self.topic, **loss, **self.access}


def keep_table(
    spark: SparkSession, wanted: TopicTable, tell: Progress, *, follow: bool = False, compact: bool = False
) -> Outcome:
    """Add everything new to a table; with `follow`, keep doing so until interrupted."""
    given = body_columns(spark, wanted.schema, wanted.body, wanted.decoding)
    main = table_in(spark, wanted.target, wanted.topic, wanted.table_format)
    side = table_in(spark, wanted.target, f"{wanted.topic}_rejected", wanted.table_format)
    job = _Job(spark, wanted, given, main, side)
    batches = 0
    try:
        with LiveOptions.parse(wanted.cluster).endpoint.reader() as reader:
            while True:
                rows = job.step(reader, tell)
                batches += rows > 0
                if batches and batches % COMPACT_EVERY == 0 and rows:
                    main.compact()
                if not rows and not follow:
                    break
                if not rows:
                    time.sleep(FOLLOW_EVERY_S)
    except KeyboardInterrupt:
        if not follow:
            raise
        tell("stopped; the next run continues from the last batch that was written")
    if compact:
        tell(f"compacting {main.path}")
        main.compact()
    return _summary(wanted, main, side)


@dataclass
class _Job:
    spark: SparkSession
    wanted: TopicTable
    given: StructType
    """The columns of bodies, as the user gave them."""
    main: Table
    side: Table
    written: int = -1
    """The number of the last batch that this job wrote."""

    def step(self, reader: BulkReader, tell: Progress) -> int:
        """Add one batch; returns how many messages it had at most."""
        state = self.main.state()
        if state.batch < self.written:
            raise PipelineFailed(
                f"{self.main.path}: batch {self.written} was written, but the table is at {state.batch}"
            )
        start, end = _plan(reader, self.wanted, state.position)
        rows = sum(part.rows for part in ranges_between(start, end))
        if not rows:
            return 0
        tell(f"{self.main.path}: batch {state.batch + 1}, {rows:,} messages")
        messages = self._messages(start, end)
        next_state = State(state.batch + 1, {**state.position, **end})
        with reporting_tasks(self.spark, tell, f"batch {next_state.batch}"):
            self._write(messages, next_state)
        self.written = next_state.batch
        return rows

    def _messages(self, start: Offsets, end: Offsets) -> DataFrame:
        positions = {"startingOffsets": json.dumps(to_json(start)), "endingOffsets": json.dumps(to_json(end))}
        return self.spark.read.format("rocketmq").options(**self.wanted.cluster, **positions).load()

    def _write(self, messages: DataFrame, next_state: State) -> None:
        wanted = self.wanted
        accepted, rejected, kept = parse(
            messages, self._columns(), self.given, wanted.body, wanted.keep_body, wanted.decoding
        )
        try:
            if rejected is not None:
                self._write_rejected(rejected, next_state)
            if wanted.merge_key:
                assert isinstance(self.main, DeltaTable)
                self.main.merge(_latest(accepted, wanted), next_state, wanted.merge_key, _DELETED)
            else:
                self.main.append(accepted, next_state)
        finally:
            if kept is not None:
                kept.unpersist()

    def _columns(self) -> StructType:
        from pyspark.sql.types import StructType

        there = self.main.read()
        if there is None:
            return self.given
        own = StructType([field for field in there.schema if field.name not in ("message", "day")])
        return evolved(own, self.given)

    def _write_rejected(self, rejected: DataFrame, next_state: State) -> None:
        """Add the rejected rows that a run which did not finish has not added yet."""
        from pyspark.sql import functions as f

        state = self.side.state()
        for queue, offset in state.position.items():
            is_queue = (f.col("message.brokerName") == queue.broker_name) & (f.col("message.queueId") == queue.queue_id)
            rejected = rejected.where(~is_queue | (f.col("message.queueOffset") >= offset))
        if not rejected.isEmpty():
            self.side.append(rejected, State(state.batch + 1, next_state.position))


def _plan(reader: BulkReader, wanted: TopicTable, position: Offsets) -> tuple[Offsets, Offsets]:
    """(where the next batch begins, where it ends) for each queue that is there."""
    queues = reader.queues(wanted.topic)
    begins: dict[MessageQueue, int] = {queue: max(0, begin) for queue, begin in reader.begins(queues).items()}
    ends: dict[MessageQueue, int] = dict(reader.ends(queues))
    if position:
        losses = advance(position, begins, ends).losses
        if losses and wanted.fail_on_loss:
            raise RangeNotAvailable(f"{'; '.join(losses[:5])}. To continue, use --allow-loss", 0)
        for loss in losses:
            log.warning("%s", loss)
    start = {queue: position.get(queue, begins[queue]) for queue in ends}
    for queue, offset in start.items():
        # Deleted and created again, or messages that are gone: what is there is read.
        start[queue] = begins[queue] if not begins[queue] <= offset <= ends[queue] else offset
    return start, limited(start, begins, ends, wanted.per_batch)


def _latest(rows: DataFrame, wanted: TopicTable) -> DataFrame:
    """The newest row of each key, with whether it deletes the key; ConfigError for a key or condition that does not fit."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if missing := [name for name in wanted.merge_key if name not in rows.columns]:
        raise ConfigError(f"--merge-key {missing[0]}: the table has the columns {', '.join(rows.columns)}")
    newest = Window.partitionBy(*wanted.merge_key).orderBy(
        f.desc("message.storeTimestamp"), f.desc("message.queueOffset"), f.desc("message.queueId")
    )
    try:
        marked = rows.withColumn(_DELETED, f.coalesce(f.expr(wanted.delete_when or "false"), f.lit(False)))
        marked = marked.withColumn("_place", f.row_number().over(newest))
        return marked.where("_place = 1").drop("_place")
    except AnalysisException as error:
        raise ConfigError(f"--delete-when {wanted.delete_when!r} is not valid: {str(error).splitlines()[0]}") from error


def _summary(wanted: TopicTable, main: Table, side: Table) -> Outcome:
    rows, rejected = main.read(), side.read()
    counts = [frame.count() if frame is not None else 0 for frame in (rows, rejected)]
    behind = [(str(queue), offset) for queue, offset in sorted(main.state().position.items())]
    notes = [f"{counts[0]:,} rows, {counts[1]:,} rejected"]
    if rows is not None:
        notes.append(f"columns {', '.join(rows.columns)}")
    return Outcome(f"table {main.path} of topic {wanted.topic}", ("queue", "read up to"), behind, notes)
