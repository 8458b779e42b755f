"""Tables of topics in Parquet: every message once, through killed runs, bodies that do not fit, and other schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.live import send

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.auditing import audit_table, stored_messages
from rocketline.pipelines.tables.bodies import evolved
from rocketline.pipelines.tables.formats import ParquetTable, table_in
from rocketline.pipelines.tables.runtimes import format_settings
from rocketline.pipelines.tables.table import TopicTable, keep_table
from rocketline.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def ignore(text: str) -> None:
    pass


def orders(*numbers: int, **more: Any) -> list[bytes]:
    return [json.dumps({"id": number, "customer": f"c-{number % 3}", **more}).encode() for number in numbers]


def rows_of(spark: SparkSession, wanted: TopicTable, name: str = "") -> DataFrame:
    found = table_in(spark, wanted.target, f"{wanted.topic}{name}", wanted.table_format).read()
    assert found is not None
    return found


class Killed(BaseException):
    pass


def test_every_message_once_though_runs_are_killed(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = TopicTable(
        cluster.namesrv, topic, str(tmp_path), "parquet", "json", "id int, customer string", per_batch=60
    )
    send(cluster.namesrv, topic, [*orders(*range(50)), b"no JSON", b'{"id": "many"}'])
    note = ParquetTable._note

    def die(table: ParquetTable, *rest: Any) -> None:
        if table.path.endswith(dies_at):
            raise Killed
        note(table, *rest)

    monkeypatch.setattr(ParquetTable, "_note", die)
    # The rejected rows are there, the others not yet; then rows of both are written, and do not count.
    for dies_at in (topic, "rejected", topic):
        if dies_at == "rejected":
            send(cluster.namesrv, topic, [*orders(*range(50, 90)), b"nor this"])
        with pytest.raises(Killed):
            keep_table(spark, wanted, ignore)
    monkeypatch.undo()
    keep_table(spark, wanted, ignore)
    assert sorted(row.id for row in rows_of(spark, wanted).collect()) == [*range(90)]
    rejected = rows_of(spark, wanted, "_rejected").collect()
    assert sorted(bytes(row.message.body) for row in rejected) == [b"no JSON", b"nor this", b'{"id": "many"}']
    assert "no JSON of the schema struct<id:int,customer:string>" in rejected[0].error
    assert keep_table(spark, wanted, ignore).notes[0] == "90 rows, 3 rejected"

    audited = audit_table(spark, wanted, ignore)
    assert (audited.is_bad, sum(row[2] for row in audited.rows)) == (False, 93)
    again = stored_messages(spark, wanted.target, [topic], "parquet")
    assert again.where("body = cast('no JSON' AS binary)").count() == 1

    (first, *_) = sorted((tmp_path / topic / "rows").glob("batch=*/day=*/*.parquet"))
    first.unlink()
    first.with_name(f".{first.name}.crc").unlink(missing_ok=True)
    audited = audit_table(spark, wanted, ignore)
    assert audited.is_bad
    assert sum(row[4] for row in audited.rows) > 0


def test_columns_may_be_added_widened_and_left_out(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    def add(schema: str, bodies: list[bytes]) -> None:
        send(cluster.namesrv, topic, bodies)
        keep_table(spark, TopicTable(cluster.namesrv, topic, str(tmp_path), "parquet", "json", schema), ignore)

    add("id int, customer string", orders(1))
    add("id bigint, customer string, amount double", orders(1 << 40, amount=2.5))
    add("id int, amount double", orders(3, amount=3.5))
    wanted = TopicTable(cluster.namesrv, topic, str(tmp_path), "parquet")
    with pytest.raises(ConfigError, match="column 'customer' of the table is string, the schema says int"):
        add("id int, customer int", orders(4))
    expected = [(1, "c-1", None), (3, None, 3.5), (1 << 40, f"c-{(1 << 40) % 3}", 2.5)]
    for compact in (False, True):
        if compact:
            table_in(spark, str(tmp_path), topic, "parquet").compact()
        rows = rows_of(spark, wanted)
        assert [field.simpleString() for field in rows.schema[1:-1]] == [
            "id:bigint",
            "customer:string",
            "amount:double",
        ]
        assert sorted((row.id, row.customer, row.amount) for row in rows.collect()) == expected
    assert len(list((tmp_path / topic / "rows").iterdir())) == 1, "one folder is left of four batches"


def test_rules_of_a_schema(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    def after(old: str, new: str) -> str:
        return evolved(StructType.fromDDL(old), StructType.fromDDL(new)).simpleString()

    assert after("a tinyint, b double", "A bigint, b float, c date") == "struct<a:bigint,b:double,c:date>"
    assert after("s struct<x int>", "s struct<x bigint, y string>") == "struct<s:struct<x:bigint,y:string>>"
    with pytest.raises(ConfigError, match="column 'x' of the table is int"):
        after("s struct<x int>", "s struct<x string>")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schema": "a int"}, "a schema has no effect on --body raw"),
        ({"body": "json"}, "needs --schema"),
        ({"body": "xml"}, "--body xml: there are raw, json"),
        ({"body": "json", "schema": "a wrong type"}, "is not valid"),
        ({"body": "json", "schema": "message int"}, "column 'message'"),
        ({"merge_key": ("id",)}, "needs --format delta"),
        ({"delete_when": "true"}, "without --merge-key"),
    ],
)
def test_settings_that_do_not_fit(spark: SparkSession, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        keep_table(spark, TopicTable("127.0.0.1:1", "T", "/nowhere", "parquet", **options), ignore)


def test_runtimes_must_fit_the_version_of_spark() -> None:
    assert format_settings("parquet", "4.3.0", {}) == {}
    assert "spark.jars.packages" in format_settings("delta", "4.2.1", {})
    with pytest.raises(
        ConfigError, match=r"Delta Lake has no runtime that works on Spark 4\.3\.0: pip install 'pyspark==4\.2"
    ):
        format_settings("delta", "4.3.0", {})
    own = format_settings("delta", "4.3.0", {"spark.jars": "mine.jar"})
    assert "spark.sql.extensions" in own
    assert "spark.jars.packages" not in own
    assert format_settings("iceberg", "4.3.0", {}) == {}, "no runtime is needed"
    with pytest.raises(ConfigError, match="--format orc: there are parquet, delta, iceberg"):
        format_settings("orc", "4.2.1", {})
