"""Tables of topics in Iceberg, without its runtime for Spark: exactly once through a kill, other schemas, other readers."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.clusters import worker_python
from tests.spark.live import send, stored
from tests.spark.pipelines.test_topic_tables import ignore, orders
from tests.support.admin import create_topic
from tests.support.patience import PATIENCE_S

from rocketline.errors import ConfigError
from rocketline.pipelines.archive import restore
from rocketline.pipelines.failures import PipelineFailed
from rocketline.pipelines.tables.auditing import audit_table, stored_messages
from rocketline.pipelines.tables.formats import State, table_in
from rocketline.pipelines.tables.iceberg import IcebergTable
from rocketline.pipelines.tables.table import TopicTable, keep_table
from rocketline.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(spark: SparkSession, wanted: TopicTable, name: str = "") -> list[Any]:
    found = IcebergTable(spark, wanted.target, wanted.topic + name).read()
    assert found is not None
    return found.collect()


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
    with pytest.raises(PipelineFailed, match="another job changed it meanwhile"):
        stale.append(found.limit(1), State(99, {}))
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


def test_what_iceberg_cannot_do_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--merge-key needs --format delta: tables of other formats only grow"):
        TopicTable("127.0.0.1:1", "T", str(tmp_path), "iceberg", merge_key=("id",))
    with pytest.raises(ConfigError, match="give a folder of this machine, or catalog:NAME"):
        IcebergTable(spark, "s3://bucket/x", "T")
    wanted = TopicTable("127.0.0.1:1", "T", str(tmp_path), "iceberg")  # nobody is asked there
    with pytest.raises(ConfigError, match="cannot be compacted from here"):
        keep_table(spark, wanted, ignore, compact=True)
    with pytest.raises(ConfigError, match="--format orc: there are parquet, delta, iceberg"):
        table_in(spark, str(tmp_path), "T", "orc")
