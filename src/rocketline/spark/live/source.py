"""The data source and sink `rocketmq`: topics of a running cluster, ours or Apache's, as tables and streams.

    spark.readStream.format("rocketmq").option("namesrv", "127.0.0.1:9876").option("subscribe", "orders").load()

| option | default | meaning |
| --- | --- | --- |
| namesrv | needed | name servers, `host:port`, several between `;`; also as nameServer or rocketmq.namesrv.addr |
| subscribe, subscribePattern, assign | one is needed | topics between commas; a regular expression (Python's) that whole \
names match; queues as JSON `{"topic": {"broker": [0, 1]}}` or `{"topic": [0, 1]}` |
| startingOffsets | latest, in a batch earliest | earliest, latest, group, or JSON `{"topic": {"broker": {"0": 42}}}` with \
-2 for earliest and -1 for latest, naming every queue |
| startingTimestamp, startingOffsetsByTimestamp | none | from the first message stored at or after a time, \
for all queues or each (JSON as above, milliseconds) |
| startingOffsetsByTimestampStrategy | latest | latest or error, where no message is that late |
| groupOffsetsFallback | earliest | earliest, latest or error, where the group has no offset |
| endingOffsets, endingTimestamp, endingOffsetsByTimestamp | latest | batch only; exclusive |
| failOnDataLoss | true | fail when messages to be read are gone; otherwise continue with a warning |
| maxOffsetsPerTrigger | none | stream: most rows of a batch, shared out by the backlog of each queue |
| minOffsetsPerTrigger, maxTriggerDelay | none, 15m | stream: wait for that many rows, but not longer |
| minPartitions, maxRecordsPerPartition | none | split ranges of queues into more tasks |
| subExpression, filterType | `*`, TAG | what brokers select: tags such as `a || b`, or SQL92 |
| group, commitOffsets | spark-rocketmq-source, false | stream: commit the progress of this group, for tools that show \
lag; where a restarted query continues is decided by its checkpoint only |
| includeProperties | true | whether there is a column `properties` |
| checkCrc | true | whether every body is compared with its checksum |
| pullBatchSize, pullTimeoutMs | 2048, 30000 | messages asked for at once; how long a broker may give nothing |
| rocketmq.accessKey, rocketmq.secretKey, rocketmq.tls, ... | none | credentials and TLS, see `access_options` |

Starting options apply to new queries only. Queues and topics that appear later are read from their beginning. Columns are
those of `columns`; a schema given by the user may have fewer of them, and other columns are not decoded.

Options for writing are in `sink.sink`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rocketline.errors import ConfigError
from rocketline.spark.columns import COLUMNS
from rocketline.spark.live.options import NAME, LiveOptions
from rocketline.spark.live.partitions import LivePartition, partitions_of
from rocketline.spark.live.planner import ranges_between
from rocketline.spark.live.queues import LiveQueues, Resolver
from rocketline.spark.live.reader import LiveReading
from rocketline.spark.live.stream import LiveStream
from rocketline.spark.requested import RequestedColumns
from rocketline.spark.sink.sink import SinkOptions, TopicStreamWriter, TopicWriter


class LiveSource(DataSource):
    """`format("rocketmq")` for spark.read, spark.readStream, DataFrame.write and DataFrame.writeStream."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        options = LiveOptions.parse(self.options)
        return from_arrow_schema(
            pa.schema([field for field in COLUMNS if options.include_properties or field.name != "properties"])
        )

    def reader(self, schema: StructType) -> LiveBatch:
        options = LiveOptions.parse(self.options, streaming=False)
        return LiveBatch(options, _reading(options, schema))

    def streamReader(self, schema: StructType) -> LiveStream:  # noqa: N802
        options = LiveOptions.parse(self.options, streaming=True)
        return LiveStream(options, _reading(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        if overwrite:
            raise ConfigError(f"{NAME}: a topic cannot be overwritten, only appended to: use mode('append')")
        return TopicWriter(SinkOptions.parse(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802
        return TopicStreamWriter(SinkOptions.parse(self.options, schema))


class LiveBatch(DataSourceReader):
    """Reads the messages between two positions once."""

    def __init__(self, options: LiveOptions, reading: LiveReading) -> None:
        self._options = options
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with options.endpoint.reader() as reader:
            queues = LiveQueues(reader, options.topics).current()
            resolver = Resolver(reader, options)
            start, end = resolver.start(queues, "earliest"), resolver.end(queues)
        behind = sorted(queue for queue in queues if start[queue] > end[queue])
        if behind and options.fail_on_loss:
            queue = behind[0]
            raise ConfigError(
                f"{NAME}: {queue} would be read from {start[queue]} to {end[queue]}: the end is before the start"
            )
        return partitions_of(ranges_between(start, end), options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark runs one task without a partition when there is nothing to read.
        if isinstance(partition, LivePartition):
            yield from self._reading.read(partition.parts)


def _reading(options: LiveOptions, schema: StructType) -> LiveReading:
    return LiveReading(
        options.endpoint,
        RequestedColumns.of(NAME, schema),
        options.expression,
        options.fail_on_loss,
        options.check_crc,
    )
