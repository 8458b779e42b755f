"""A program for Delta's Spark: finishes a table that a killed job began, changes its columns, restores it, loses its log,
merges by key.

python -m tests.spark.jobs.delta_tables NAMESRV DIR JARS
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from tests.spark.clusters import quick
from tests.spark.live import send, stored

from rocketline.pipelines.archive import restore
from rocketline.pipelines.tables.auditing import audit_table, stored_messages
from rocketline.pipelines.tables.delta import DeltaTable
from rocketline.pipelines.tables.formats import table_in
from rocketline.pipelines.tables.runtimes import format_settings
from rocketline.pipelines.tables.table import TopicTable, keep_table
from rocketline.spark.sessions import open_session

ORDERS, CHANGES, NESTED = "orders", "changes", "nested"


def settings(jars: str) -> dict[str, str]:
    given = {
        **quick(),
        "spark.jars": jars,
        "spark.driver.memory": "700m",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    return {**given, **format_settings("delta", pyspark.__version__, given)}


def tell(text: str) -> None:
    print(text, flush=True)


def whole_topic(target: str) -> TopicTable:
    return TopicTable(sys.argv[1], ORDERS, target, "delta")


def bodies(*rows: dict[str, Any]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def forget_commits(spark: SparkSession, path: str) -> None:
    """What Delta Lake does after 30 days: commits before a checkpoint are gone, and with them the position."""
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    DeltaTable(spark, path).compact()
    log = Path(path) / "_delta_log"
    last = max(int(each.name.split(".")[0]) for each in log.glob("0*.checkpoint*"))
    for commit in log.glob("*.json"):
        if int(commit.stem) < last:
            commit.unlink()


def check_restored_tables(spark: SparkSession, target: str, run: Callable[[], None]) -> None:
    """Every message once, though the table goes back to an old version, and forgets its position."""
    table = DeltaTable(spark, f"{target}/{ORDERS}")
    whole = table.state()
    for undo in (
        lambda: spark.sql(f"RESTORE TABLE delta.`{table.path}` TO VERSION AS OF 1"),
        lambda: forget_commits(spark, table.path),
    ):
        undo()
        (newest,) = spark.sql(f"DESCRIBE HISTORY delta.`{table.path}` LIMIT 1").collect()
        now = table.past(str(newest.version))
        assert now is not None
        assert now.state == table.state()
        run()
        audited = audit_table(spark, whole_topic(target), tell)
        assert (audited.is_bad, sum(row[2] for row in audited.rows)) == (False, 302), audited
        assert table.state().position == whole.position


def check_old_files(spark: SparkSession, path: str) -> None:
    """Files that no version needs any more are removed after a time; here at once."""
    folder, table = Path(path), DeltaTable(spark, path)
    left = folder / "part-of-a-killed-run.parquet"
    left.write_bytes(b"rows of nobody")
    os.utime(left, (0, 0))
    before = {*folder.rglob("part-*.parquet")}
    table.compact()
    assert not left.exists()
    assert before - {left} <= {*folder.rglob("part-*.parquet")}, "old versions can be read for seven days"


def check_older_changes(spark: SparkSession, target: str) -> None:
    """A change that was stored before the row of its key changes nothing."""
    table = DeltaTable(spark, f"{target}/{CHANGES}")
    there = table.read()
    assert there is not None
    before = sorted(there.select("id", "v").collect())
    for deleted, further, expected in (
        (False, -1, before),
        (True, -1, before),
        (False, 1, [(1, -1), (2, -1), (3, -1)]),  # the clock was set back
    ):
        place = f.col("message").withField("queueOffset", f.col("message.queueOffset") + further)
        older = there.withColumn("message", place.withField("storeTimestamp", f.timestamp_millis(f.lit(1))))
        state = table.state()
        changes = older.withColumns({"v": f.lit(-1).cast("bigint"), "_deleted": f.lit(deleted)})
        table.merge(changes, replace(state, batch=state.batch + 1), ("id",), "_deleted")
        assert sorted(map(tuple, there.select("id", "v").collect())) == sorted(map(tuple, expected))


def main() -> None:
    namesrv, target, jars = sys.argv[1:]
    with open_session("delta", "local[2]", settings(jars)) as spark:

        def rows(topic: str) -> list[Any]:
            found = table_in(spark, target, topic, "delta").read()
            assert found is not None
            return found.collect()

        def run(topic: str, schema: str, **more: Any) -> None:
            keep_table(spark, TopicTable(namesrv, topic, target, "delta", "json", schema, **more), tell)

        run(ORDERS, "id int, customer string")
        assert sorted(row.id for row in rows(ORDERS)) == [*range(300)], "what the killed job began is complete"
        assert [bytes(row.message.body) for row in rows(f"{ORDERS}_rejected")] == [b"no JSON"]

        send(namesrv, ORDERS, bodies({"id": 1 << 40, "amount": 2.5}))
        run(ORDERS, "id bigint, amount double")
        (newest,) = [row for row in rows(ORDERS) if row.id == 1 << 40]
        assert (newest.customer, newest.amount) == (None, 2.5)
        table_in(spark, target, ORDERS, "delta").compact()
        audited = audit_table(spark, whole_topic(target), tell)
        assert (audited.is_bad, sum(row[2] for row in audited.rows)) == (False, 302), audited
        first = stored_messages(spark, target, [ORDERS], "delta", "0")
        assert 0 < first.count() < 30, "the first batch, with what was rejected by then"
        assert not audit_table(spark, whole_topic(target), tell, as_of="0").is_bad
        now = datetime.now(UTC).isoformat()
        assert stored_messages(spark, target, [ORDERS], "delta", now).count() == 302
        check_old_files(spark, f"{target}/{ORDERS}")
        check_restored_tables(spark, target, lambda: run(ORDERS, "id bigint, amount double"))
        messages = stored_messages(spark, target, [ORDERS], "delta")
        restore(spark, target, messages, namesrv, tell, to_topic="copy", where="queueOffset < 5")
        assert len(stored(namesrv, "copy")) == 10

        first = {"parts": [{"n": 1}], "of": {"a": {"d": 1.25}}}
        second = {"parts": [{"n": 1 << 40, "unit": "kg"}], "of": {"b": {"d": 123456.5, "e": 0.5}}}
        for body, schema in (
            (first, "parts array<struct<n int>>, of map<string, struct<d decimal(4,2)>>"),
            (second, "parts array<struct<n bigint, unit string>>, of map<string, struct<d decimal(12,2), e double>>"),
        ):
            send(namesrv, NESTED, bodies(body))
            run(NESTED, schema)
        assert sorted((row.parts[0].n, *(str(each.d) for each in row.of.values())) for row in rows(NESTED)) == [
            (1, "1.25"), (1 << 40, "123456.50"),
        ]  # fmt: skip

        merging = {"merge_key": ("id",), "delete_when": "op = 'd'"}
        send(namesrv, CHANGES, bodies(*({"id": n % 4, "op": "u", "v": n} for n in range(12))), queue_id=0)
        run(CHANGES, "id int, op string, v int", **merging)
        assert sorted((row.id, row.v) for row in rows(CHANGES)) == [(0, 8), (1, 9), (2, 10), (3, 11)]
        changes = [{"id": 0, "op": "d"}, {"id": 9, "op": "d"}, {"id": 1, "op": "u", "v": 1 << 40, "why": "more"}]
        send(namesrv, CHANGES, bodies(*changes), queue_id=0)
        run(CHANGES, "id int, op string, v bigint, why string", **merging)
        assert sorted((row.id, row.v, row.why) for row in rows(CHANGES)) == [
            (1, 1 << 40, "more"), (2, 10, None), (3, 11, None),
        ]  # fmt: skip
        send(namesrv, CHANGES, bodies({"id": 9, "op": "d"}), queue_id=0)
        run(CHANGES, "id int, op string, v bigint, why string", **merging)
        assert sum(table_in(spark, target, CHANGES, "delta").state().position.values()) == 16, (
            "nothing changed, but read"
        )
        audited = audit_table(spark, TopicTable(namesrv, CHANGES, target, "delta"), tell)
        assert (audited.is_bad, sum(row[2] for row in audited.rows)) == (False, 3), audited
        check_older_changes(spark, target)
    print("done")


if __name__ == "__main__":
    main()
