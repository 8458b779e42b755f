"""The sink `rocketmq`: sends rows of tables and of streams to topics.

    frame.selectExpr("to_json(struct(*)) AS body", "status AS tags").write.format("rocketmq") \\
        .option("namesrv", "127.0.0.1:9876").option("topic", "orders").mode("append").save()

| column | meaning |
| --- | --- |
| body | needed |
| topic | the topic, unless the option `topic` sets it for all rows |
| tags, keys, properties, flag | as of a message; `keys` may be an array |
| shardingKey | rows with the same key go to the same queue, the one Java's producers choose, in the order of their task |
| queueId, brokerName | the queue itself; the broker is needed where several have the topic |
| delayMs, deliverAt | delay in milliseconds, or time of delivery |

| option | default | meaning |
| --- | --- | --- |
| namesrv | needed | as for reading |
| topic | none | the topic of all rows |
| group | spark-rocketmq-sink | the producer group |
| batchBytes | 256k | size of a batch of messages in one request, at most 2m |
| maxInFlight | 8 | requests of a task that wait for their answers |
| sendTimeoutMs | 30000 | how long a request may be tried |
| rowsPerSecond | none | most rows that a task sends per second; may be a fraction |
| rocketmq.accessKey, rocketmq.tls, ... | none | credentials and TLS, see `access_options` |
| writeId | random | identifies this write; in `foreachBatch` set it to a name and the number of the batch |

Columns become batches in compiled code, without an object for each row (`sink.encoding`); rows of one topic and queue travel
together (`sink.groups`). InvalidMessage names row and column of a row that cannot be sent.

Delivery is at least once: a task that is run again sends its rows again, with the same unique ids (`sink.rows`). Ids
are made of the query and the batch in a stream, and of `writeId` otherwise; rows must come in the same order. A
property `UNIQ_KEY` of a row is kept.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from rocketline.client.bulk.writer import MAX_BATCH_BYTES, BulkWriter
from rocketline.client.producer.outgoing import unsendable
from rocketline.errors import InvalidMessage
from rocketline.protocol.names import topic_problem
from rocketline.spark.connections import Endpoint, borrowed_writer
from rocketline.spark.memory import spare_collections
from rocketline.spark.options import Options
from rocketline.spark.sink.encoding import encode_rows
from rocketline.spark.sink.groups import RowGroup, grouped
from rocketline.spark.sink.pacing import paced
from rocketline.spark.sink.rows import RowBatch, RowIds, checked_columns

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

NAME = "rocketmq"
DEFAULT_GROUP = "spark-rocketmq-sink"


@dataclass(frozen=True)
class SinkOptions:
    """The options of the sink, checked; can be pickled."""

    endpoint: Endpoint
    columns: tuple[str, ...]
    topic: str | None
    write_id: str
    batch_bytes: int = 256 << 10
    in_flight: int = 8
    rows_per_second: float | None = None

    @staticmethod
    def parse(given: Mapping[str, str], schema: StructType) -> SinkOptions:
        """ConfigError for options and columns that are missing, unknown or invalid."""
        options = Options(NAME, given)
        topic = options.text("topic")
        if topic is not None and (problem := topic_problem(topic)):
            raise options.wrong(f"option 'topic': {problem}")
        parsed = SinkOptions(
            endpoint=Endpoint.parse(options, DEFAULT_GROUP, "sendTimeoutMs"),
            columns=checked_columns(NAME, to_arrow_schema(schema, timezone="UTC"), topic),
            topic=topic,
            write_id=options.text("writeId") or uuid4().hex,
            batch_bytes=options.size("batchBytes", 256 << 10, maximum=MAX_BATCH_BYTES),
            in_flight=options.number("maxInFlight", 1, 1024) or 8,
            rows_per_second=options.rate("rowsPerSecond"),
        )
        options.text("checkpointLocation")  # an option of Spark, for streams
        options.refuse_others()
        return parsed


@dataclass
class SentRows(WriterCommitMessage):
    """Counts of what a task sent."""

    partition: int
    rows: int = 0
    body_bytes: int = 0
    requests: int = 0
    sent_again: int = 0
    less_durable: int = 0
    topics: dict[str, int] = field(default_factory=dict)


class TopicWriter(DataSourceArrowWriter):
    """Writes a table."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        return send_rows(self._options, self._options.write_id, _partition(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log_counts("the table", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log_failure("the table", messages)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        return send_rows(self._options, _stream_write(self._options.write_id), _partition(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _log_counts(f"batch {batchId}", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _log_failure(f"batch {batchId}", messages)


def send_rows(options: SinkOptions, write: str, partition: int, batches: Iterator[pa.RecordBatch]) -> SentRows:
    """Send the rows of a task; returns when all are stored."""
    spare_collections()
    ids = RowIds.of(write, partition)
    topics: Counter[str] = Counter()
    first_row, rate = 0, options.rows_per_second
    if rate is not None:
        batches = paced(batches, rate)
    with borrowed_writer(options.endpoint, options.batch_bytes, options.in_flight, partition) as writer:
        for arrow in batches:
            batch = RowBatch(dict(zip(options.columns, arrow.columns)), options.topic, first_row)
            for group in grouped(batch, writer.queues):
                _send_group(writer, batch, group, ids)
                topics[group.topic] += len(group.rows)
            first_row += batch.rows
            if rate is not None:
                writer.flush()
        writer.flush()
        counts = writer.counts
    return SentRows(
        partition,
        counts.messages,
        counts.body_bytes,
        counts.requests,
        counts.sent_again,
        counts.less_durable,
        {**topics},
    )


def _send_group(writer: BulkWriter, batch: RowBatch, group: RowGroup, ids: RowIds) -> None:
    """Rows are encoded many at a time; one that `encode_rows` leaves is sent as a message, or is wrong."""
    topic, queue, ordered, alone, rows = group
    if problem := unsendable(topic):
        raise batch.wrong(int(rows[0]), f"column 'topic': {problem}")
    done = 0
    while done < len(rows):
        count = 0
        if not alone:
            most_rows, most_bytes = writer.room(topic, queue, ordered=ordered)
            items, count, body_bytes = encode_rows(
                batch.columns, rows, done, most_rows, most_bytes, ids.prefix, batch.first_number
            )
            if count:
                writer.send_items(topic, items, count, body_bytes, queue, ordered=ordered)
        if not count:
            row, count = int(rows[done]), 1
            message = batch.message(row, topic, ids.of_row(batch.first_number + row))
            try:
                writer.send(message, queue, ordered=ordered)
            except InvalidMessage as error:
                raise batch.wrong(row, str(error)) from None
        done += count


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _stream_write(write_id: str) -> str:
    """An id of query and batch, which is the same when a batch is run again, also after a restart from the checkpoint."""
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return f"{query}/{batch}" if query and batch else write_id


def _log_counts(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    sent = [message for message in messages if isinstance(message, SentRows)]
    log.info(
        "%s: %d messages of %d bytes stored, %d requests, %d sent again",
        what,
        sum(message.rows for message in sent),
        sum(message.body_bytes for message in sent),
        sum(message.requests for message in sent),
        sum(message.sent_again for message in sent),
    )
    if less_durable := sum(message.less_durable for message in sent):
        log.warning("%s: %d messages were stored, but not flushed or replicated in time", what, less_durable)


def _log_failure(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    sent = sum(message.rows for message in messages if isinstance(message, SentRows))
    log.warning("%s failed: %d messages of tasks that succeeded are stored and stay stored", what, sent)
