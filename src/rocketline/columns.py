"""Stored messages as Arrow tables, for readers without Spark; needs the extra `arrow` (pyarrow and numpy).

    with BulkReader("127.0.0.1:9876", group="export") as reader:
        for table in read_tables(reader, "orders", columns=("queueOffset", "keys", "body")):
            ...

Columns have the names, types, order and meaning they have in the source `rocketmq` for Spark, because the same code makes
them: those of `COLUMNS` by default, and those of `MORE_COLUMNS` if they are named. That code is in modules of
`rocketline.spark` that import nothing of Spark; an import contract checks this.

A damaged record ends the reading with CorruptRecord, which names the queue and the offset; no record is left out silently.
To select by tags or SQL92, or to skip messages that were deleted meanwhile, give the replies of `BulkReader.read` to
`to_table` one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

try:
    import numpy  # noqa: F401  so that a missing numpy is reported here, and not by a module of the Spark sources
    import pyarrow as pa
except ImportError as error:
    raise ImportError(
        f"rocketline.columns needs pyarrow 18 and numpy 1.26 or newer: {error}. pip install 'rocketline[arrow]'",
        name=error.name,
    ) from error

from rocketline.client.bulk.range import BulkReply
from rocketline.client.bulk.reader import BulkReader
from rocketline.errors import ConfigError, CorruptRecord
from rocketline.message import MessageQueue
from rocketline.spark.columns import COLUMNS, MORE_COLUMNS, ColumnPlan, Fault, decode
from rocketline.spark.record_table import read_table
from rocketline.spark.replies import joined, together, with_queue_offsets

__all__ = ["COLUMNS", "MORE_COLUMNS", "read_tables", "to_table"]

DEFAULT: tuple[str, ...] = tuple(COLUMNS.names)


def to_table(reply: BulkReply, columns: Sequence[str] = DEFAULT) -> pa.Table:
    """The messages of a reply, one row each; CorruptRecord if one is damaged."""
    return _table(reply, _plan(columns, reply.queue))


def read_tables(
    reader: BulkReader,
    source: str | MessageQueue | Iterable[MessageQueue],
    start: int | None = None,
    end: int | None = None,
    columns: Sequence[str] = DEFAULT,
) -> Iterator[pa.Table]:
    """The messages of a topic or of some queues, queue after queue, in tables of a few mebibytes of records each.

    A queue is read from its oldest message to its end at the time of the call. For a single queue, `start` and `end` choose
    the offsets [start, end). A queue without messages gives no table.
    """
    if (start, end) != (None, None) and not isinstance(source, MessageQueue):
        raise ConfigError("start and end are offsets of one queue: read a MessageQueue, not a topic or several queues")
    queues = _queues(reader, source)
    plans = {queue: _plan(columns, queue) for queue in queues}
    begins = reader.begins(queues) if start is None else dict.fromkeys(queues, start)
    ends = reader.ends(queues) if end is None else dict.fromkeys(queues, end)
    readings = [(plans[queue], reader.read(queue, begins[queue], ends[queue])) for queue in queues]
    return (_table(joined(part), plan) for plan, replies in readings for part in together(replies))


def _queues(reader: BulkReader, source: str | MessageQueue | Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
    if isinstance(source, str):
        return reader.queues(source)
    return (source,) if isinstance(source, MessageQueue) else tuple(source)


def _plan(columns: Sequence[str], queue: MessageQueue) -> ColumnPlan:
    if len({*columns}) < len(columns):
        raise ConfigError(f"columns {', '.join(columns)}: one is named twice")
    try:
        return ColumnPlan(tuple(columns), queue.broker_name)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _table(reply: BulkReply, plan: ColumnPlan) -> pa.Table:
    batches = []
    try:
        for batch, faults in decode(reply.records, plan):
            if faults:
                raise CorruptRecord(_describe(faults[0], reply))
            batches.append(with_queue_offsets(batch, reply.offset_delta))
    except CorruptRecord as error:
        raise CorruptRecord(
            f"{reply.queue} from {reply.first_offset} to {reply.next_offset} cannot be read: {error}"
        ) from None
    return pa.Table.from_batches(batches, plan.schema)


def _describe(fault: Fault, reply: BulkReply) -> str:
    head = read_table(reply.records).head
    offset = int(head["queue_offset"][head["log_offset"] == fault.log_offset][0]) + reply.offset_delta
    return f"the record at queue offset {offset}, log offset {fault.log_offset}, is damaged: {fault.reason}"
