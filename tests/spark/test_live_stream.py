"""The stream and the batch of the source `rocketmq` on a real broker, called as Spark calls them, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.live import bodies, forget, have_queues, send, streaming
from tests.support.admin import consume_stats, create_topic, delete_topic
from tests.support.patience import PATIENCE_MS

from rocketline.clock import ManualClock
from rocketline.errors import ConfigError, RangeNotAvailable, RouteNotFound, TopicNotExist
from rocketline.message import MessageQueue
from rocketline.spark.columns import COLUMNS
from rocketline.spark.live import queues as live_queues
from rocketline.spark.live.source import LiveSource
from rocketline.testing import LocalCluster

PADDING = b" " + bytes(700)


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues are listed for every step, not every other second."""
    monkeypatch.setattr(live_queues, "LIST_AGAIN_S", 0.0)


def numbers(start: int, end: int, padding: bytes = b"") -> list[bytes]:
    return [b"%d" % number + padding for number in range(start, end)]


def read(cluster: LocalCluster, **options: str) -> list[dict[str, Any]]:
    source = LiveSource({"namesrv": cluster.namesrv, "pullTimeoutMs": str(PATIENCE_MS), **options})
    reader = source.reader(from_arrow_schema(COLUMNS))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_stream_goes_from_the_end_on_unless_told_otherwise(cluster: LocalCluster, topic: str) -> None:
    send(cluster.namesrv, topic, numbers(0, 10))
    with streaming(cluster.namesrv, subscribe=topic) as stream:
        assert stream.step() == []
        send(cluster.namesrv, topic, numbers(10, 25))
        assert bodies(stream.step()) == list(range(10, 25))
        position = stream.position
        assert stream.step() == []
        assert stream.position == position, "to the letter: Spark compares texts"
    with streaming(cluster.namesrv, subscribe=topic, startingOffsets="earliest") as stream:
        assert bodies(stream.step()) == list(range(25))


def test_a_restart_goes_on_where_the_checkpoint_is(cluster: LocalCluster, topic: str) -> None:
    send(cluster.namesrv, topic, numbers(0, 10))
    with streaming(cluster.namesrv, subscribe=topic, startingOffsets="earliest") as stream:
        stream.step()
        position = stream.position
    send(cluster.namesrv, topic, numbers(10, 20))
    with streaming(cluster.namesrv, position, subscribe=topic, startingOffsets="earliest") as stream:
        assert bodies(stream.step()) == list(range(10, 20))


def test_batches_have_a_limit_unless_all_is_wanted(cluster: LocalCluster, topic: str) -> None:
    send(cluster.namesrv, topic, numbers(0, 25))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    with streaming(cluster.namesrv, **options) as stream:
        start = stream.position
        sizes = [len(stream.step()) for _ in range(4)]
        assert sizes == [10, 10, 5, 0]
        everything = stream.reader.latestOffset(json.loads(start), ReadAllAvailable())
        assert len(stream.rows(start, json.dumps(everything))) == 25
        lag = {"lag.messages": 0, "lag.seconds": 0.0}
        assert stream.reader.reportLatestOffset() == {**json.loads(stream.position), **lag}


def test_small_ranges_are_read_by_one_task_unless_tasks_are_asked_for(cluster: LocalCluster) -> None:
    topic = "many_queues"
    create_topic(cluster.brokers[0].address, topic, 12)
    for queue_id in range(12):
        send(cluster.namesrv, topic, numbers(queue_id * 10, queue_id * 10 + 10), queue_id=queue_id)
    for more, tasks in (({}, 1), ({"minPartitions": "3"}, 12), ({"maxRecordsPerPartition": "45"}, 3)):
        source = LiveSource({"namesrv": cluster.namesrv, "subscribe": topic, "pullBatchSize": "25", **more})
        reader = source.reader(from_arrow_schema(COLUMNS))
        parts = reader.partitions()
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        assert (len(parts), [int(row["body"]) for row in rows]) == (tasks, [*range(120)])


