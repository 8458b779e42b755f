"""`format("rocketmq")` in a real session, on a real broker: tables, streams, restarts, and writing back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.spark.clusters import worker_python
from tests.spark.conftest import ROOT
from tests.spark.live import forget, send, stored
from tests.support.admin import consume_stats, create_topic, eventually
from tests.support.patience import PATIENCE_S
from tests.support.tls import CA_FILE

from rocketline.client.bulk.reader import BulkReader
from rocketline.message import MessageQueue
from rocketline.spark.shipped_files import on_this_machine
from rocketline.testing import LocalCluster
from rocketline.transport.access import Access
from rocketline.transport.tls import Tls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.streaming.listener import StreamingQueryProgress

SECRETS = {"rocketmq.secretKey": "s-12345678", "rocketmq.securityToken": "t-12345678"}
ACCOUNT = {"rocketmq.accessKey": "shop", **SECRETS}
"""Our broker takes signed requests from everybody."""


def table(spark: SparkSession, cluster: LocalCluster, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(namesrv=cluster.namesrv, **options).load()


def stream(spark: SparkSession, cluster: LocalCluster, topic: str, **options: str) -> DataFrame:
    given = {"namesrv": cluster.namesrv, "subscribe": topic, "startingOffsets": "earliest", **options}
    return spark.readStream.format("rocketmq").options(**given).load()


def run(writer: DataStreamWriter) -> list[StreamingQueryProgress]:
    """Run a stream up to what there is."""
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    return query.recentProgress


def run_now(writer: DataStreamWriter) -> list[int]:
    """The rows of the batches of a run."""
    return [progress["numInputRows"] for progress in run(writer) if progress["numInputRows"]]


def to_parquet(frame: DataFrame, folder: Path) -> DataStreamWriter:
    return frame.writeStream.format("parquet").options(
        path=str(folder / "out"), checkpointLocation=str(folder / "check")
    )


def places(spark: SparkSession, folder: Path) -> Counter[tuple[int, int]]:
    """How often each queue and offset is in the Parquet files that count."""
    rows = spark.read.schema("queueId int, queueOffset bigint").parquet(str(folder / "out")).collect()
    return Counter((row.queueId, row.queueOffset) for row in rows)


def everything(cluster: LocalCluster, topic: str) -> Counter[tuple[int, int]]:
    """Every queue and offset that there is, once."""
    with BulkReader(cluster.namesrv, group="check") as reader:
        bounds = {queue.queue_id: reader.bounds(queue) for queue in reader.queues(topic)}
    return Counter((number, offset) for number, (begin, end) in bounds.items() for offset in range(begin, end))


def test_listeners_see_how_far_a_stream_is_behind(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    from pyspark.sql.streaming import StreamingQueryListener

    seen: list[dict[str, float]] = []

    class Lag(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            latest = json.loads(event.progress.sources[0].latestOffset)
            seen.append({name: latest[name] for name in ("lag.messages", "lag.seconds")})

        def onQueryTerminated(self, event: Any) -> None:
            pass

    send(cluster.namesrv, topic, numbers(0, 25))
    listener = Lag()
    spark.streams.addListener(listener)
    try:
        progress = run(to_parquet(stream(spark, cluster, topic, maxOffsetsPerTrigger="10"), tmp_path))
        eventually(lambda: len(seen) >= 3, "the listener saw three batches")
    finally:
        spark.streams.removeListener(listener)
    assert [each["lag.messages"] for each in seen[:3]] == [15, 5, 0]
    assert seen[0]["lag.seconds"] > 0 and seen[2]["lag.seconds"] == 0
    shown = json.loads(progress[0].sources[0].latestOffset)
    assert sum(shown[topic]["broker-a"].values()) == 25


def numbers(start: int, end: int, padding: int = 0) -> list[bytes]:
    return [b"%d" % number + bytes(padding) for number in range(start, end)]


def test_a_table_is_written_and_read_with_another_topic(
    spark: SparkSession, cluster: LocalCluster, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    other = f"{topic}_b"
    rows = spark.range(1000).selectExpr(
        "concat('body ', id) AS body",
        "concat('tag', id % 4) AS tags",
        "array(concat('k', id)) AS keys",
        "map('n', CAST(id AS string)) AS properties",
    )
    options = {"namesrv": cluster.namesrv, "topic": topic, "batchBytes": "16k", **ACCOUNT}
    rows.write.format("rocketmq").options(**options).mode("append").save()
    create_topic(cluster.brokers[0].address, other, 1)
    send(cluster.namesrv, other, numbers(0, 7))

    both = table(spark, cluster, subscribe=f"{topic},{other}", maxRecordsPerPartition="400", **ACCOUNT)
    assert {row["topic"]: row["count"] for row in both.groupBy("topic").count().collect()} == {topic: 1000, other: 7}
    both.explain("extended")
    assert "rocketmq" in (plan := capfd.readouterr().out)
    assert not [secret for secret in SECRETS.values() if secret in plan]

    narrow = spark.read.format("rocketmq").schema(
        "keys string, tags string, body binary, properties map<string,string>"
    )
    options = {"namesrv": cluster.namesrv, "subscribe": topic, "subExpression": "tag1 || tag3"}
    found = narrow.options(**options).load().collect()
    assert sorted(int(row.properties["n"]) for row in found) == list(range(1, 1000, 2))
    assert all(bytes(row.body).decode() == f"body {row.properties['n']}" for row in found)
    assert all(row.keys == f"k{row.properties['n']}" for row in found)

    by_sql = table(
        spark, cluster, subscribe=topic, filterType="SQL92", subExpression="n >= 990", includeProperties="false"
    )
    assert "properties" not in by_sql.columns
    assert by_sql.selectExpr("count(DISTINCT msgId) AS ids").first().ids == 10


def test_a_stream_goes_on_from_its_checkpoint_and_tells_of_its_progress(
    spark: SparkSession, forgetful: LocalCluster, tmp_path: Path
) -> None:
    cluster, topic = forgetful, "T"
    address, group = cluster.brokers[0].address, f"G_{topic}"
    options = {"maxOffsetsPerTrigger": "40", "group": group, "commitOffsets": "true", **ACCOUNT}
    send(cluster.namesrv, topic, numbers(0, 60, 500), queue_id=0)
    first_run = run(to_parquet(stream(spark, cluster, topic, **options), tmp_path))
    assert [progress["numInputRows"] for progress in first_run[:2]] == [40, 20]
    source = first_run[0]["sources"][0]
    assert json.loads(source["endOffset"]) == {topic: {"broker-a": {"0": 40, "1": 0}}}
    assert json.loads(source["latestOffset"])[topic] == {"broker-a": {"0": 60, "1": 0}}
    assert consume_stats(address, group, topic)[0] == (60, 60), "the last batch too"
    kept = "".join(path.read_text() for path in (tmp_path / "check").rglob("[!.]*") if path.is_file())
    assert '{"0": 40, "1": 0}' in kept or '{"0":40,"1":0}' in kept
    assert not [secret for secret in SECRETS.values() if secret in f"{kept} {first_run}"]

    create_topic(address, topic, 3)
    send(cluster.namesrv, topic, numbers(60, 65), queue_id=2)
    send(cluster.namesrv, topic, numbers(65, 70), queue_id=1)
    assert sum(run_now(to_parquet(stream(spark, cluster, topic, **options), tmp_path))) == 10
    assert places(spark, tmp_path) == everything(cluster, topic)

    send(cluster.namesrv, topic, numbers(70, 400, 500), queue_id=0)
    first = forget(cluster, MessageQueue(topic, "broker-a", 0))
    assert first > 60
    with pytest.raises(
        Exception, match=f"begins at {first}: messages from 60 on are lost unread.*failOnDataLoss=false"
    ):
        run_now(to_parquet(stream(spark, cluster, topic, **options), tmp_path))
    lenient = to_parquet(stream(spark, cluster, topic, failOnDataLoss="false", minPartitions="4"), tmp_path)
    assert run_now(lenient) == [390 - first]
    found = places(spark, tmp_path)
    assert max(found.values()) == 1
    assert {offset for number, offset in found if number == 0} == {*range(60), *range(first, 390)}


def test_queues_appear_and_heads_go_while_a_stream_runs(
    spark: SparkSession, forgetful: LocalCluster, tmp_path: Path
) -> None:
    cluster, topic = forgetful, "T"
    query = to_parquet(stream(spark, cluster, topic), tmp_path).trigger(processingTime="200 milliseconds").start()

    def has_read(count: int) -> bool:
        assert query.isActive, query.exception()
        return sum(progress["numInputRows"] for progress in query.recentProgress) >= count

    try:
        send(cluster.namesrv, topic, numbers(0, 300, 500), queue_id=0)
        eventually(lambda: has_read(300), "300 rows")
        create_topic(cluster.brokers[0].address, topic, 3)
        send(cluster.namesrv, topic, numbers(0, 5), queue_id=2)
        gone = forget(cluster, MessageQueue(topic, "broker-a", 0))
        send(cluster.namesrv, topic, numbers(300, 305), queue_id=0)
        eventually(lambda: has_read(310), "the rows of the new queue, and those behind the deleted ones", PATIENCE_S)
    finally:
        query.stop()
    assert places(spark, tmp_path) == everything(cluster, topic) + Counter((0, offset) for offset in range(gone))


def test_a_stream_writes_to_a_topic_with_the_same_ids_when_a_batch_runs_again(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    target, check = f"{topic}_out", tmp_path / "check"
    send(cluster.namesrv, topic, numbers(0, 30), tag="a")

    def copy() -> None:
        frame = stream(spark, cluster, topic).selectExpr(
            "body", "tags", "keys", f"'{target}' AS topic", "'k' AS shardingKey"
        )
        writer = frame.writeStream.format("rocketmq").option("namesrv", cluster.namesrv)
        run_now(writer.option("checkpointLocation", str(check)))

    copy()
    assert sorted(int(message.body) for message in stored(cluster.namesrv, target)) == list(range(30))
    # As if the driver had died after the messages were stored and before it wrote that down.
    for file in (check / "commits").iterdir():
        file.unlink()
    copy()
    found = stored(cluster.namesrv, target)
    assert set(Counter(message.message_id for message in found).values()) == {2}
    assert {(message.tag, message.properties["__SHARDINGKEY"]) for message in found} == {("a", "k")}
    assert len({message.queue_id for message in found}) == 1


def test_mistakes_reach_the_user_as_they_were_told(spark: SparkSession, cluster: LocalCluster, topic: str) -> None:
    with pytest.raises(Exception, match="unknown option 'startingofset', did you mean 'startingOffsets'"):
        table(spark, cluster, subscribe=topic, startingOfset="earliest")
    with pytest.raises(Exception, match="no name server could be reached: is the address right"):
        spark.read.format("rocketmq").options(namesrv="127.0.0.1:1", subscribe=topic).load().count()
    with pytest.raises(Exception, match="a column 'body' is needed"):
        options = {"namesrv": cluster.namesrv, "topic": topic}
        spark.range(3).selectExpr("CAST(id AS string) AS keys").write.format("rocketmq").options(**options).mode(
            "append"
        ).save()


def test_a_certificate_shipped_with_the_job_is_found_by_its_name(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    def found(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = on_this_machine(Access(tls=Tls(ca_file="/not/here/ca.pem"))).tls.ca_file  # type: ignore[union-attr]
        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([path])], names=["path"])

    tls = {"rocketmq.tls": "true", "rocketmq.tls.caFile": "ca.pem"}
    with pytest.raises(Exception, match="was shipped with the job: put it under this path"):
        table(spark, cluster, subscribe=topic, **tls).count()
    spark.sparkContext.addFile(str(CA_FILE))
    # Our broker does not take TLS: that it was asked shows that the certificate is there.
    with pytest.raises(Exception, match="it closed the connection during the TLS handshake"):
        table(spark, cluster, subscribe=topic, pullTimeoutMs="2000", **tls).count()
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(found, "path string").collect()
    assert Path(row.path).read_bytes() == CA_FILE.read_bytes() and Path(row.path) != CA_FILE


def test_rows_come_and_go_by_tls_with_an_account(spark: SparkSession) -> None:
    secured = LocalCluster(tls=True, users={"shop": "s-12345678"})
    with secured as running:
        assert secured.tls is not None
        access = {"rocketmq.tls": "true", "rocketmq.tls.caFile": str(secured.tls.ca_file)}
        account = {"rocketmq.accessKey": "shop", "rocketmq.secretKey": "s-12345678"}
        options = {"namesrv": running.namesrv, "topic": "guarded", **access}
        rows = spark.range(3).selectExpr("CAST(CAST(id AS string) AS binary) AS body")
        rows.write.format("rocketmq").options(**options, **account).mode("append").save()
        read = table(spark, running, subscribe="guarded", **access, **account).select("body").collect()
        assert {bytes(row.body) for row in read} == {b"0", b"1", b"2"}
        with pytest.raises(Exception, match="username cannot be null"):
            table(spark, running, subscribe="guarded", **access).count()


DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.spark.clusters import quick

namesrv, topic, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])

def held(batches):
    # In the third batch a task gives some rows away and goes no further.
    import time
    for batch in batches:
        yield batch.slice(0, 3)
        if batch.column("queueOffset")[0].as_py() >= 80:
            (folder / "reached").touch()
            time.sleep(3600)
        yield batch.slice(3)

builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m")
for name, value in quick().items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
frame = spark.readStream.format("rocketmq").options(
    namesrv=namesrv, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40"
).load()
frame.mapInArrow(held, frame.schema).writeStream.format("parquet").options(
    path=str(folder / "out"), checkpointLocation=str(folder / "check")
).trigger(availableNow=True).start().awaitTermination()
"""


def test_a_driver_killed_in_a_batch_leaves_every_offset_once(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    send(cluster.namesrv, topic, numbers(0, 150), queue_id=0)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": worker_python()}
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, str(script), cluster.namesrv, topic, str(tmp_path)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=tmp_path,
            start_new_session=True,
        )
    try:
        eventually(lambda: (tmp_path / "reached").exists() or driver.poll() is not None, "the third batch")
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert [_numbers_in(tmp_path / "check" / name) for name in ("offsets", "commits")] == [[0, 1, 2], [0, 1]]
    # What the next run is asked for differs; what the dead one had written down of its batch counts.
    rest = run_now(to_parquet(stream(spark, cluster, topic, maxOffsetsPerTrigger="100"), tmp_path))
    assert rest == [40, 30]
    assert places(spark, tmp_path) == everything(cluster, topic)


def _numbers_in(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())
