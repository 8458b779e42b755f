"""Rows made into messages, and sent to a real broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from tests.spark.live import have_queues
from tests.support.admin import create_topic

from rocketline.client.bulk.reader import BulkReader
from rocketline.client.bulk.writer import BulkWriter
from rocketline.clock import ManualClock
from rocketline.errors import ConfigError, InvalidMessage
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.hashing import java_string_hash
from rocketline.spark.connections import Endpoint
from rocketline.spark.live.source import LiveSource
from rocketline.spark.sink.groups import grouped
from rocketline.spark.sink.pacing import paced
from rocketline.spark.sink.rows import RowBatch, RowIds, checked_columns
from rocketline.spark.sink.sink import SinkOptions, send_rows
from rocketline.testing import LocalCluster

IDS = RowIds.of("query/7", 3)
WHEN = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def row_batch(columns: dict[str, Any], topic: str | None = "T") -> RowBatch:
    batch = pa.RecordBatch.from_pydict(columns)
    names = checked_columns("rocketmq", batch.schema, topic)
    return RowBatch(dict(zip(names, batch.columns)), topic, 10)


def groups(columns: dict[str, Any], topic: str | None = "T") -> list[tuple[Any, ...]]:
    """(topic, queue, ordered, alone, rows) with four queues on broker a and two on b."""
    queues = [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1)]
    found = grouped(row_batch(columns, topic), lambda name: [MessageQueue(name, *queue) for queue in queues])
    return [(name, queue and str(queue), *rest, rows.tolist()) for name, queue, *rest, rows in found]


def messages(columns: dict[str, Any], topic: str | None = "T") -> list[Message]:
    """Each row as it is sent alone."""
    batch = row_batch(columns, topic)
    return [
        batch.message(int(row), group.topic, IDS.of_row(10 + row))
        for group in grouped(batch, lambda name: [MessageQueue(name, "b", number) for number in range(4)])
        for row in group.rows
    ]


def test_every_column_means_something() -> None:
    columns = {
        "Body": ["text"],
        "topic": ["other"],
        "tags": ["a"],
        "keys": pa.array([["k1", "k2"]], pa.list_(pa.field("element", pa.string(), nullable=False))),
        "properties": pa.array([[("p", "1")]], pa.map_(pa.string(), pa.string())),
        "shardingKey": ["s"],
        "deliverAt": pa.array([WHEN], pa.timestamp("us", "UTC")),
        "queueId": pa.array([1], pa.int32()),
        "brokerName": ["b"],
        "flag": pa.array([9], pa.int32()),
    }
    (message,) = messages(columns, topic=None)
    assert (message.topic, message.body, message.flag) == ("other", b"text", 9)
    assert message.properties == {
        "UNIQ_KEY": IDS.of_row(10), "WAIT": "true", "p": "1", "__SHARDINGKEY": "s", "KEYS": "k1 k2", "TAGS": "a",
    }  # fmt: skip
    assert (message.deliver_at, message.delay) == (WHEN, None)
    assert groups(columns, topic=None) == [("other", "other@b:1", True, True, [0])]


def test_columns_that_are_absent_or_null_add_nothing() -> None:
    columns = {"body": [b"x"], "tags": pa.nulls(1, pa.string()), "delayMs": pa.array([1500], pa.int64())}
    (message,) = messages(columns)
    assert (dict(message.properties), message.delay) == (
        {"UNIQ_KEY": IDS.of_row(10), "WAIT": "true"},
        timedelta(milliseconds=1500),
    )
    assert groups(columns) == [("T", None, False, True, [0])]


def test_rows_travel_with_those_of_their_topic_and_queue() -> None:
    columns = {
        "body": ["a", "b", "c", "d", "e", "f"],
        "topic": ["T", "U", "T", "T", "U", "T"],
        "shardingKey": [None, "k", "k", None, "k", "k"],
        "queueId": pa.array([None, None, 3, None, None, None], pa.int32()),
        "delayMs": pa.array([None, None, None, None, None, 5], pa.int64()),
    }
    place = abs(java_string_hash("k")) % 6
    of_key = ["a:0", "a:1", "a:2", "a:3", "b:0", "b:1"][place]
    assert sorted(groups(columns, topic=None), key=lambda group: group[-1]) == [
        ("T", None, False, False, [0, 3]),
        ("U", f"U@{of_key}", True, False, [1, 4]),
        ("T", "T@a:3", True, False, [2]),
        ("T", f"T@{of_key}", True, True, [5]),
    ]
    with pytest.raises(InvalidMessage, match=r"row 11 of the task: column 'queueId': queue 0 .* is on several brokers"):
        groups({"body": ["a", "b"], "queueId": pa.array([2, 0], pa.int32())})


def test_ids_are_the_same_when_a_task_runs_again_and_differ_otherwise() -> None:
    again = messages({"body": [b"x", b"y"]})
    assert [message.properties["UNIQ_KEY"] for message in again] == [IDS.of_row(10), IDS.of_row(11)]
    others = {RowIds.of("query/8", 3), RowIds.of("query/7", 4), RowIds.of("other/7", 3), IDS}
    assert len({ids.of_row(10) for ids in others}) == 4
    own = pa.array([[("UNIQ_KEY", "mine")]], pa.map_(pa.string(), pa.string()))
    assert messages({"body": [b"x"], "properties": own})[0].properties["UNIQ_KEY"] == "mine"


@pytest.mark.parametrize(
    ("columns", "topic", "problem"),
    [
        ({"tags": ["a"]}, "T", "a column 'body' is needed"),
        ({"body": [1]}, "T", "'body' must be binary or string, not int64: cast it"),
        ({"body": [b"x"]}, None, "set the option 'topic'"),
        ({"body": [b"x"], "tag": ["a"]}, "T", "'tag' cannot be written: did you mean 'tags'"),
        ({"body": [b"x"], "commitLogOffset": [1]}, "T", "Select the columns to send"),
        ({"body": [b"x"], "deliverAt": [5]}, "T", "'deliverAt' must be timestamp"),
        ({"body": [b"x"], "brokerName": ["b"]}, "T", "without a column 'queueId'"),
        ({"body": [b"x"], "properties": ["a=b"]}, "T", "must be map<string,string>"),
    ],
)
def test_wrong_columns_are_refused_before_anything_is_sent(columns: Any, topic: str | None, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        row_batch(columns, topic)


MAP = pa.map_(pa.string(), pa.string())


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"body": [b"x", None]}, "row 1 of the task: has no body"),
        ({"body": [b"x", b""]}, "row 1 of the task: column 'body' is empty"),
        ({"topic": ["T", None]}, "row 1 of the task: has no topic"),
        ({"topic": ["T", "a b"]}, "row 1 of the task: column 'topic'"),
        ({"tags": ["a", "b\x02"]}, "row 1 of the task: column 'tags': .* contains the separator"),
        ({"keys": [["a"], ["b", None]]}, "row 1 of the task: column 'keys' has a null"),
        ({"shardingKey": ["a", ""]}, "row 1 of the task: column 'shardingKey': .* empty"),
        (
            {"properties": pa.array([[("a", "b")], [("c", None)]], MAP)},
            "row 1 of the task: column 'properties' has a null",
        ),
        (
            {"properties": pa.array([[("a", "b")], [("", "v")]], MAP)},
            "row 1 of the task: column 'properties': .* empty",
        ),
        ({"flag": pa.array([1, 1 << 40])}, "row 1 of the task: column 'flag' is 1099511627776"),
        ({"delayMs": pa.array([1, -5])}, "row 1 of the task: delay .* below zero"),
        ({"queueId": pa.array([0, 77])}, "row 1 of the task: column 'queueId': queue 77 .* does not exist; there are"),
        ({"tags": [b"a", b"\xff"]}, "row 1 of the task: column 'tags' is not UTF-8"),
        ({"topic": [b"a", b"\xff"]}, "row 1 of the task: column 'topic' is not UTF-8"),
        (
            {"brokerName": [b"broker-a", b"\xff"], "queueId": pa.array([0, 0])},
            "row 1 of the task: column 'brokerName' is not UTF-8",
        ),
        ({"delayMs": pa.array([1, 1 << 62])}, "row 1 of the task: column 'delayMs' is 4611686018427387904, which is"),
        (
            {"deliverAt": pa.array([0, 300_000_000_000_000_000], pa.timestamp("us", "UTC"))},
            "row 1 of the task: column 'deliverAt' is 300000000000000000 microseconds, which is beyond",
        ),
    ],
)
def test_a_wrong_row_is_named_with_its_column(cluster: LocalCluster, columns: dict[str, Any], problem: str) -> None:
    given = {"body": [b"x", b"y"], "topic": ["wrong", "wrong"], **columns}
    for name in ("tags", "topic", "brokerName"):
        if name in given and isinstance(given[name][0], bytes):  # a string as Spark may have it, not checked by Arrow
            given[name] = pa.array(given[name], pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_pydict(given)
    with pytest.raises(InvalidMessage, match=problem):
        send_rows(options(cluster, batch.schema), "w", 0, iter([batch]))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def options(cluster: LocalCluster, schema: pa.Schema, **more: str) -> SinkOptions:
    return SinkOptions.parse({"namesrv": cluster.namesrv, "writeId": "w", **more}, from_arrow_schema(schema))


def stored(cluster: LocalCluster, topic: str) -> list[MessageView]:
    with BulkReader(cluster.namesrv, group="check") as reader:
        return [
            message
            for queue in reader.queues(topic)
            for reply in reader.read(queue, *reader.bounds(queue))
            for message in reply.messages()
        ]


def test_rows_reach_the_broker_in_the_order_of_their_keys(cluster: LocalCluster) -> None:
    numbered = [range(start, start + 100) for start in (0, 100, 200)]
    batches = [
        pa.RecordBatch.from_pydict({"body": [f"{n}" for n in part], "shardingKey": [f"k{n % 7}" for n in part]})
        for part in numbered
    ]
    given = options(cluster, batches[0].schema, topic="keyed", batchBytes="2k", maxInFlight="4")
    sent = send_rows(given, "w", 5, iter(batches))
    assert (sent.partition, sent.rows, sent.topics) == (5, 300, {"keyed": 300})
    found = stored(cluster, "keyed")
    assert len(found) == 300
    for key in {message.properties["__SHARDINGKEY"] for message in found}:
        of_key = [message for message in found if message.properties["__SHARDINGKEY"] == key]
        assert {message.queue_id for message in of_key} == {abs(java_string_hash(key)) % 4}, (
            "as Java's producers choose"
        )
        assert [int(message.body) for message in of_key] == sorted(int(message.body) for message in of_key)


@pytest.mark.parametrize(("rate", "most"), [(2000.0, 100), (50.0, 5), (3.0, 1), (0.5, 1)])
def test_rows_leave_no_faster_than_a_rate_allows(rate: float, most: int) -> None:
    clock, taken = ManualClock(), []
    batches = [pa.RecordBatch.from_pydict({"body": [str(n) for n in range(start, start + 150)]}) for start in (0, 150)]
    for piece in paced(batches, rate, clock, clock.advance):
        taken.append((clock.monotonic(), piece.column(0).to_pylist()))
        clock.advance(0.001)
    assert [body for _, bodies in taken for body in bodies] == [str(n) for n in range(300)]
    assert max(len(bodies) for _, bodies in taken) == most
    for number, (at, _) in enumerate(taken):
        before = sum(len(bodies) for _, bodies in taken[:number])
        assert at >= before / rate - 1e-6


def test_a_rate_changes_nothing_but_the_speed(cluster: LocalCluster) -> None:
    batch = pa.RecordBatch.from_pydict({"body": [str(n) for n in range(30)]})
    given = options(cluster, batch.schema, topic="slow", rowsPerSecond="10000")
    send_rows(given, "w", 0, iter([batch]))
    ids = {message.body: message.message_id for message in stored(cluster, "slow")}
    assert ids == {b"%d" % n: RowIds.of("w", 0).of_row(n) for n in range(30)}


def test_copied_properties_and_large_rows_do_not_break_batches(cluster: LocalCluster) -> None:
    """A topic copied to another one: its messages have all the properties that senders set."""
    pairs = [("KEYS", "k"), ("TAGS", "old"), ("WAIT", "true"), ("__SHARDINGKEY", "s"), ("UNIQ_KEY", "own"), ("p", "1")]
    batch = pa.RecordBatch.from_pydict(
        {"body": [b"x"] * 200, "tags": ["new"] * 200, "properties": pa.array([pairs] * 200, MAP)}
    )
    sent = send_rows(options(cluster, batch.schema, topic="copies"), "w", 0, iter([batch]))
    assert (sent.rows, sent.requests) == (200, 1)
    properties = stored(cluster, "copies")[0].properties
    assert {name: properties[name] for name, _ in pairs} == {**dict(pairs), "TAGS": "new"}

    large = pa.RecordBatch.from_pydict({"body": [bytes(size) for size in (300_000, 1, 1)]})
    sent = send_rows(options(cluster, large.schema, topic="large"), "w", 0, iter([large]))
    assert (sent.rows, sent.requests) == (3, 2)
    assert sorted(len(message.body) for message in stored(cluster, "large")) == [1, 1, 300_000]


def test_rows_that_are_not_waited_for_keep_their_order(cluster: LocalCluster) -> None:
    properties = [[("WAIT", "false")] if number % 3 else [] for number in range(30)]
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [f"{number}" for number in range(30)],
            "shardingKey": ["k"] * 30,
            "properties": pa.array(properties, MAP),
        }
    )
    send_rows(options(cluster, batch.schema, topic="unheard"), "w", 0, iter([batch]))
    assert [int(message.body) for message in stored(cluster, "unheard")] == list(range(30))


def test_a_task_that_runs_again_stores_the_same_ids_again(cluster: LocalCluster) -> None:
    batch = pa.RecordBatch.from_pydict({"body": ["a", "b"], "topic": ["again", "again"]})
    for _ in range(2):
        send_rows(options(cluster, batch.schema), "w", 1, iter([batch]))
    ids = [message.message_id for message in stored(cluster, "again")]
    assert (len(ids), len(set(ids))) == (4, 2)


def test_tasks_of_a_process_share_a_writer_and_nothing_else(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[BulkWriter] = []
    make = Endpoint.writer

    def counting(*given: Any) -> BulkWriter:
        made.append(make(*given))
        return made[-1]

    monkeypatch.setattr(Endpoint, "writer", counting)
    address = cluster.brokers[0].address
    create_topic(address, "shared", 1)
    batch = pa.RecordBatch.from_pydict({"body": [str(number) for number in range(8)]})
    given = options(cluster, batch.schema, topic="shared", batchBytes="60", maxInFlight="3")

    def sent(task: int) -> tuple[int, int]:
        rows = send_rows(given, f"task {task}", task, iter([batch])).rows
        return rows, len(made)

    assert [sent(0), sent(1)] == [(8, 1), (8, 1)]
    have_queues(cluster, "shared", 2)
    assert sent(1) == (8, 1)
    assert {message.queue_id for message in stored(cluster, "shared")} == {0, 1}, "queues that are new are used"
    cluster.restart_broker(cluster.brokers[0].name)
    assert sent(2) == (8, 1), "over a new connection"
    wrong = pa.RecordBatch.from_pydict({"body": ["x"], "topic": ["wrong topic"]})
    with pytest.raises(InvalidMessage):
        send_rows(options(cluster, wrong.schema, batchBytes="60", maxInFlight="3"), "w", 0, iter([wrong]))
    assert sent(3) == (8, 2), "a task that failed keeps no writer"
    assert len(stored(cluster, "shared")) == 40


def test_queues_may_be_chosen_and_those_that_are_not_there_are_told(cluster: LocalCluster) -> None:
    def send(queue_id: int) -> None:
        batch = pa.RecordBatch.from_pydict({"body": ["a"], "queueId": pa.array([queue_id], pa.int32())})
        send_rows(options(cluster, batch.schema, topic="chosen"), "w", 0, iter([batch]))

    send(2)
    assert [message.queue_id for message in stored(cluster, "chosen")] == [2]
    with pytest.raises(InvalidMessage, match="queue 77 of topic 'chosen' does not exist; there are chosen@broker-a:0"):
        send(77)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"namesrv": ""}, "'namesrv' is needed"),
        ({"topic": "a b"}, "option 'topic'"),
        ({"batchByte": "5"}, "did you mean 'batchBytes'"),
        ({"batchBytes": "4m"}, "'batchBytes' must be at most 2097152 bytes, not '4m'"),
        ({"maxInFlight": "0"}, "from 1 to"),
        ({"rowsPerSecond": "0"}, "'rowsPerSecond' must be a number above 0"),
        ({"rowsPerSecond": "nan"}, "'rowsPerSecond' must be a number above 0"),
        ({"rocketmq.secretKey": "x"}, "'rocketmq.accessKey' is missing"),
    ],
)
def test_wrong_options_are_refused(cluster: LocalCluster, given: dict[str, str], problem: str) -> None:
    schema = pa.schema({"body": pa.string()})
    with pytest.raises(ConfigError, match=problem):
        options(cluster, schema, **{"topic": "t", **given})


def test_a_topic_is_not_overwritten(cluster: LocalCluster) -> None:
    source = LiveSource({"namesrv": cluster.namesrv, "topic": "t"})
    with pytest.raises(ConfigError, match=r"mode\('append'\)"):
        source.writer(from_arrow_schema(pa.schema({"body": pa.string()})), overwrite=True)
