"""`table`: keeps a table of a topic up to date, batch by batch.

Each batch begins at the position of the table's last commit. Rejected rows are written first: if the run ends before the
rest is written, the next one finds them in their own table, which is further than the batch begins, and does not add them
again. Messages are the same if they have the same place and were stored at the same time: a topic that was deleted and
created again has other messages at the same places.

With a merge key the table has the latest message of each key: a MERGE for each batch, which gives the same when it is
repeated.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rocketline.client.bulk.reader import BulkReader
from rocketline.errors import ConfigError, RangeNotAvailable, RocketlineError
from rocketline.pipelines.failures import PipelineFailed, cause_of, is_passing
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.runs import note
from rocketline.pipelines.tables.bodies import DELETED, PLACE, body_columns, body_fields, evolved, parse
from rocketline.pipelines.tables.decoding.interface import Decoding
from rocketline.pipelines.tables.decoding.registry import Wire
from rocketline.pipelines.tables.formats import GROWS, State, Table, check_place, check_topic, quoted, table_in
from rocketline.pipelines.tasks import Progress, reporting_tasks
from rocketline.spark.live.options import LiveOptions
from rocketline.spark.live.planner import advance, limited, ranges_between
from rocketline.spark.offsets import Offsets, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

FOLLOW_EVERY_S = 2.0
LONGEST_WAIT_S = 60.0
"""Between two attempts while the cluster, or a part of it, does not answer."""


@dataclass(frozen=True)
class TopicTable:
    """A topic, and the table that is made of it."""

    namesrv: str
    topic: str
    target: str
    table_format: str
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
    wire: Wire | None = None
    """How bodies in JSON begin."""

    def __post_init__(self) -> None:
        check_place(self.target, self.table_format)
        if self.merge_key and self.table_format == "parquet":
            raise ConfigError(GROWS)
        if self.delete_when and not self.merge_key:
            raise ConfigError("--delete-when has no effect without --merge-key")
        if self.body == "raw" and not self.keep_body:
            raise ConfigError("--no-keep-body needs another --body than raw: nothing would be left of raw bodies")

    @property
    def cluster(self) -> dict[str, str]:
        return {**self._anywhere, "subscribe": self.topic}

    @property
    def _anywhere(self) -> dict[str, str]:
        loss = {"failOnDataLoss": "true" if self.fail_on_loss else "false"}
        return {"namesrv": self.namesrv, **loss, **self.access}

    def between(self, start: Offsets, end: Offsets) -> dict[str, str]:
        """Options to read these ranges, and no queue that was added since they were planned."""
        assigned: dict[str, list[int]] = {}
        for queue in sorted(start):
            assigned.setdefault(queue.broker_name, []).append(queue.queue_id)
        return {
            **self._anywhere,
            "assign": json.dumps({self.topic: assigned}),
            "startingOffsets": json.dumps(to_json(start)),
            "endingOffsets": json.dumps(to_json(end)),
        }


def keep_table(
    spark: SparkSession, wanted: TopicTable, tell: Progress, *, follow: bool = False, compact: bool = False
) -> Outcome:
    """Add everything new to a table; with `follow`, keep doing so until interrupted."""
    given = body_columns(spark, wanted.schema, wanted.body, wanted.decoding)
    main = table_in(spark, wanted.target, wanted.topic, wanted.table_format)
    side = table_in(spark, wanted.target, f"{wanted.topic}_rejected", wanted.table_format)
    for each in (main, side):
        check_topic(each.path, each.state(), wanted.topic)
    job = _Job(spark, wanted, given, main, side, is_following=follow)
    try:
        with LiveOptions.parse(wanted.cluster).endpoint.reader() as reader:
            if follow:
                _follow(job, reader, tell)
            while job.step(reader, tell):
                pass
    except KeyboardInterrupt:
        if not follow:
            raise
        tell("stopped; the next run continues from the last batch that was written")
    for each in (main, side) if compact else ():
        if each.read() is not None:
            tell(f"compacting {each.path}")
            each.compact()
    return _summary(wanted, main, side)


def _follow(job: _Job, reader: BulkReader, tell: Progress) -> None:
    """Add batch after batch. An outage of the cluster is told once, and waited for."""
    from pyspark.errors import PySparkException

    wait_s, has_failed = FOLLOW_EVERY_S, False
    while True:
        try:
            rows = job.step(reader, tell)
        except (RocketlineError, PySparkException) as error:
            if not job.has_begun or not is_passing(error):
                raise
            if not has_failed:
                tell(f"{job.main.path}: waiting for the cluster: {cause_of(str(error)) or error}")
            wait_s, has_failed = min(2 * wait_s, LONGEST_WAIT_S), True
            job.state = None  # the batch may have been written
        else:
            if has_failed:
                tell(f"{job.main.path}: the cluster answers again")
            wait_s, has_failed = FOLLOW_EVERY_S, False
            if rows:
                continue
        _pause(wait_s)


def _pause(seconds: float) -> None:
    time.sleep(seconds)


@dataclass
class _Job:
    spark: SparkSession
    wanted: TopicTable
    given: StructType
    """The columns of bodies, as the user gave them."""
    main: Table
    side: Table
    state: State | None = None
    """What the table has, once it was read: nobody else is expected to change it while nothing is written."""
    columns: StructType | None = None
    """Those of the table, once they were looked up."""
    is_following: bool = False
    has_begun: bool = False
    """Whether the table has a position, so that the topic is known to exist."""
    absent: frozenset[str] = frozenset()
    """Brokers that were told to be absent."""

    def step(self, reader: BulkReader, tell: Progress) -> int:
        """Add one batch; returns how many messages it had at most."""
        state = self.state = self.state or self.main.state()
        wanted = self.wanted
        if state.key not in (None, wanted.merge_key):
            has = f"the latest row of each {', '.join(state.key)}" if state.key else "every message"
            raise ConfigError(f"{self.main.path} has {has}: give the same --merge-key, or begin another table")
        self.has_begun = self.has_begun or bool(state.position)
        planned = _plan(reader, wanted, state.position, self.is_following)
        if planned.absent - self.absent:
            names = ", ".join(sorted(planned.absent))
            tell(f"{self.main.path}: waiting for {names}, not registered now; its queues are read when it is back")
        self.absent = planned.absent
        if not planned.rows:
            return 0
        position = {**state.position, **planned.end}
        wire = None if wanted.wire is None else wanted.wire.value
        next_state = State(state.batch + 1, position, wanted.merge_key, wanted.delete_when, wanted.body, wire)
        tell(f"{self.main.path}: batch {next_state.batch}, {planned.rows:,} messages")
        with reporting_tasks(self.spark, tell, f"batch {next_state.batch}"):
            self._write(planned, next_state)
        self.state = self.main.state()
        if self.state.batch < next_state.batch:
            raise PipelineFailed(
                f"{self.main.path}: batch {next_state.batch} was written, but the table is at {self.state.batch}"
            )
        note(f"{self.main.path}: batch {next_state.batch} is written", rows=planned.rows, behind=planned.behind)
        self.main.tidy(next_state.batch)
        return planned.rows

    def _write(self, planned: _Plan, next_state: State) -> None:
        wanted, columns = self.wanted, self._columns()
        options = wanted.between(planned.start, planned.end)
        messages = self.spark.read.format("rocketmq").options(**options).load()
        accepted, rejected, kept = parse(
            messages, columns, self.given, wanted.body, wanted.keep_body, wanted.decoding, wire=wanted.wire
        )
        try:
            if rejected is not None:
                self._write_rejected(rejected, planned, next_state)
            if wanted.merge_key:
                self.main.merge(latest(accepted, next_state), next_state, wanted.merge_key, DELETED)
            else:
                self.main.append(accepted, next_state)
        finally:
            if kept is not None:
                kept.unpersist()

    def _columns(self) -> StructType:
        from pyspark.sql.types import StructType

        if self.columns is None:
            there = self.main.read()
            fields = [] if there is None else body_fields(there.schema)
            self.columns = evolved(StructType(fields), self.given, any_case=self.wanted.decoding is not None)
        return self.columns

    def _write_rejected(self, rejected: DataFrame, planned: _Plan, next_state: State) -> None:
        """Add the rejected rows that a run which did not finish has not added yet."""
        state = self.side.state()
        is_ahead = any(state.position.get(queue, 0) > offset for queue, offset in planned.start.items())
        there = self.side.read() if is_ahead else None
        if there is not None:
            rejected = _without(rejected, there)
        if not rejected.isEmpty():
            self.side.append(rejected, State(state.batch + 1, next_state.position))
            self.side.tidy(state.batch + 1)


def _without(rows: DataFrame, known: DataFrame) -> DataFrame:
    """The rows of messages that are not in another table."""
    from pyspark.sql import functions as f

    names = ("brokerName", "queueId", "queueOffset", "storeTimestamp")
    which = f.struct(*(f"message.{name}" for name in names)).alias("_which")
    return rows.withColumn("_which", which).join(known.select(which), "_which", "left_anti").drop("_which")


class _Plan(NamedTuple):
    """The next batch: queues that are there and have messages for it."""

    start: Offsets
    end: Offsets
    behind: int
    """Messages that it leaves for later batches."""
    absent: frozenset[str] = frozenset()
    """Brokers with queues of the topic that are not registered now."""

    @property
    def rows(self) -> int:
        """At most."""
        return sum(self.end.values()) - sum(self.start.values())


def _plan(reader: BulkReader, wanted: TopicTable, position: Offsets, may_wait: bool) -> _Plan:
    """With `may_wait`, queues of brokers that are absent are left for later; RangeNotAvailable when messages are gone."""
    queues = reader.queues(wanted.topic)
    bounds = reader.all_bounds(queues)
    begins: Offsets = {queue: each.begin for queue, each in bounds.items()}
    ends: Offsets = {queue: each.end for queue, each in bounds.items()}
    absent = frozenset(queue.broker_name for queue in position) - {queue.broker_name for queue in ends}
    if position:
        known = {queue: at for queue, at in position.items() if not may_wait or queue.broker_name not in absent}
        losses = advance(known, begins, ends).losses
        if losses and wanted.fail_on_loss:
            raise RangeNotAvailable(f"{'; '.join(losses[:5])}. To continue, use --allow-loss", 0)
        for loss in losses:
            log.warning("%s", loss)
    start = {queue: position.get(queue, begins[queue]) for queue in ends}
    for queue, offset in start.items():
        # Deleted and created again, or messages that are gone: what is there is read.
        start[queue] = begins[queue] if not begins[queue] <= offset <= ends[queue] else offset
    end = limited(start, begins, ends, wanted.per_batch)
    parts = ranges_between(start, end)
    return _Plan(
        {part.queue: part.start for part in parts},
        {part.queue: part.end for part in parts},
        sum(ends.values()) - sum(end.values()),
        absent if may_wait else frozenset(),
    )


def latest(rows: DataFrame, state: State) -> DataFrame:
    """The newest row of each key, with whether it deletes the key; ConfigError for a key or condition that does not fit.

    Within a queue offsets say what is newer, between queues the time of storing: as NEWER says it.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    assert state.key is not None
    if missing := [name for name in state.key if name not in rows.columns]:
        raise ConfigError(f"--merge-key {missing[0]}: the table has the columns {', '.join(rows.columns)}")
    key = [f.col(quoted(name)) for name in state.key]
    queue = f.col("message.brokerName"), f.col("message.queueId")
    of_queue = Window.partitionBy(*key, *queue).orderBy(f.desc("message.queueOffset"))
    of_all = Window.partitionBy(*key).orderBy(f.desc("message.storeTimestamp"), *queue)
    try:
        rows = rows.withColumn(DELETED, f.coalesce(f.expr(state.delete_when or "false"), f.lit(False)))
        for window in (of_queue, of_all):
            rows = rows.withColumn(PLACE, f.row_number().over(window)).where(f.col(PLACE) == 1).drop(PLACE)
        _ = rows.schema  # over Connect nothing is looked up before
        return rows
    except AnalysisException as error:
        raise ConfigError(f"--delete-when {state.delete_when!r} is not valid: {str(error).splitlines()[0]}") from error


def _summary(wanted: TopicTable, main: Table, side: Table) -> Outcome:
    rows, rejected = main.read(), side.read()
    counts = [frame.count() if frame is not None else 0 for frame in (rows, rejected)]
    behind = [(str(queue), offset) for queue, offset in sorted(main.state().position.items())]
    notes = [f"{counts[0]:,} rows, {counts[1]:,} rejected"]
    if rows is not None:
        notes.append(f"columns {', '.join(rows.columns)}")
    return Outcome(f"table {main.path} of topic {wanted.topic}", ("queue", "read up to"), behind, notes)
