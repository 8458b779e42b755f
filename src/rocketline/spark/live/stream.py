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

from rocketline.client.bulk.reader import BulkReader
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import RangeNotAvailable, RocketlineError
from rocketline.spark.live.options import NAME, LiveOptions
from rocketline.spark.live.partitions import LivePartition, partitions_of
from rocketline.spark.live.planner import Step, advance, backlog, limited, ranges_between
from rocketline.spark.live.queues import LOSS_HINT, RECREATED_HINT, LiveQueues, Resolver
from rocketline.spark.live.reader import LiveReading
from rocketline.spark.offsets import Offsets, from_json, to_json

log = logging.getLogger(__name__)


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
        self._ends = ends = self._ends_now(reader, queues)
        changed = [queue for queue, end in ends.items() if position.get(queue) != end]
        begins = {queue: max(0, begin) for queue, begin in reader.begins(changed).items()}
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
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return to_json(self._ends) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        what = f"{NAME}: the position in the checkpoint"
        return partitions_of(ranges_between(from_json(start, what), from_json(end, what)), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LivePartition):
            yield from self._reading.read(partition.part)

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

    def _ends_now(self, reader: BulkReader, queues: LiveQueues) -> Offsets:
        listed = queues.recent()
        if self._target is None:
            return dict(reader.ends(listed))
        # Messages after the target are for the next run; a deleted queue must be missing here.
        return {queue: end for queue, end in self._target.items() if queue in listed}

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
