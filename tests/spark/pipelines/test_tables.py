"""What pipelines compute, on tables made here."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocketline.errors import ConfigError
from rocketline.pipelines import dlq, lag, medallion, trace
from rocketline.pipelines.archive import selected
from rocketline.pipelines.failures import PipelineFailed, explained
from rocketline.pipelines.origin import Origin
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.sending import send, sendable
from rocketline.protocol.trace import Pub, SubAfter, SubBefore, TracedMessage, encode_trace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, tags string, keys string, "
    "body binary, properties map<string,string>, storeTimestamp timestamp, reconsumeTimes int"
)


def messages(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    usual: dict[str, Any] = {
        "topic": "orders", "brokerName": "a", "queueId": 0, "msgId": "ID", "tags": None, "keys": None, "body": b"",
        "properties": {}, "storeTimestamp": START, "reconsumeTimes": 0,
    }  # fmt: skip
    full = [{"queueOffset": number, **usual, **row} for number, row in enumerate(rows)]
    names = [part.split()[0] for part in COLUMNS.split(", ")]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in full], COLUMNS)


def order(order_id: str, customer: str, amount: float, at: datetime) -> bytes:
    fields = {"order_id": order_id, "customer": customer, "amount": amount, "at": at.isoformat()}
    return json.dumps(fields).encode()


def test_orders_are_parsed_counted_once_and_late_ones_correct_their_window(spark: SparkSession) -> None:
    late = START - timedelta(minutes=10)
    found = messages(
        spark,
        {"body": order("1", "ann", 10, START)},
        {"body": order("1", "ann", 99, START), "storeTimestamp": START + timedelta(seconds=1)},
        {"body": order("2", "ann", 5.5, late)},
        {"body": order("3", "bob", 1, late)},
        {"body": b"{broken"},
        {"body": b'{"order_id": "4", "customer": "bob", "at": "2026-01-31T12:00:00Z"}'},
    )
    orders, rejected = medallion.silver(found, "5 minutes")
    assert {(row.order_id, float(row.amount), row.late) for row in orders.collect()} == {
        ("1", 10.0, False), ("2", 5.5, True), ("3", 1.0, True),
    }  # fmt: skip
    assert [bytes(row.body)[:2] for row in rejected.orderBy("queueOffset").collect()] == [b"{b", b'{"']
    windows, customers = medallion.gold(orders, "1 minute")
    assert [(row.orders, float(row.revenue), row.late) for row in windows.orderBy("start").collect()] == [
        (2, 6.5, 2), (1, 10.0, 0),
    ]  # fmt: skip
    totals = {row.customer: (row.orders, float(row.revenue)) for row in customers.collect()}
    assert totals == {"ann": (2, 15.5), "bob": (1, 1.0)}


def test_dead_letters_by_origin_error_and_hour(spark: SparkSession) -> None:
    origin = {"RETRY_TOPIC": "orders"}
    found = messages(
        spark,
        {"topic": "%DLQ%billing", "properties": origin, "reconsumeTimes": 16},
        {"topic": "%DLQ%billing", "properties": origin | {"why": "no stock"}, "reconsumeTimes": 16},
        {"topic": "%DLQ%billing", "properties": origin, "reconsumeTimes": 16,
         "storeTimestamp": START + timedelta(hours=2)},
        {"topic": "orders"},
    )  # fmt: skip
    rows = dlq.report(dlq.dead_letters(found, "why")).collect()
    assert [(row.group, row.origin, row.error, row.hour.hour, row.messages) for row in rows] == [
        ("billing", "orders", "given up after 16 retries", 12, 1),
        ("billing", "orders", "no stock", 12, 1),
        ("billing", "orders", "given up after 16 retries", 14, 1),
    ]


def test_rates_and_the_time_to_catch_up(spark: SparkSession) -> None:
    def samples(queue: int, committed: int, end: int, second: int) -> lag.LagSample:
        at = START + timedelta(seconds=second)
        return lag.LagSample(at, "g", "orders", "a", queue, committed, end, end - committed)

    taken = [
        samples(0, 100, 200, 0), samples(0, 160, 220, 10),
        samples(1, 0, 50, 0), samples(1, 0, 80, 10),
        samples(2, 70, 70, 0), samples(2, 80, 80, 10),
    ]  # fmt: skip
    rows = lag.summary(spark.createDataFrame(taken, lag.SCHEMA)).orderBy("queueId").collect()
    assert [(row["lag"], row["produced/s"], row["consumed/s"], row["caught up in s"]) for row in rows] == [
        (60, 2.0, 6.0, 15.0),
        (80, 3.0, 0.0, None),
        (0, 1.0, 1.0, 0.0),
    ]


def test_latencies_of_traces(spark: SparkSession) -> None:
    records = []
    for number in range(100):
        at, key = 1_000_000 + number * 10, f"ID{number}"
        records += [
            Pub(at, "R", "shop", "orders", key, None, None, "h", 10, 3, TracedMessage.NORMAL, None, True),
            SubBefore(at + number + 1, "R", "billing", f"r{number}", key, 0, None),
            SubAfter(f"r{number}", key, 7, True, None, 0, at + 20, "billing"),
            SubBefore(at + 5000, "R", "billing", f"again{number}", key, 1, None),
        ]
    bodies = ["".join(map(encode_trace, records[start : start + 40])).encode() for start in range(0, 400, 40)]
    frame = messages(spark, *({"body": body} for body in bodies), {"body": b"no trace at all"})
    found = {row.what: row for row in trace.latencies(trace.traces(frame)).collect()}
    assert {what: (row.topic, row.group, row.messages) for what, row in found.items()} == {
        "send": ("orders", "shop", 100),
        "end to end": ("orders", "billing", 100),
        "handle": ("orders", "billing", 100),
    }
    assert (found["end to end"].p50, found["end to end"].p99, found["end to end"].max) == (50, 99, 100)
    assert (found["send"].p50, found["handle"].p99) == (3, 7)


def test_what_goes_along_when_a_message_is_sent_again(spark: SparkSession) -> None:
    properties = {"UNIQ_KEY": "U", "colour": "red", "DELAY": "3", "TRAN_MSG": "true", "__SHARDINGKEY": "s", "TAGS": "t"}
    frame = messages(spark, {"properties": properties, "tags": "t", "queueId": 2})
    row = sendable(frame, "copy").collect()[0]
    assert (row.topic, row.tags, row.shardingKey) == ("copy", "t", "s")
    assert row.properties == {"UNIQ_KEY": "U", "colour": "red"}
    assert sendable(frame, keep_queues=True).collect()[0].queueId == 2


def test_a_rate_must_be_one(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        send(messages(spark), "127.0.0.1:1", "w", {}, rate=0)


def test_a_condition_that_is_none_is_explained(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="'colour = 1' is not valid"):
        selected(messages(spark), "colour = 1")


def test_a_failure_on_an_executor_says_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="is no store"), explained():
        Origin(path=str(tmp_path)).batch(spark).count()


def test_a_table_for_people(spark: SparkSession) -> None:
    outcome = Outcome.of("numbers", spark.range(5).selectExpr("id", "id * 1000 AS big"), 3)
    assert (outcome.columns, outcome.rows[-1]) == (["id", "big"], [2, 2000])
    assert outcome.notes == ["only the first 3 rows are shown"]


@pytest.mark.parametrize("text", ["1 minute", "90 SECONDS", "1 hour 30 minutes", " 500 milliseconds ", "2 weeks"])
def test_lengths_of_time_that_spark_takes(text: str) -> None:
    assert medallion.GoldSettings(window=text, late_after=text).window == text


@pytest.mark.parametrize("text", ["", "minute", "5", "5m", "1 minute,", "1 minute2 hours", "1 minute') OR TRUE"])
def test_what_is_no_length_of_time_is_told_before_anything_is_done(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a length of time"):
        medallion.GoldSettings(late_after=text)
