"""What `test_cluster` has done on a real cluster, by `spark-submit --py-files`: NAMESRV TOPIC TARGET FOLDER.

A topic is read as a table and as a stream, which goes to files and to the topic TARGET_stream; changes are merged into a
table of Iceberg; FOLDER/cold is read, a log that was offloaded. Then rows are sent to TARGET, and the executor that sends
half of them is killed when some are stored. The last line printed is JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

ROWS = 400
PADDING = "x" * 2000
"""Batches of 50 rows are then larger than the buffers on the way to the sink."""


def main(namesrv: str, topic: str, target: str, folder: str) -> dict[str, Any]:
    spark = SparkSession.builder.appName("on a cluster").getOrCreate()
    options = {"namesrv": namesrv, "subscribe": topic}
    table = spark.read.format("rocketmq").options(**options).load()
    found = {"rows": table.count(), "homes": homes(spark)}

    stream = spark.readStream.format("rocketmq").options(
        **options, startingOffsets="earliest", maxOffsetsPerTrigger="60"
    )
    places = {"path": f"{folder}/out", "checkpointLocation": f"{folder}/check"}
    writer = stream.load().writeStream.format("parquet").options(**places)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    found["batches"] = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    back = stream.load().select("body", "keys").writeStream.format("rocketmq")
    back = back.options(namesrv=namesrv, topic=f"{target}_stream", checkpointLocation=f"{folder}/check-back")
    assert back.trigger(availableNow=True).start().awaitTermination(200)
    found["merged"] = merged_table(spark, namesrv, folder)
    cold = spark.read.format("rocketmq-log").options(cacheDir=f"{folder}/cache").load(f"{folder}/cold")
    found["cold"] = cold.count()

    found["table"] = kept_table(spark, namesrv, topic, folder)
    rows = spark.range(0, ROWS, 1, 2).mapInArrow(killing(namesrv, target, Path(folder) / "killed"), "body string")
    sink = rows.write.format("rocketmq").options(namesrv=namesrv, topic=target, batchBytes="8k")
    sink.mode("append").save()
    spark.stop()
    return found


def kept_table(spark: SparkSession, namesrv: str, topic: str, folder: str) -> list[int]:
    """The numbers in a table of the topic; while it is written, an executor is killed."""
    from rocketline.pipelines.tables.formats import table_in
    from rocketline.pipelines.tables.table import TopicTable, keep_table

    def executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([parent(os.getppid())])], names=["process"])

    victims = [row.process for row in spark.range(0, 2, 1, 2).mapInArrow(executor, "process long").collect()]

    def tell(text: str) -> None:
        # The batch that is announced here is about to be written.
        if ": batch 2," in text and victims:
            os.kill(victims.pop(), signal.SIGKILL)

    wanted = TopicTable(namesrv, topic, f"{folder}/tables", "parquet", per_batch=20)
    keep_table(spark, wanted, tell)
    rows = table_in(spark, wanted.target, topic, "parquet").read()
    assert rows is not None
    return sorted(number_of(bytes(row.message.body)) for row in rows.collect())


def merged_table(spark: SparkSession, namesrv: str, folder: str) -> list[list[int]]:
    """The latest number of each id, as a table of Iceberg that two runs wrote."""
    from rocketline.pipelines.tables.auditing import audit_table
    from rocketline.pipelines.tables.formats import table_in
    from rocketline.pipelines.tables.table import TopicTable, keep_table

    wanted = TopicTable(
        namesrv, "changes", f"{folder}/lake", "iceberg", "json", "id int, v int", merge_key=("id",), per_batch=20
    )
    keep_table(spark, wanted, print, compact=True)
    assert not audit_table(spark, wanted, print).is_bad
    rows = table_in(spark, wanted.target, wanted.topic, "iceberg").read()
    assert rows is not None
    return sorted([row.id, row.v] for row in rows.collect())


def homes(spark: SparkSession) -> list[str]:
    """Where executors have rocketline from."""

    def home(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import rocketline

        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([rocketline.__file__] * batch.num_rows)], names=["home"])

    return sorted({row.home for row in spark.range(0, 4, 1, 4).mapInArrow(home, "home string").collect()})


def killing(namesrv: str, target: str, done: Path) -> Any:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            # The third batch: the second has pushed the first one out of the buffers on its way to the sink.
            if number == 2 and context.partitionId() == 1 and not done.exists():
                wait_until_stored(namesrv, target)
                done.touch()
                os.kill(parent(os.getppid()), signal.SIGKILL)
            bodies = pa.array([f"{number} {PADDING}" for number in batch.column(0).to_pylist()])
            yield pa.RecordBatch.from_arrays([bodies], names=["body"])

    return rows


def wait_until_stored(namesrv: str, target: str) -> None:
    """Wait for a row of the second half to be in the topic."""
    from rocketline.client.bulk.reader import BulkReader

    deadline = time.monotonic() + 3600  # who started this job ends it before
    with BulkReader(namesrv, group="look") as reader:
        while time.monotonic() < deadline:
            for queue in reader.queues(target):
                for reply in reader.read(queue, *reader.bounds(queue)):
                    if any(number_of(message.body) >= ROWS // 2 for message in reply.messages()):
                        return
            time.sleep(0.05)
    raise TimeoutError(f"nothing of the second half was stored in {target}")


def number_of(body: bytes) -> int:
    return int(body.split(b" ")[0])


def parent(process: int) -> int:
    """A worker is the child of a daemon, and that the child of its executor."""
    stat = Path(f"/proc/{process}/stat").read_text()
    return int(stat[stat.rindex(")") + 2 :].split()[1])


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:5])))
