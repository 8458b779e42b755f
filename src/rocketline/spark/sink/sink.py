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
| batchBytes | 256k | size of a batch of messages in one request; Apache's brokers accept up to 4m |
| maxInFlight | 8 | requests of a task that wait for their answers |
| sendTimeoutMs | 30000 | how long a request may be tried |
| rowsPerSecond | none | most rows that a task sends per second; may be a fraction |
| rocketmq.accessKey, rocketmq.tls, ... | none | credentials and TLS, see `access_options` |
| writeId | random | identifies this write; in `foreachBatch` set it to a name and the number of the batch |

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

from rocketline.client.bulk.writer import BulkWriter
from rocketline.errors import InvalidMessage
from rocketline.message import MessageQueue
from rocketline.protocol.hashing import java_string_hash
from rocketline.protocol.names import topic_problem
from rocketline.spark.connections import Endpoint
from rocketline.spark.options import Options
from rocketline.spark.sink.pacing import paced
from rocketline.spark.sink.rows import OutgoingRow, RowIds, RowMessages, checked_columns

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

NAME = "rocketmq"
DEFAULT_GROUP = "spark-rocketmq-sink"


@dataclass(frozen=True)
class SinkOptions:
    """The options of the sink, checked; can be pickled."""

    endpoint: Endpoint
    rows: RowMessages
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
            rows=RowMessages(checked_columns(NAME, to_arrow_schema(schema, timezone="UTC"), topic), topic),
            write_id=options.text("writeId") or uuid4().hex,
            batch_bytes=options.size("batchBytes", 256 << 10),
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
    endpoint, ids = options.endpoint, RowIds.of(write, partition)
    topics: Counter[str] = Counter()
    first_row, rate = 0, options.rows_per_second
    if rate is not None:
        batches = paced(batches, rate)
    with BulkWriter(
        endpoint.name_servers,
        group=endpoint.group,
        batch_bytes=options.batch_bytes,
        in_flight=options.in_flight,
        timeout=endpoint.timeout_s,
        first_queue=partition,
        **endpoint.client_options,
    ) as writer:
        for batch in batches:
            for row in options.rows.of(batch, ids, first_row):
                queue = _queue(writer, row) if row.sharding_key is not None or row.queue_id is not None else None
                writer.send(row.message, queue, ordered=row.sharding_key is not None)
                topics[row.message.topic] += 1
            first_row += batch.num_rows
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


def _queue(writer: BulkWriter, row: OutgoingRow) -> MessageQueue:
    queues = writer.queues(row.message.topic)
    if row.queue_id is None:
        return queues[abs(java_string_hash(row.sharding_key or "")) % len(queues)]
    found = [
        queue for queue in queues if queue.queue_id == row.queue_id and row.broker_name in (None, queue.broker_name)
    ]
    if len(found) != 1:
        problem = "is on several brokers: add a column 'brokerName'" if found else "does not exist"
        raise InvalidMessage(
            f"queue {row.queue_id} of topic {row.message.topic!r} {problem}; there are "
            f"{', '.join(map(str, queues[:10]))}"
        )
    return found[0]


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
