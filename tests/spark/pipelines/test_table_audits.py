"""What an audit finds in a table: rows twice, different and unexpected; and tables as they were."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.live import send, stored
from tests.spark.pipelines.test_topic_tables import ignore, rows_of
from tests.support.admin import create_topic

from rocketline.errors import ConfigError
from rocketline.pipelines.origin import Origin
from rocketline.pipelines.replay import replay
from rocketline.pipelines.tables.as_of import point
from rocketline.pipelines.tables.auditing import Window, audit_table, stored_messages
from rocketline.pipelines.tables.formats import State, table_in
from rocketline.pipelines.tables.table import TopicTable, keep_table
from rocketline.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("missing", "unexpected", "twice", "different")


def test_rows_twice_different_and_unexpected(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    def found(wanted: TopicTable, window: Window | None = None) -> tuple[bool, dict[str, int]]:
        outcome = audit_table(spark, wanted, ignore, window=window or Window())
        counts = {name: sum(row[outcome.columns.index(name)] for row in outcome.rows) for name in COLUMNS}
        return outcome.is_bad, {name: count for name, count in counts.items() if count}

    def changed(name: str, rows: DataFrame) -> TopicTable:
        table_in(spark, str(tmp_path / name), topic, "parquet").append(rows, State(0, position))
        return TopicTable(cluster.namesrv, topic, str(tmp_path / name), "parquet")

    send(cluster.namesrv, topic, [b"%d" % number for number in range(20)], 0)
    whole = TopicTable(cluster.namesrv, topic, str(tmp_path), "parquet")
    keep_table(spark, whole, ignore)
    rows, position = rows_of(spark, whole), table_in(spark, str(tmp_path), topic, "parquet").state().position
    assert found(whole) == (False, {})
    offset = f.col("message.queueOffset")
    assert found(changed("twice", rows.unionByName(rows.where(offset < 3)))) == (True, {"twice": 3})
    other = f.when(offset == 4, f.lit(b"other")).otherwise(f.col("message.body"))
    different = changed("different", rows.withColumn("message", f.col("message").withField("body", other)))
    assert found(different) == (True, {"different": 1})
    beyond = f.col("message").withField("queueOffset", offset + 1000)
    unexpected = rows.unionByName(rows.where(offset == 5).withColumn("message", beyond))
    assert found(changed("unexpected", unexpected)) == (True, {"unexpected": 1})
    gone = f.col("message").withField("queueId", f.lit(99))
    apart = changed("gone", rows.unionByName(rows.where(offset == 5).withColumn("message", gone)))
    assert audit_table(spark, apart, ignore).notes[0] == "1 rows are of queues that the topic does not have now"
    assert found(changed("missing", rows.where(offset != 7))) == (True, {"missing": 1})

    times = sorted(row.at for row in rows.select(f.unix_millis("message.storeTimestamp").alias("at")).collect())
    assert found(different, Window(times[-1] + 1)) == (False, {}), "nothing was stored since"
    assert found(different, Window.parse(str(times[0]), str(times[-1] + 1))) == (True, {"different": 1})


def test_iceberg_tables_as_they_were(spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    wanted = TopicTable(cluster.namesrv, topic, str(tmp_path), "iceberg", "json", "id int")
    for bodies in ([b'{"id": 1}', b"bad"], [b'{"id": 2}', b"worse"]):
        send(cluster.namesrv, topic, bodies)
        keep_table(spark, wanted, ignore)
    catalog = load_catalog("rocketline", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
    first = catalog.load_table(("rocketline", topic)).history()[0]
    catalog.close()
    then = stored_messages(spark, str(tmp_path), [topic], "iceberg", str(first.snapshot_id))
    assert {bytes(row.body) for row in then.collect()} == {b'{"id": 1}', b"bad"}
    audited = audit_table(spark, wanted, ignore, as_of=str(first.snapshot_id))
    assert (audited.is_bad, sum(row[2] for row in audited.rows)) == (False, 2)
    with pytest.raises(ConfigError, match="has no snapshot 7; the newest are "):
        stored_messages(spark, str(tmp_path), [topic], "iceberg", "7")
    with pytest.raises(ConfigError, match="is not a table of format iceberg at 2020-01-01"):
        stored_messages(spark, str(tmp_path), [topic], "iceberg", "2020-01-01")

    create_topic(cluster.brokers[0].address, f"{topic}_again", 2)
    origin = Origin((topic,), path=str(tmp_path))
    replay(spark, origin, cluster.namesrv, ignore, to_topic=f"{topic}_again", stored=then)
    assert sorted(view.body for view in stored(cluster.namesrv, f"{topic}_again")) == [b"bad", b'{"id": 1}']


def test_points_in_time() -> None:
    assert point("12") == (12, 0)
    assert point("1970-01-01T01:00:00+01:00") == point("1970-01-01") == (None, 0)
    with pytest.raises(ConfigError, match="--as-of yesterday: the number of a version"):
        point("yesterday")


def test_parquet_tables_keep_no_history(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tables of parquet keep no history"):
        stored_messages(spark, str(tmp_path), ["T"], "parquet", "1")