def test_available_now_reads_up_to_what_there_was(cluster: LocalCluster, topic: str) -> None:
    send(cluster.namesrv, topic, numbers(0, 25))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    with streaming(cluster.namesrv, **options, minOffsetsPerTrigger="20") as stream:
        stream.reader.prepareForTriggerAvailableNow()
        send(cluster.namesrv, topic, numbers(25, 30))
        create_topic(cluster.brokers[0].address, topic, 4)
        read_rows = [bodies(stream.step()) for _ in range(3)]
        assert [len(rows) for rows in read_rows] == [20, 5, 0]
        assert sorted(number for rows in read_rows for number in rows) == list(range(25))


def test_a_stream_waits_for_enough_rows_but_not_for_ever(cluster: LocalCluster, topic: str) -> None:
    clock = ManualClock()
    options = {"subscribe": topic, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "5m"}
    with streaming(cluster.namesrv, **options) as stream:
        stream.reader._clock = clock
        send(cluster.namesrv, topic, numbers(0, 3))
        assert len(stream.step()) == 3, "the first batch is not held back"
        send(cluster.namesrv, topic, numbers(3, 9))
        assert stream.step() == []
        send(cluster.namesrv, topic, numbers(9, 13))
        assert bodies(stream.step()) == list(range(3, 13))
        send(cluster.namesrv, topic, numbers(13, 14))
        assert stream.step() == []
        clock.advance(301)
        assert bodies(stream.step()) == [13]


def test_new_queues_are_read_from_their_beginning(cluster: LocalCluster, topic: str) -> None:
    send(cluster.namesrv, topic, numbers(0, 4))
    with streaming(cluster.namesrv, subscribe=topic) as stream:
        assert stream.step() == []
        create_topic(cluster.brokers[0].address, topic, 4)
        send(cluster.namesrv, topic, numbers(10, 20), queue_id=3)
        assert stream.step() == [], "first it is written down where it begins"
        assert stream.offsets["3"] == 0
        assert bodies(stream.step()) == list(range(10, 20))


def test_topics_that_match_a_pattern_appear(cluster: LocalCluster, topic: str) -> None:
    with streaming(cluster.namesrv, subscribePattern=f"{topic}.*") as stream:
        create_topic(cluster.brokers[0].address, f"{topic}_b", 1)
        send(cluster.namesrv, f"{topic}_b", numbers(0, 5))
        rows = stream.step() + stream.step()
        assert (bodies(rows), {row["topic"] for row in rows}) == (list(range(5)), {f"{topic}_b"})


def test_trimmed_heads_end_a_stream_or_are_passed_over(forgetful: LocalCluster) -> None:
    cluster, topic = forgetful, "T"
    send(cluster.namesrv, topic, numbers(0, 300, PADDING), queue_id=0)
    queue = MessageQueue(topic, "broker-a", 0)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    with streaming(cluster.namesrv, **options) as stream:
        start = stream.position
        end = json.dumps(stream.reader.latestOffset(json.loads(start), ReadAllAvailable()))
        first = forget(cluster, queue)
        with pytest.raises(RangeNotAvailable, match=rf"begins at {first}: .*failOnDataLoss=false"):
            stream.step()
        with pytest.raises(
            RangeNotAvailable, match=rf"from 0 to 300 cannot be read.*{first}; set failOnDataLoss=false"
        ):
            stream.rows(start, end)
    with streaming(cluster.namesrv, start, **options, failOnDataLoss="false", maxOffsetsPerTrigger="20") as stream:
        assert bodies(stream.rows(start, end)) == list(range(first, 300)), "planned before, read after"
        assert bodies(stream.step()) == list(range(first, first + 20))


