"""The stream reader of the source `rocketmq`: how a stream advances from one position to the next.

Spark keeps one such reader on the driver while a query runs, asks it for the next position, and saves that before
anything is read; `planner` has the rules. The progress of the group is committed when Spark reports a batch as done. It
does so one batch late, and never for the last one; but it asks for the next position only when all earlier batches are
done, so that counts as a report too. Progress that a killed query could not commit is committed at its next start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rocketline.client.bulk.reader import Bounds, BulkReader
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import RangeNotAvailable, RocketlineError
from rocketline.message import MessageQueue, QueueOffset
from rocketline.spark.live.options import NAME, LiveOptions
from rocketline.spark.live.partitions import LivePartition, partitions_of
from rocketline.spark.live.planner import Step, advance, backlog, limited, ranges_between
from rocketline.spark.live.queues import LOSS_HINT, RECREATED_HINT, LiveQueues, Resolver
from rocketline.spark.live.reader import LiveReading
from rocketline.spark.offsets import Offsets, from_json, to_json

log = logging.getLogger(__name__)

LAG_MESSAGES, LAG_SECONDS = "lag.messages", "lag.seconds"
"""No topic has a dot in its name."""

MAX_AGES = 64
"""So many queues are asked for their oldest unread message: those with most of them."""


class LiveStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("rocketmq")`; on executors only `read` is used."""

    def __init__(self, options: LiveOptions, reading: LiveReading, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._reading = reading
        self._clock = clock
        self._opened: tuple[BulkReader, LiveQueues] | None = None
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._ends: Offsets = {}
        self._planned: Offsets = {}
        self._committed: Offsets = {}
        self._reported: set[str] = set()
        self._advanced_at = float("-inf")

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        reader, queues = self._open()
        self._initial = Resolver(reader, self._options).start(queues.current(), "latest")
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        return ReadAllAvailable() if options.min_offsets is None else ReadMinRows(options.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        reader, queues = self._open()
        self._target = dict(reader.ends(queues.recent()))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        position = from_json(start, f"{NAME}: the position in the checkpoint")
        self._commit(position)
        reader, queues = self._open()
        bounds = self._bounds_now(reader, queues)
        self._planned = position
        self._ends = ends = {queue: int(each.end) for queue, each in bounds.items()}
        begins = {queue: each.begin for queue, each in bounds.items() if position.get(queue) != each.end}
        step = advance(position, begins, ends)
        self._report(step)
        end = step.end
        if not isinstance(limit, ReadAllAvailable):
            waiting = sum(backlog(position, begins, end).values())
            if self._waits_for_more(position, end, waiting):
                return to_json(position)
            if isinstance(limit, ReadMaxRows):
                end = limited(position, begins, end, limit.max_rows)
        if end != position:
            self._advanced_at = self._clock.monotonic()
        self._planned = end
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of queues, and how far behind them the batch is; Spark shows this as `latestOffset`."""
        if not self._ends:
            return None
        planned = self._planned
        behind = {queue: end - planned[queue] for queue, end in self._ends.items() if end > planned.get(queue, end)}
        return {**to_json(self._ends), LAG_MESSAGES: sum(behind.values()), LAG_SECONDS: self._age_s(behind)}

    def _age_s(self, behind: Offsets) -> float | None:
        """How long the oldest message waits that no batch has yet; None when brokers do not tell."""
        if not behind:
            return 0.0
        furthest = sorted(behind, key=lambda queue: -behind[queue])[:MAX_AGES]
        try:
            stored = self._open()[0].store_times({queue: self._planned[queue] for queue in furthest})
        except RocketlineError as error:
            log.warning("how long messages wait is not known: %s", error)
            return None
        return max(0, self._clock.now_ms() - min(stored.values())) / 1000 if stored else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        what = f"{NAME}: the position in the checkpoint"
        return partitions_of(ranges_between(from_json(start, what), from_json(end, what)), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LivePartition):
            yield from self._reading.read(partition.parts)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(from_json(end, f"{NAME}: the position to commit"))

    def stop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()

    def _open(self) -> tuple[BulkReader, LiveQueues]:
        if self._opened is None:
            reader = self._options.endpoint.reader()
            self._opened = reader, LiveQueues(reader, self._options.topics, self._clock)
        return self._opened

    def _bounds_now(self, reader: BulkReader, queues: LiveQueues) -> dict[MessageQueue, Bounds]:
        bounds = reader.all_bounds(queues.recent())
        if self._target is None:
            return bounds
        # Messages after the target are for the next run; a deleted queue must be missing here.
        return {
            queue: bounds[queue]._replace(end=QueueOffset(end))
            for queue, end in self._target.items()
            if queue in bounds
        }

    def _waits_for_more(self, position: Offsets, end: Offsets, waiting: int) -> bool:
        least = self._options.min_offsets
        if least is None or self._target is not None or waiting >= least or position.keys() != end.keys():
            return False
        return self._clock.monotonic() - self._advanced_at < self._options.max_delay_s

    def _report(self, step: Step) -> None:
        if step.losses and self._options.fail_on_loss:
            more = f". {RECREATED_HINT}" if step.is_recreated else ""
            raise RangeNotAvailable(f"{NAME}: {'; '.join(step.losses[:5])}. To continue, {LOSS_HINT}{more}", 0)
        for loss in step.losses:
            if loss not in self._reported:
                self._reported.add(loss)
                log.warning("%s", loss)

    def _commit(self, position: Offsets) -> None:
        # The start of a new query is no progress: nothing was read yet.
        if not self._options.commit_offsets or position == self._initial:
            return
        news = {queue: offset for queue, offset in position.items() if self._committed.get(queue) != offset}
        if not news:
            return
        try:
            self._open()[0].commit(news)
        except RocketlineError as error:
            log.warning("the progress of group %s was not committed: %s", self._options.endpoint.group, error)
        else:
            self._committed.update(news)
