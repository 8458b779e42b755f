"""Tables of topics in Iceberg, without its runtime for Spark: exactly once through a kill, other schemas, other readers,
the latest row of each key, few files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.clusters import worker_python
from tests.spark.live import send, stored
from tests.spark.pipelines.test_topic_tables import ignore, orders
from tests.support.admin import create_topic
from tests.support.patience import PATIENCE_S

from rocketline.clock import ManualClock
from rocketline.errors import ConfigError
from rocketline.pipelines.archive import restore
from rocketline.pipelines.failures import PipelineFailed
from rocketline.pipelines.tables import iceberg, iceberg_files
from rocketline.pipelines.tables.auditing import audit_table, stored_messages
from rocketline.pipelines.tables.formats import State, table_in
from rocketline.pipelines.tables.iceberg import IcebergTable
from rocketline.pipelines.tables.iceberg_files import remove_unnamed
from rocketline.pipelines.tables.table import TopicTable, keep_table
from rocketline.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_frame(spark: SparkSession, wanted: TopicTable, name: str = "") -> DataFrame:
    found = IcebergTable(spark, wanted.target, wanted.topic + name).read()
    assert found is not None
    return found


def rows(spark: SparkSession, wanted: TopicTable, name: str = "") -> list[Any]:
    return rows_frame(spark, wanted, name).collect()


def test_a_driver_that_is_killed_before_its_commit_loses_and_doubles_nothing(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(cluster.namesrv, topic, [*orders(*range(90)), b"no JSON"])
    monkeypatch.setenv("PYSPARK_PYTHON", worker_python())
    command = [sys.executable, "-m", "tests.spark.jobs.iceberg_then_die", cluster.namesrv, topic, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, start_new_session=True)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    folders = list((tmp_path / "rocketline" / topic / "data").glob("batch-1-*"))
    assert len(folders) == 1, "files that are no part of the table"
    wanted = TopicTable(cluster.namesrv, topic, str(tmp_path), "iceberg", "json", "id int, customer string")
    before = {row.id for row in rows(spark, wanted)}
    assert 30 <= len(before) <= 40, "one batch counts"

    keep_table(spark, wanted, ignore)
    assert sorted(row.id for row in rows(spark, wanted)) == [*range(90)]
    assert [bytes(row.message.body) for row in rows(spark, wanted, "_rejected")] == [b"no JSON"]
    audited = audit_table(spark, wanted, ignore)
    assert (audited.is_bad, sum(row[2] for row in audited.rows)) == (False, 91)

    create_topic(cluster.brokers[0].address, f"{topic}_copy", 2)
    messages = stored_messages(spark, wanted.target, [topic], "iceberg")
    restore(spark, wanted.target, messages, cluster.namesrv, ignore, to_topic=f"{topic}_copy", where="queueOffset < 5")
    assert len(stored(cluster.namesrv, f"{topic}_copy")) == messages.where("queueOffset < 5").count() > 0

    stale = IcebergTable(spark, wanted.target, topic)
    found = stale.read()
    assert found is not None
    write = IcebergTable._write

    def overtaken(table: IcebergTable, frame: Any, folder: str) -> list[str]:
        monkeypatch.setattr(IcebergTable, "_write", write)
        send(cluster.namesrv, topic, orders(200))
        keep_table(spark, wanted, ignore)
        return write(table, frame, folder)

    monkeypatch.setattr(IcebergTable, "_write", overtaken)
    following = State(stale.state().batch + 1, {})
    with pytest.raises(PipelineFailed, match="another job changed it meanwhile"):
        stale.append(found.limit(1), following)
    with pytest.raises(PipelineFailed, match=f"another job changed it meanwhile .it has batch {following.batch}"):
        stale.append(found.limit(1), following)
    assert sorted(row.id for row in rows(spark, wanted)) == [*range(90), 200]
    send(cluster.namesrv, topic, [b"all of a batch is bad"])
    keep_table(spark, wanted, ignore)
    assert sum(stale.state().position.values()) == 93, "and read"


def test_columns_change_and_pyiceberg_alone_reads_the_same(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    def add(schema: str, bodies: list[bytes]) -> None:
        send(cluster.namesrv, topic, bodies)
        keep_table(spark, TopicTable(cluster.namesrv, topic, str(tmp_path), "iceberg", "json", schema), ignore)

    add("id smallint, customer string", orders(1))
    add("id bigint, customer string, amount double", orders(1 << 40, amount=2.5))
    add("id int, amount double", orders(3, amount=3.5))
    expected = [(1, "c-1", None), (3, None, 3.5), (1 << 40, f"c-{(1 << 40) % 3}", 2.5)]
    wanted = TopicTable(cluster.namesrv, topic, str(tmp_path), "iceberg")
    assert sorted((row.id, row.customer, row.amount) for row in rows(spark, wanted)) == expected

    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("rocketline", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
    found = catalog.load_table(("rocketline", topic)).scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["customer"], row["amount"]) for row in found) == expected
    catalog.close()


def test_columns_that_another_program_renamed_or_dropped_are_not_lost(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    wanted = TopicTable(
        cluster.namesrv,
        topic,
        str(tmp_path),
        "iceberg",
        "json",
        "id int, customer string, s struct<x int>",
        per_batch=2,
    )
    send(cluster.namesrv, topic, orders(*range(4), s={"x": 7}))
    keep_table(spark, wanted, ignore)
    other = IcebergTable(spark, wanted.target, topic)._table()

    def rename(name: str, to: str) -> None:
        with other.update_schema() as schema:
            schema.rename_column(name, to)

    for name, to in (("customer", "buyer"), ("s.x", "y"), ("message.body", "bytes")):
        rename(name, to)
        full = f"{name.rpartition('.')[0]}.{to}".lstrip(".")
        for work in (
            lambda: rows(spark, wanted),
            lambda: keep_table(spark, wanted, ignore, compact=True),
            lambda: IcebergTable(spark, wanted.target, topic).compact(),
            lambda: stored_messages(spark, wanted.target, [topic], "iceberg"),
        ):
            with pytest.raises(ConfigError, match=f"renamed column '{name}' to '{full}'"):
                work()
        rename(full, name.rpartition(".")[2])
    keep_table(spark, wanted, ignore, compact=True)
    found = [(f"c-{number % 3}", 7) for number in range(4)]
    assert sorted((row.customer, row.s.x) for row in rows(spark, wanted)) == sorted(found)
    assert sorted(other.refresh().scan().to_arrow()["customer"].to_pylist()) == sorted(name for name, _ in found)

    with other.update_schema() as schema:
        schema.delete_column("customer")
    send(cluster.namesrv, topic, orders(5))
    with pytest.raises(ConfigError, match="dropped column 'customer', and its old values would come back"):
        keep_table(spark, wanted, ignore)
    keep_table(spark, replace(wanted, schema="id int"), ignore)
    assert [row.id for row in rows(spark, wanted)].count(5) == 1


def files(table: IcebergTable) -> set[str]:
    return {task.file.file_path for task in table._table().scan().plan_files()}


def test_the_latest_row_of_each_key(spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    schema = "id int, op string, v int"
    wanted = TopicTable(
        cluster.namesrv, topic, str(tmp_path), "iceberg", "json", schema, merge_key=("id",), delete_when="op = 'd'"
    )
    table = IcebergTable(spark, wanted.target, topic)

    def change(*changes: dict[str, Any], schema: str = schema) -> list[tuple[Any, ...]]:
        send(cluster.namesrv, topic, [json.dumps(each).encode() for each in changes], queue_id=0)
        keep_table(spark, replace(wanted, schema=schema), ignore)
        return sorted((row.id, row.v) for row in rows(spark, wanted))

    assert change({"id": 7, "op": "d"}) == [], "nothing is there to delete"
    first = change(*({"id": number % 4, "op": "u", "v": number} for number in range(12)))
    assert first == [(0, 8), (1, 9), (2, 10), (3, 11)]
    untouched = files(table)
    assert change({"id": 9, "op": "u", "v": 1}, {"id": 8, "op": "u", "v": 1}) == [*first, (8, 1), (9, 1)]
    assert change({"id": 9, "op": "u", "v": 2}, {"id": 8, "op": "d"}) == [*first, (9, 2)]
    assert untouched < files(table), "a file without one of the keys stays as it is"
    wide = "id int, op string, v bigint, why string"
    assert change({"id": 0, "op": "d"}, {"id": 1, "op": "u", "v": 1 << 40}, schema=wide) == [
        (1, 1 << 40), (2, 10), (3, 11), (9, 2),
    ]  # fmt: skip
    assert sum(table.state().position.values()) == 19
    assert {row.why for row in rows(spark, wanted)} == {None}
    assert sorted(table._table().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 9], "as other readers see it"
    audited = audit_table(spark, wanted, ignore)
    assert (audited.is_bad, sum(row[2] for row in audited.rows)) == (False, 4)
    assert audited.notes[-1] == "the table has the latest message of each id in the log, with the same bytes"
    stale, state = rows_frame(spark, wanted).withColumn("_deleted", f.col("id") == 9), table.state()
    table.merge(stale, replace(state, batch=state.batch + 1), ("id",), "_deleted")
    audited = audit_table(spark, wanted, ignore)
    assert (audited.is_bad, sum(row[4] for row in audited.rows)) == (True, 1), "a row is missing"
    with pytest.raises(
        ConfigError, match=r"the latest row of each id, not every message, so it is not compared as it was"
    ):
        audit_table(spark, wanted, ignore, as_of=str(table._table().current_snapshot().snapshot_id))
    with pytest.raises(ConfigError, match="has the latest row of each id: give the same --merge-key"):
        keep_table(spark, replace(wanted, merge_key=(), delete_when=None), ignore)
    (then, *_) = [each for each in table._table().history() if len(as_it_was(table, each.snapshot_id)) == 6]
    assert (8, 1) in as_it_was(table, then.snapshot_id)


def as_it_was(table: IcebergTable, snapshot: int) -> list[tuple[int, int]]:
    past = table.past(str(snapshot))
    assert past is not None
    return [(row.id, row.v) for row in past.rows.collect()]


def test_a_change_that_is_older_than_the_row_of_its_key_changes_nothing(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    wanted = TopicTable(cluster.namesrv, topic, str(tmp_path), "iceberg", "json", "id int, v int", merge_key=("id",))
    send(cluster.namesrv, topic, [b'{"id": 1, "v": 1}', b'{"v": 2}'])
    keep_table(spark, wanted, ignore)
    table = IcebergTable(spark, wanted.target, topic)
    there = table.read()
    assert there is not None
    before = [(None, 2), (1, 1)]
    message, offset = f.col("message"), f.col("message.queueOffset")
    for stored_ms, further, deleted, expected in (
        (1, -1, False, before),
        (1, -1, True, before),
        (1, 1, False, [(None, -1), (1, -1)]),  # the clock was set back
        (1 << 42, -1, True, []),  # the topic was created again
    ):
        at = message.withField("storeTimestamp", f.timestamp_millis(f.lit(stored_ms)))
        at = at.withField("queueOffset", offset + further)
        changes = there.withColumns({"message": at, "v": f.lit(-1), "_deleted": f.lit(deleted)})
        state = table.state()
        table.merge(changes, State(state.batch + 1, state.position), ("id",), "_deleted")
        assert sorted(((row.id, row.v) for row in rows(spark, wanted)), key=str, reverse=True) == expected


def test_small_files_become_few(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = TopicTable(cluster.namesrv, topic, str(tmp_path), "iceberg", "json", "id int", per_batch=5)
    send(cluster.namesrv, topic, orders(*range(20)))
    keep_table(spark, wanted, ignore)
    table = IcebergTable(spark, wanted.target, topic)
    before, state = files(table), table.state()
    assert len(before) >= 4
    keep_table(spark, wanted, ignore, compact=True)
    assert len(files(table)) == len({row.day for row in rows(spark, wanted)})
    assert not files(table) & before
    assert table.state() == state
    table.compact()
    send(cluster.namesrv, topic, orders(20))
    keep_table(spark, wanted, ignore)
    assert sorted(row.id for row in rows(spark, wanted)) == [*range(21)]
    assert not audit_table(spark, wanted, ignore).is_bad
    assert len(table._table().history()) == 6, "nothing to do is no snapshot"

    write = IcebergTable._write

    def overtaken(table: IcebergTable, frame: Any, folder: str) -> list[str]:
        monkeypatch.setattr(IcebergTable, "_write", write)
        send(cluster.namesrv, topic, orders(21))
        keep_table(spark, wanted, ignore)
        return write(table, frame, folder)

    monkeypatch.setattr(IcebergTable, "_write", overtaken)
    with pytest.raises(PipelineFailed, match="another job changed it meanwhile"):
        table.compact()
    assert sorted(row.id for row in rows(spark, wanted)) == [*range(22)]
    monkeypatch.setattr(iceberg, "COMPACT_EVERY", 2)
    monkeypatch.setattr(iceberg, "MOST_SNAPSHOTS", 3)
    table.tidy(5)
    assert len(table._table().snapshots()) > 3, "snapshots that may still be read stay"
    monkeypatch.setattr(iceberg_files, "OLD_MS", 0)
    send(cluster.namesrv, topic, orders(22))
    keep_table(spark, wanted, ignore)
    table.tidy(4)
    assert len(files(table)) > 1
    table.tidy(5)
    assert (len(files(table)), len(table._table().snapshots())) == (1, 3)
    assert sorted(row.id for row in rows(spark, wanted)) == [*range(23)]
    assert not audit_table(spark, wanted, ignore).is_bad

    data = tmp_path / "rocketline" / topic / "data"
    killed, other = data / "batch-9-killed" / "_folder=x" / "part-0.parquet", data / "other" / "x.parquet"
    for path in (killed, other):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"rows of nobody")
    kept = {task.file.file_path for each in table._table().snapshots()
            for task in table._table().scan(snapshot_id=each.snapshot_id).plan_files()}  # fmt: skip
    assert remove_unnamed(table._table(), ManualClock(1)) == 0, "nothing is old"
    assert killed.exists()
    table.compact()
    assert {f"file://{path}" for path in data.glob("batch-*/*/*.parquet")} == kept
    assert [path.name for path in data.iterdir() if not any(path.rglob("*.parquet"))] == []
    assert other.exists(), "files of others stay"
    for each in table._table().snapshots():
        assert as_ids(table, each.snapshot_id)
    assert sorted(row.id for row in rows(spark, wanted)) == [*range(23)]
    assert not audit_table(spark, wanted, ignore).is_bad


def as_ids(table: IcebergTable, snapshot: int) -> list[int]:
    past = table.past(str(snapshot))
    assert past is not None
    return [row.id for row in past.rows.collect()]


def test_what_iceberg_cannot_do_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--merge-key needs --format delta or iceberg: tables of parquet only grow"):
        TopicTable("127.0.0.1:1", "T", str(tmp_path), "parquet", merge_key=("id",))
    with pytest.raises(ConfigError, match="give a folder of this machine, or catalog:NAME"):
        IcebergTable(spark, "s3://bucket/x", "T")
    with pytest.raises(ConfigError, match="--format orc: there are parquet, delta, iceberg"):
        table_in(spark, str(tmp_path), "T", "orc")
