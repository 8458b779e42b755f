"""`spark.read.format("rocketmq-log")` in a real session, on folders that Apache's broker wrote."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.store_files import walk_log

from rocketline.message import MessageView
from rocketline.protocol.records import decode_message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("rocketmq-log").options(**options).load(str(path))


def views(root: Path) -> Iterator[MessageView]:
    """What a consumer would see of each record."""
    files = {int(file.name): file.read_bytes() for file in (root / "commitlog").iterdir()}
    for entry in walk_log(root).records:
        base = max(base for base in files if base <= entry.log_offset)
        yield decode_message(files[base], entry.log_offset - base, len(files[base]))


def test_every_row_of_apaches_store_is_what_a_consumer_would_see(
    spark: SparkSession, golden: Callable[[str], Path]
) -> None:
    root = golden("clean")
    found = {row.commitLogOffset: row for row in load(spark, root, partitionBytes="300k").collect()}
    expected = list(views(root))
    assert len(found) == len(expected)
    for view in expected:
        row = found[view.log_offset]
        assert (row.topic, row.queueId, row.queueOffset) == (view.topic, view.queue_id, view.queue_offset)
        assert (row.msgId, row.tags, bytes(row.body)) == (view.message_id, view.tag, view.body)
        assert row.properties == view.properties
        assert row.storeTimestamp.replace(tzinfo=UTC) == EPOCH + timedelta(milliseconds=view.store_ms)
        assert (row.bornHost, row.reconsumeTimes, row.sysFlag) == (view.born_host, view.reconsume_times, view.sys_flag)


@pytest.mark.parametrize("name", ["killed", "features"])
def test_counts_by_topic(spark: SparkSession, golden: Callable[[str], Path], name: str) -> None:
    root = golden(name)
    counted = {row["topic"]: row["count"] for row in load(spark, root).groupBy("topic").count().collect()}
    assert counted == Counter(entry.topic for entry in walk_log(root).records)


def test_a_commit_log_alone_with_a_narrow_schema_in_sql(spark: SparkSession, golden: Callable[[str], Path]) -> None:
    root = golden("clean")
    expected = Counter(entry.queue_id for entry in walk_log(root).records if entry.topic == "S_Beta")
    shutil.move(root / "commitlog", root.parent / "bare")
    spark.read.format("rocketmq-log").schema("queueId int, flag int").option("topic", "S_Beta").load(
        str(root.parent / "bare")
    ).createOrReplaceTempView("beta")
    assert {
        row.queueId: row.n for row in spark.sql("SELECT queueId, count(*) n FROM beta GROUP BY 1").collect()
    } == expected


def test_several_brokers_in_one_folder_are_told_apart(spark: SparkSession, golden: Callable[[str], Path]) -> None:
    root = golden("clean")
    count = len(walk_log(root).records)
    data = root.parent / "data"
    data.mkdir()
    shutil.copytree(root, data / "broker-a")
    shutil.move(root, data / "broker-b")
    counted = {row["brokerName"]: row["count"] for row in load(spark, data).groupBy("brokerName").count().collect()}
    assert counted == {"broker-a": count, "broker-b": count}


def test_damage_fails_the_job_or_is_reported(spark: SparkSession, golden: Callable[[str], Path]) -> None:
    root = golden("clean")
    records = walk_log(root).records
    file = root / "commitlog" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    broken = records[10]
    content[broken.log_offset + 4] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(Exception, match=f"log offset {broken.log_offset} to {records[11].log_offset}"):
        load(spark, root).count()
    told = load(spark, root, onDamage="report").where("damage IS NOT NULL").collect()
    assert [(row.commitLogOffset, row.damagedBytes) for row in told] == [(broken.log_offset, broken.size)]
    assert load(spark, root, onDamage="skip").count() == len(records) - 1


def test_a_window_of_time_and_offsets(spark: SparkSession, golden: Callable[[str], Path]) -> None:
    root = golden("clean")
    records = walk_log(root).records
    since, until = records[500].store_ms, records[900].store_ms
    options = {
        "startingTimestamp": str(since),
        "endingTimestamp": str(until),
        "endingLogOffset": str(records[800].log_offset),
    }
    expected = sum(since <= entry.store_ms < until for entry in records[:800])
    assert expected > 100
    assert load(spark, root, **options).count() == expected


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"topc": "a"}, "did you mean 'topic'"), ({"onDamage": "report"}, "is no store: .*it holds nothing")],
)
def test_wrong_options_and_folders_fail_with_what_to_do(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(Exception, match=problem):
        load(spark, tmp_path, **options).count()


def test_a_store_without_messages_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert load(spark, tmp_path).collect() == []