def test_a_deleted_topic_ends_a_stream_or_is_waited_for(cluster: LocalCluster, topic: str) -> None:
    address = cluster.brokers[0].address
    send(cluster.namesrv, topic, numbers(0, 30), queue_id=0)
    with (
        streaming(cluster.namesrv, subscribe=topic, startingOffsets="earliest") as strict,
        streaming(cluster.namesrv, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false") as lenient,
    ):
        planned = lenient.position
        assert len(strict.step()) == len(lenient.step()) == 30
        delete_topic(cluster.namesrv, address, topic)
        with pytest.raises(RangeNotAvailable, match="does not exist any more: its topic was deleted"):
            strict.step()
        assert lenient.step() == []
        assert lenient.rows(planned, lenient.position) == [], "what was planned is gone"
        with pytest.raises(TopicNotExist, match="needs a new checkpoint, with startingOffsets=earliest"):
            strict.rows(planned, strict.position)
        create_topic(address, topic, 2)
        send(cluster.namesrv, topic, numbers(100, 110), queue_id=0)
        with pytest.raises(RangeNotAvailable, match=r"deleted and created again.*needs a new checkpoint"):
            strict.step()
        assert bodies(lenient.step() + lenient.step()) == list(range(100, 110))


def test_a_queue_that_is_gone_ends_a_stream_or_is_waited_for(cluster: LocalCluster, topic: str) -> None:
    send(cluster.namesrv, topic, numbers(0, 10), queue_id=1)
    with (
        streaming(cluster.namesrv, subscribe=topic, startingOffsets="earliest") as strict,
        streaming(cluster.namesrv, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false") as lenient,
    ):
        assert len(strict.step()) == len(lenient.step()) == 10
        have_queues(cluster, topic, 1)
        with pytest.raises(RangeNotAvailable, match=r"broker-a:1 does not exist any more: .*got fewer queues"):
            strict.step()
        send(cluster.namesrv, topic, numbers(10, 15), queue_id=0)
        assert bodies(lenient.step()) == list(range(10, 15))
        assert lenient.offsets["1"] == 10, "in case it comes back"
        have_queues(cluster, topic, 2)
        send(cluster.namesrv, topic, numbers(15, 20), queue_id=1)
        assert bodies(lenient.step()) == bodies(strict.step())[5:] == list(range(15, 20))


def test_progress_of_the_group_is_seen_in_consume_stats(cluster: LocalCluster, topic: str) -> None:
    address, group = cluster.brokers[0].address, f"G_{topic}"
    send(cluster.namesrv, topic, numbers(0, 10), queue_id=0)
    options = {"subscribe": topic, "group": group, "commitOffsets": "true"}
    with streaming(cluster.namesrv, **options, startingOffsets="earliest") as stream:
        start = stream.position
        stream.step()
        assert consume_stats(address, group, topic).get(0, (10, 0))[1] <= 0, "nothing is done yet"
        assert stream.step() == []
        assert consume_stats(address, group, topic)[0] == (10, 10), "asking for more says that it is"
        send(cluster.namesrv, topic, numbers(10, 15), queue_id=0)
        stream.step()
        stream.reader.commit(json.loads(stream.position))
        assert consume_stats(address, group, topic)[0] == (15, 15)
        assert stream.position != start
    with streaming(cluster.namesrv, **options, startingOffsets="group") as stream:
        assert stream.offsets == {"0": 15, "1": 0}


def test_a_batch_between_offsets_times_and_queues(cluster: LocalCluster, topic: str) -> None:
    send(cluster.namesrv, topic, numbers(0, 20), queue_id=0)
    send(cluster.namesrv, topic, numbers(20, 30), queue_id=1)
    assert bodies(read(cluster, subscribe=topic)) == list(range(30))
    offsets = {topic: {"broker-a": {"0": 5, "1": -2}}}, {topic: {"broker-a": {"0": 8, "1": -1}}}
    start, end = map(json.dumps, offsets)
    found = read(cluster, subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert bodies(found) == [5, 6, 7, *range(20, 30)]
    assert bodies(read(cluster, assign=json.dumps({topic: [1]}))) == list(range(20, 30))
    assert len(read(cluster, subscribe=topic, startingTimestamp="2000-01-01")) == 30
    assert read(cluster, subscribe=topic, endingTimestamp="2000-01-01") == []
    assert read(cluster, subscribe=topic, startingTimestamp="2100-01-01") == []
    times = json.dumps({topic: {"broker-a": {"0": 0, "1": 4_102_444_800_000}}})
    assert bodies(read(cluster, subscribe=topic, startingOffsetsByTimestamp=times)) == list(range(20))
    assert bodies(read(cluster, subscribe=topic, endingOffsetsByTimestamp=times)) == list(range(20, 30))


def test_what_is_split_is_the_same(cluster: LocalCluster, topic: str) -> None:
    send(cluster.namesrv, topic, numbers(0, 50), queue_id=0)
    source = LiveSource({"namesrv": cluster.namesrv, "subscribe": topic, "maxRecordsPerPartition": "7"})
    reader = source.reader(from_arrow_schema(COLUMNS))
    parts = reader.partitions()
    assert len(parts) == 8
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in rows] == list(range(50))


def test_tags_and_sql92_select(cluster: LocalCluster, topic: str) -> None:
    # "Aa" and "BB" have the same hash, by which brokers select.
    for tag, numbered in (("Aa", range(5)), ("BB", range(5, 9))):
        for number in numbered:
            send(cluster.namesrv, topic, [b"%d" % number], tag=tag, properties={"n": str(number)})
    assert bodies(read(cluster, subscribe=topic, subExpression="Aa")) == [0, 1, 2, 3, 4]
    assert bodies(read(cluster, subscribe=topic, subExpression="Aa || other")) == [0, 1, 2, 3, 4]
    sql = {"filterType": "SQL92", "subExpression": "n BETWEEN 3 AND 6 AND TAGS = 'BB'"}
    assert bodies(read(cluster, subscribe=topic, **sql)) == [5, 6]


def test_a_narrow_schema_with_a_tag_that_is_not_in_it(cluster: LocalCluster, topic: str) -> None:
    send(cluster.namesrv, topic, numbers(0, 5), tag="a")
    source = LiveSource({"namesrv": cluster.namesrv, "subscribe": topic, "subExpression": "a"})
    schema = from_arrow_schema(COLUMNS)
    reader = source.reader(type(schema)([schema["queueOffset"], schema["body"]]))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [set(row) for row in rows] == [{"queueOffset", "body"}] * 5


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"subscribe": "nowhere_at_all"}, RouteNotFound, "topic does not exist"),
        ({"namesrv": "127.0.0.1:1"}, RouteNotFound, "no name server could be reached"),
        (
            {"startingOffsets": '{"TOPIC":{"broker-a":{"0":99,"1":0}}}'},
            RangeNotAvailable,
            "offsets from 0 to 0, not 99",
        ),
        ({"endingOffsets": '{"TOPIC":{"broker-a":{"0":7,"1":0}}}'}, RangeNotAvailable, "endingOffsets: .*not 7"),
        ({"startingOffsets": '{"TOPIC":{"broker-a":{"0":0}}}'}, ConfigError, "broker-a:1 are missing"),
        ({"startingOffsets": '{"TOPIC":{"broker-z":{"0":0}}}'}, ConfigError, "broker-z:0, which are not read"),
        ({"assign": '{"TOPIC":[0,9]}', "subscribe": ""}, ConfigError, r"names TOPIC@\*:9, which does not exist"),
        ({"startingOffsets": "group", "group": "new", "groupOffsetsFallback": "error"}, ConfigError, "has no offset"),
        ({"startingTimestamp": "2100-01-01", "startingOffsetsByTimestampStrategy": "error"}, ConfigError, "no message"),
    ],
)
def test_bad_input_is_told_with_what_to_do(
    cluster: LocalCluster, topic: str, options: dict[str, str], error: type[Exception], problem: str
) -> None:
    given = {"subscribe": topic, **{name: value.replace("TOPIC", topic) for name, value in options.items()}}
    with pytest.raises(error, match=problem.replace("TOPIC", topic)):
        LiveSource({"namesrv": cluster.namesrv, **given}).reader(from_arrow_schema(COLUMNS)).partitions()


def test_offsets_beyond_an_end_are_moved_when_that_is_wanted(cluster: LocalCluster, topic: str) -> None:
    send(cluster.namesrv, topic, numbers(0, 5), queue_id=0)
    beyond = json.dumps({topic: {"broker-a": {"0": 99, "1": 99}}})
    found = read(cluster, subscribe=topic, endingOffsets=beyond, failOnDataLoss="false")
    assert bodies(found) == list(range(5))
