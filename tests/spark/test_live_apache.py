"""The source and the sink `rocketmq` on Apache's own broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.live import bodies, send, streaming
from tests.support.admin import consume_stats, create_topic, eventually
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java
from tests.support.patience import PATIENCE_S

from rocketline.client.bulk.reader import BulkReader
from rocketline.errors import RouteNotFound
from rocketline.spark.live import queues as live_queues

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("spark")]  # some need Spark: one broker for all


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    require_java(*server_coordinates(SERVER_VERSION))
    conf = {"enablePropertyFilter": "true"}
    cluster = ApacheCluster(tmp_path_factory.mktemp("apache"), broker_conf=conf, jvm_options=QUICK_START).start()
    yield cluster
    cluster.kill()


@pytest.fixture
def topic(apache: ApacheCluster) -> str:
    name = f"T_{uuid.uuid4().hex[:8]}"
    create_topic(apache.broker, name, 2)
    with BulkReader(apache.namesrv, group="look") as reader:
        eventually(lambda: _is_there(reader, name), f"the route of {name}")
    return name


def _is_there(reader: BulkReader, topic: str, queues: int = 2) -> bool:
    try:
        return len(reader.queues(topic)) == queues
    except RouteNotFound:
        return False


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def await_listed(apache: ApacheCluster, topic: str, count: int) -> None:
    """Wait until the queues list this many messages: Apache's broker lists them after it acknowledged them."""
    with BulkReader(apache.namesrv, group="look") as reader:
        queues = reader.queues(topic)
        eventually(lambda: sum(reader.bounds(queue)[1] for queue in queues) == count, f"{count} messages in {topic}")


def test_a_stream_goes_on_with_new_queues_filters_and_progress(
    apache: ApacheCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_queues, "LIST_AGAIN_S", 0.0)
    group = f"G_{topic}"
    send(apache.namesrv, topic, numbers(0, 100), queue_id=0, tag="a", properties={"n": "1"})
    send(apache.namesrv, topic, numbers(100, 130), queue_id=1, tag="b", properties={"n": "2"})
    await_listed(apache, topic, 130)
    options = {"subscribe": topic, "startingOffsets": "earliest", "group": group, "commitOffsets": "true"}
    with streaming(apache.namesrv, **options, maxOffsetsPerTrigger="80") as stream:
        rows = stream.step() + stream.step() + stream.step()
        assert bodies(rows) == list(range(130))
        assert {row["tags"] for row in rows} == {"a", "b"}
        assert consume_stats(apache.broker, group, topic) == {0: (100, 100), 1: (30, 30)}
        create_topic(apache.broker, topic, 3)
        with BulkReader(apache.namesrv, group="look") as reader:
            eventually(lambda: _is_there(reader, topic, 3), "three queues")
        send(apache.namesrv, topic, numbers(200, 210), queue_id=2)
        await_listed(apache, topic, 140)
        assert bodies(stream.step() + stream.step()) == list(range(200, 210))
    with streaming(apache.namesrv, subscribe=topic, startingOffsets="earliest", subExpression="b || c") as stream:
        assert bodies(stream.step()) == list(range(100, 130))
    sql = {"filterType": "SQL92", "subExpression": "n = 1"}
    with streaming(apache.namesrv, subscribe=topic, startingOffsets="earliest", **sql) as stream:
        assert bodies(stream.step()) == list(range(100))
    with streaming(apache.namesrv, subscribe=topic, startingTimestamp="2000-01-01") as stream:
        assert len(stream.step()) == 140


def test_a_table_is_written_and_streamed_with_spark(
    spark: SparkSession, apache: ApacheCluster, topic: str, tmp_path: Path
) -> None:
    rows = spark.range(500).selectExpr("concat('body ', id) AS body", "concat('k', id) AS keys", "'t' AS tags")
    rows.write.format("rocketmq").options(namesrv=apache.namesrv, topic=topic).mode("append").save()
    await_listed(apache, topic, 500)
    frame = spark.readStream.format("rocketmq").options(
        namesrv=apache.namesrv, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="300"
    )
    target = {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "check")}
    query = frame.load().writeStream.format("parquet").options(**target).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert [progress["numInputRows"] for progress in query.recentProgress[:2]] == [300, 200]
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {(bytes(row.body).decode(), row.keys, row.tags) for row in found} == {
        (f"body {number}", f"k{number}", "t") for number in range(500)
    }
    assert len({row.msgId for row in found}) == len(found) == 500
    ends = json.loads(query.recentProgress[-1]["sources"][0]["endOffset"])[topic]["broker-a"]
    assert sum(ends.values()) == 500
