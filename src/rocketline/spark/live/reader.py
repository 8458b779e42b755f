"""Reads a range of a queue from its broker as Arrow batches: the work of a task of the source `rocketmq`, without Spark.

Tags are compared again as texts, because the broker compares only hashes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rocketline.client.bulk.range import BulkReply, RangeReading
from rocketline.client.bulk.reader import BulkReader
from rocketline.client.consumer.group.subscription import Sql
from rocketline.errors import CorruptRecord, RangeNotAvailable, TopicNotExist
from rocketline.protocol.subscription import parse_tags
from rocketline.spark.columns import ColumnPlan, Decoded, Fault, decode
from rocketline.spark.connections import Endpoint, borrowed_reader
from rocketline.spark.live.planner import QueueRange
from rocketline.spark.live.queues import DELETED_HINT, LOSS_HINT
from rocketline.spark.memory import keep_memory, spare_collections
from rocketline.spark.record_table import read_table
from rocketline.spark.replies import joined, together, with_queue_offsets
from rocketline.spark.requested import RequestedColumns

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LiveReading:
    """What to read of a range, and how; can be pickled."""

    endpoint: Endpoint
    requested: RequestedColumns
    expression: str | Sql = "*"
    fail_on_loss: bool = True
    check_crc: bool = True

    def read(self, parts: Sequence[QueueRange]) -> Iterator[pa.RecordBatch]:
        """The rows of ranges, one after the other, in order."""
        keep_memory()
        spare_collections()
        tags = self._tags()
        columns = self.requested.decoded
        if tags is not None and "tags" not in columns:
            columns = (*columns, "tags")
        for replies in together(self._replies(parts)):
            plan = ColumnPlan(columns, replies[0].queue.broker_name, self.check_crc)
            for batch, faults in self._decoded(replies, plan):
                self._report(faults, replies)
                wanted = batch if tags is None else batch.filter(pc.is_in(batch.column("tags"), tags))
                if wanted.num_rows:
                    yield self.requested.fit(with_queue_offsets(wanted, replies[0].offset_delta))

    def _decoded(self, replies: Sequence[BulkReply], plan: ColumnPlan) -> Iterator[Decoded]:
        """The rows of replies; a reply with wrong record sizes gives none."""
        reply = joined(replies)
        try:
            found = decode(reply.records, plan)
        except CorruptRecord as error:
            if len(replies) > 1:  # which of them?
                for each in replies:
                    yield from self._decoded([each], plan)
                return
            problem = f"{_range(reply)} cannot be read: {error}"
            if self.fail_on_loss:
                raise CorruptRecord(f"{problem}; {LOSS_HINT}") from None
            log.warning("%s", problem)
        else:
            yield from found

    def _tags(self) -> pa.Array | None:
        if isinstance(self.expression, Sql) or self.expression == "*":
            return None
        return pa.array(parse_tags(self.expression), pa.string())

    def _replies(self, parts: Sequence[QueueRange]) -> Iterator[BulkReply]:
        """While one range is decoded, brokers work on the next one; on several if these are small."""
        with borrowed_reader(self.endpoint) as reader:
            begun: deque[tuple[QueueRange, RangeReading]] = deque()
            waiting = deque(parts)
            while waiting or begun:
                while waiting and (len(begun) < 2 or self._are_small([*(part for part, _ in begun), waiting[0]])):
                    begun.append(self._begun(reader, waiting.popleft()))
                part, reading = begun.popleft()
                yield from self._until_gone(reading.replies(), part)

    def _are_small(self, parts: Sequence[QueueRange]) -> bool:
        return sum(part.rows for part in parts) <= self.endpoint.batch

    def _begun(self, reader: BulkReader, part: QueueRange) -> tuple[QueueRange, RangeReading]:
        skip_gone = not self.fail_on_loss
        reading = reader.reading(part.queue, part.start, part.end, self.expression, skip_gone=skip_gone)
        reading.begin()
        return part, reading

    def _until_gone(self, replies: Iterable[BulkReply], part: QueueRange) -> Iterator[BulkReply]:
        try:
            yield from replies
        except RangeNotAvailable as error:
            nearest = error.available_offset
            problem = f"{part} cannot be read: the queue does not have it any more, the nearest offset is {nearest}"
            if self.fail_on_loss:
                raise RangeNotAvailable(f"{problem}; {LOSS_HINT}", nearest) from error
            log.warning("%s", problem)
        except TopicNotExist as error:
            if self.fail_on_loss:
                raise TopicNotExist(
                    error.code, f"{error.remark}. {DELETED_HINT}", error.address, f"reading {part}"
                ) from error
            log.warning("%s cannot be read: %s", part, error)

    def _report(self, faults: list[Fault], replies: Sequence[BulkReply]) -> None:
        for fault in faults:
            reply = next(each for each in replies if fault.log_offset in read_table(each.records).head["log_offset"])
            problem = f"{_range(reply)}: the record at log offset {fault.log_offset} is damaged: {fault.reason}"
            if self.fail_on_loss:
                raise CorruptRecord(f"{problem}; {LOSS_HINT}")
            log.warning("%s", problem)


def _range(reply: BulkReply) -> str:
    return f"{reply.queue} from {reply.first_offset} to {reply.next_offset}"
