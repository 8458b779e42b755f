"""Tables of topics in Parquet: every message once, through killed runs, bodies that do not fit, and other schemas."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.clusters import as_conf, kill_when, quick
from tests.spark.conftest import ROOT
from tests.spark.live import have_queues, send
from tests.support.admin import create_topic, delete_topic

from rocketline.client.bulk.writer import BulkWriter
from rocketline.errors import ConfigError, ConnectFailed, RangeNotAvailable, RouteNotFound
from rocketline.message import Message
from rocketline.pipelines.failures import is_passing
from rocketline.pipelines.runs import RunRecord, read_runs
from rocketline.pipelines.tables import parquet, table
from rocketline.pipelines.tables.auditing import audit_table, stored_messages
from rocketline.pipelines.tables.bodies import _from_json, evolved
from rocketline.pipelines.tables.decoding.registry import Wire
from rocketline.pipelines.tables.decoding.rows import PROBLEM, VALUE
from rocketline.pipelines.tables.formats import State, table_in
from rocketline.pipelines.tables.parquet import ParquetTable
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

    def die(killed: ParquetTable, *rest: Any) -> None:
        if killed.path.endswith(dies_at):
            raise Killed
        note(killed, *rest)

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

    (first, *_) = sorted((tmp_path / topic / "rows").glob("part=*/day=*/*.parquet"))
    first.unlink()
    first.with_name(f".{first.name}.crc").unlink(missing_ok=True)
    audited = audit_table(spark, wanted, ignore)
    assert audited.is_bad
    assert sum(row[4] for row in audited.rows) > 0


def test_a_killed_driver_loses_and_doubles_nothing(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    send(cluster.namesrv, topic, [*orders(*range(300)), b"no JSON"])
    wanted = TopicTable(
        cluster.namesrv, topic, str(tmp_path), "parquet", "json", "id int, customer string", per_batch=20
    )
    command = [
        sys.executable, "-m", "rocketline", "pipeline", "table", str(tmp_path), "--namesrv", cluster.namesrv,
        "--topic", topic, "--format", "parquet", "--body", "json", "--schema", "id int, customer string",
        "--per-batch", "20", "--master", "local[1]", *as_conf(quick()), "--conf", "spark.driver.memory=700m",
    ]  # fmt: skip
    parts = tmp_path / topic / "rows"
    kill_when(lambda: (parts / "part=2").exists(), command, tmp_path / "job.log", {"PYTHONPATH": str(ROOT / "src")})
    assert not (parts / "part=14").exists(), "it was killed in the middle"
    keep_table(spark, wanted, ignore)
    assert sorted(row.id for row in rows_of(spark, wanted).collect()) == [*range(300)]
    assert rows_of(spark, wanted, "_rejected").count() == 1


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
    assert len(list((tmp_path / topic / "rows" / "part=3").glob("day=*/*.parquet"))) == 1


def test_fields_of_structs_in_arrays_and_maps_are_added_and_widened(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    small = "id int, parts array<struct<n int>>, of map<string, struct<d decimal(4,2)>>"
    large = "id int, parts array<struct<n bigint, unit string>>, of map<string, struct<d decimal(12,2), e double>>"
    first = {"parts": [{"n": 1}, {"n": 2}], "of": {"a": {"d": 1.25}}}
    second = {"parts": [{"n": 1 << 40, "unit": "kg"}], "of": {"b": {"d": 123456.5, "e": 0.5}}}
    formats = ("parquet", "iceberg")
    for schema, body in ((small, first), (large, second)):
        send(cluster.namesrv, topic, orders(1, **body))
        for each in formats:
            keep_table(spark, TopicTable(cluster.namesrv, topic, str(tmp_path / each), each, "json", schema), ignore)
    for each in formats:
        wanted = TopicTable(cluster.namesrv, topic, str(tmp_path / each), each)
        found = rows_of(spark, wanted).selectExpr("to_json(struct(parts, of)) AS text", "message.queueOffset AS at")
        assert {row.text for row in found.collect()} == {
            '{"parts":[{"n":1},{"n":2}],"of":{"a":{"d":1.25}}}',
            '{"parts":[{"n":1099511627776,"unit":"kg"}],"of":{"b":{"d":123456.50,"e":0.5}}}',
        }
        table_in(spark, wanted.target, topic, each).compact()
        assert rows_of(spark, wanted).where("of['a'].d = 1.25 OR parts[0].n = 1099511627776").count() == 2


def test_parts_of_the_same_size_are_merged_and_removed_later(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ALIKE", 3)
    wanted = TopicTable(
        cluster.namesrv, topic, str(tmp_path), "parquet", "json", "id int, customer string", per_batch=2
    )
    parts = tmp_path / topic / "rows"

    def add(*numbers: int) -> set[str]:
        send(cluster.namesrv, topic, [*orders(*numbers), b"no JSON"], queue_id=0)
        keep_table(spark, wanted, ignore)
        return {part.name for part in parts.iterdir()}

    assert add(0, 1, 2) == {"part=0", "part=1"}
    before = rows_of(spark, wanted)
    assert add(3, 4, 5) == {f"part={number}" for number in (0, 1, 2, 3, 4)}, "0, 1 and 2 are also in 3"
    assert sorted(row.id for row in before.collect()) == [0, 1, 2], "who reads the parts that were merged still can"
    left = add(6, 7, 8)
    assert "part=0" not in left
    assert sorted(row.id for row in rows_of(spark, wanted).collect()) == [*range(9)]
    assert rows_of(spark, wanted, "_rejected").count() == 3
    assert len(list((tmp_path / topic / "notes").iterdir())) == 2


def test_a_topic_that_was_created_again_has_new_rejected_rows(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    wanted = TopicTable(
        cluster.namesrv, topic, str(tmp_path), "parquet", "json", "`a ``quoted`` id` int", fail_on_loss=False
    )
    send(cluster.namesrv, topic, [b'{"a `quoted` id": 1}', b"old 1", b"old 2"], queue_id=0)
    keep_table(spark, wanted, ignore)
    address = cluster.brokers[0].address
    delete_topic(cluster.namesrv, address, topic)
    create_topic(address, topic, 2)
    send(cluster.namesrv, topic, [b"new", b'{"a `quoted` id": 2}'], queue_id=0)
    keep_table(spark, wanted, ignore)
    assert sorted(bytes(row.message.body) for row in rows_of(spark, wanted, "_rejected").collect()) == [
        b"new", b"old 1", b"old 2",
    ]  # fmt: skip
    assert sorted(row["a `quoted` id"] for row in rows_of(spark, wanted).collect()) == [1, 2]


def test_a_queue_that_is_added_after_planning_is_read_by_the_next_batch(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = TopicTable(cluster.namesrv, topic, str(tmp_path), "parquet")
    send(cluster.namesrv, topic, [b"1"], queue_id=0)
    plan = table._plan

    def late(*planning: Any) -> Any:
        planned = plan(*planning)
        monkeypatch.setattr(table, "_plan", plan)
        have_queues(cluster, topic, 3)
        send(cluster.namesrv, topic, [b"2"], queue_id=2)
        return planned

    monkeypatch.setattr(table, "_plan", late)
    keep_table(spark, wanted, ignore)
    assert sorted(bytes(row.message.body) for row in rows_of(spark, wanted).collect()) == [b"1", b"2"]


def test_a_table_is_followed_until_interrupted(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = TopicTable(cluster.namesrv, topic, str(tmp_path / "tables"), "parquet", per_batch=3)
    send(cluster.namesrv, topic, [b"1", b"2", b"3", b"4"])
    pauses = 0
    reads: list[str] = []
    newest = ParquetTable._newest

    def counting(each: ParquetTable) -> Any:
        reads.append(each.path)
        return newest(each)

    def pause(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 1:
            send(cluster.namesrv, topic, [b"5"])
        elif pauses == 3:
            reads.clear()
        elif pauses == 6:
            assert reads == [], "a table that nothing is added to is not read"
            raise KeyboardInterrupt

    monkeypatch.setattr(ParquetTable, "_newest", counting)
    monkeypatch.setattr(table, "_pause", pause)
    with RunRecord(tmp_path / "runs", "table"):
        outcome = keep_table(spark, wanted, ignore, follow=True)
        (run,) = read_runs(tmp_path / "runs")
    assert outcome.notes[0] == "5 rows, 0 rejected"
    assert (run.rows, run.behind) == (5, 0)


def test_a_table_is_followed_through_outages_and_not_through_losses(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, told, waits = "followed", [], []
    with LocalCluster(brokers=2) as cluster:
        names = [broker.name for broker in cluster.brokers]
        for broker in cluster.brokers:
            create_topic(broker.address, topic, 1)
        have_queues(cluster, topic, 1, brokers=2)

        def send_to(name: str, body: bytes) -> None:
            with BulkWriter(cluster.namesrv, group="fill") as writer:
                (queue,) = [queue for queue in writer.queues(topic) if queue.broker_name == name]
                writer.send(Message(topic, body), queue)
                writer.flush()

        def one_is_absent() -> None:
            send_to(names[1], b"unread for a while")
            cluster.stop_broker(names[1])
            send_to(names[0], b"from the other one")

        def all_are_back() -> None:
            for name in names:
                cluster.start_broker(name)
            send_to(names[1], b"from both")

        def is_shorter() -> None:
            address = cluster.brokers[0].address
            delete_topic(cluster.namesrv, address, topic)
            create_topic(address, topic, 1)
            have_queues(cluster, topic, 1, brokers=2)

        def nothing() -> None:
            pass

        steps = [one_is_absent, lambda: cluster.stop_broker(names[0]), nothing, nothing, all_are_back, is_shorter]
        for name in names:
            send_to(name, b"first")

        def pause(seconds: float) -> None:
            waits.append(seconds)
            steps.pop(0)()

        monkeypatch.setattr(table, "_pause", pause)
        wanted = TopicTable(cluster.namesrv, topic, str(tmp_path), "parquet")
        with pytest.raises(RangeNotAvailable, match="it was deleted and created again"):
            keep_table(spark, wanted, told.append, follow=True)
        found = sorted(bytes(row.message.body) for row in rows_of(spark, wanted).collect())
        assert found == [b"first", b"first", b"from both", b"from the other one", b"unread for a while"]
        assert waits == [2, 2, 4, 8, 16, 2]
    assert len([text for text in told if f"waiting for {names[1]}, not registered now" in text]) == 1
    assert len([text for text in told if "waiting for the cluster: " in text]) == 1
    assert len([text for text in told if "the cluster answers again" in text]) == 1


def test_a_topic_that_never_was_there_ends_the_job(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    with pytest.raises(RouteNotFound):
        keep_table(spark, TopicTable(cluster.namesrv, "misspelled", str(tmp_path), "parquet"), ignore, follow=True)


def test_which_failures_pass() -> None:
    report = "Traceback\nrocketline.errors.{}: broker 127.0.0.1:1\n\tat java"
    assert is_passing(ConnectFailed("refused"))
    assert is_passing(Exception(report.format("RequestTimeout")))
    assert not is_passing(Exception(report.format("CorruptRecord")))
    assert not is_passing(Exception("Job aborted"))
    assert not is_passing(RangeNotAvailable("gone", 0))


def test_a_topic_whose_name_ends_in_rejected_has_a_table_of_its_own(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    create_topic(cluster.brokers[0].address, f"{topic}_rejected", 2)
    send(cluster.namesrv, topic, [b"no JSON", *orders(1)])
    send(cluster.namesrv, f"{topic}_rejected", [b"1"])
    first = TopicTable(cluster.namesrv, topic, str(tmp_path / "a"), "parquet", "json", "id int")
    second = TopicTable(cluster.namesrv, f"{topic}_rejected", str(tmp_path / "a"), "parquet")
    keep_table(spark, first, ignore)
    with pytest.raises(ConfigError, match=f"has messages of topic {topic}, not of {topic}_rejected"):
        keep_table(spark, replace(second, fail_on_loss=False), ignore)
    with pytest.raises(ConfigError, match=f"has messages of topic {topic}, not of {topic}_rejected"):
        audit_table(spark, second, ignore)
    other = str(tmp_path / "b")
    keep_table(spark, replace(second, target=other), ignore)
    with pytest.raises(ConfigError, match=f"has messages of topic {topic}_rejected, not of {topic}"):
        keep_table(spark, replace(first, target=other), ignore)


def test_the_latest_of_a_queue_is_told_by_offsets(spark: SparkSession) -> None:
    rows = [
        (1, (0, 5, 100), "before the clock was set back"), (1, (0, 6, 50), "later in the queue"),
        (1, (1, 0, 40), "of another queue"), (2, (0, 7, 60), "earlier"), (2, (1, 1, 61), "stored last"),
    ]  # fmt: skip
    columns = "id int, place struct<queueId int, queueOffset bigint, at bigint>, text string"
    message = (
        "struct('b' AS brokerName, place.queueId, place.queueOffset, timestamp_millis(place.at) AS storeTimestamp)"
    )
    frame = spark.createDataFrame(rows, columns).selectExpr("id", f"{message} AS message", "text")
    found = table.latest(frame, State(0, {}, ("id",)))
    assert {row.id: row.text for row in found.collect()} == {1: "later in the queue", 2: "stored last"}


def test_a_body_is_one_json_object_and_nothing_more(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL("id int, amount double, parts array<struct<n int>>")
    good = [
        b' {"id": 1}\n', b'{"id": 2, "parts": [{"n": 1}], "more": "]}"}', b"{}", b'{"id": 1, "id": 3}',
        b'{"id": 4, "deep": ' + b"[" * 500 + b"]" * 500 + b"}",
    ]  # fmt: skip
    bad = [
        b'{"id": 1} {"id": 2}', b'{"id": 1}x', b'{"id": 1},{"id": 2}', b'{"id": 1}}', b'[{"id": 1}]', b"[]", b"null", b"5",
        b"", b" ", b"{", b'{"id": "many"}', b'{"id": 1, "parts": [{"n": 1}, {"n": "x"}]}', b'{"id": 1, "parts": 7}',
        b'{"id": 1.5}', b'{"id": 3000000000}', b'{"id": true}', b'{"id": ""}', b'{"parts": {"n": 1}}',
        b'{"deep": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    ]  # fmt: skip
    escapes = [
        b'{"id":1}],"_value":[{"id":2}', b'garbage],"_value":[{"id":3}', b'{"id":4}],"x":["no json at all"',
        b'{"id":5}],"_corrupt":[1', b'],"_value":[{"id":1}', b'null],"_value":[{"id":1}', b'{"id":1}]}', b'{"id":1}]',
        b'{"id":1},"_value":{"id":2}', b'garbage,"_value":{"id":3}', b'{"id":1},"_corrupt":"x"', b'{"id":1}}}',
        b'{"id":1}],[{"id":2}', b'{"id":1}},{"id":2}', b'{"id":1}}]', b'{"id":1}]}],"_value":[{"id":2}',
    ]  # fmt: skip
    loose = [
        b'{"amount": NaN}', b'{"amount": "NaN"}', b'{"x": Infinity}', b"{'id': 1}", b"{id: 1}", b'{"id": 1,}', b'{"id": 01}',
        b'{"id": 1 /* one */}', b'{"x": "\x01"}', b'{"x": "\\q"}', b'{"x": tru}', b'\xef\xbb\xbf{"id": 1}', b'{"id": 1}\0',
        b'\0{"id": 1}', b'{"id": 1}\xc2\xa0', b'{"x": "\xff"}', b'{"x": "\xed\xa0\x80"}',
    ]  # fmt: skip
    bodies = spark.createDataFrame([(body,) for body in good + bad + escapes + loose], "body binary")
    read = _from_json(bodies, columns).collect()
    assert [bytes(row.body) for row in read if row[PROBLEM] is None] == good
    assert [row[VALUE].id for row in read[:5]] == [1, 2, None, 3, 4]
    assert [tuple(part) for part in read[1][VALUE].parts] == [(1,)]


def test_json_behind_the_id_of_a_schema(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL("id int")
    for wire, size in ((Wire.CONFLUENT, 5), (Wire.APICURIO, 9)):
        head = bytes(size - 1) + b"\x7b"
        good = [head + b'{"id": 1}', bytes(size) + b'{"id": 1}']
        bad = [b'{"id": 1}', b"\x01" + head[1:] + b'{"id": 1}', head[:-1] + b'{"id": 1}', head, b"", b"\0", head + head]
        bodies = spark.createDataFrame([(body,) for body in good + bad], "body binary")
        read = _from_json(bodies, columns, wire).collect()
        assert [(bytes(row.body), row[VALUE].id) for row in read if row[PROBLEM] is None] == [
            (body, 1) for body in good
        ]
        assert read[-1][PROBLEM].endswith(f"behind a 0 and the id of a schema in {size - 1} bytes ({wire.value})")


def test_rules_of_a_schema(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    def after(old: str, new: str) -> str:
        return evolved(StructType.fromDDL(old), StructType.fromDDL(new)).simpleString()

    assert after("a tinyint, b double", "a bigint, b float, c date") == "struct<a:bigint,b:double,c:date>"
    assert after("s struct<x int>", "s struct<x bigint, y string>") == "struct<s:struct<x:bigint,y:string>>"
    assert (
        after("s array<struct<x int>>", "s array<struct<x bigint,y int>>") == "struct<s:array<struct<x:bigint,y:int>>>"
    )
    assert after("s map<string,array<int>>", "s map<string,array<bigint>>") == "struct<s:map<string,array<bigint>>>"
    assert after("a decimal(5,2), b decimal(9,2)", "a decimal(7,2), b decimal(3,2)") == (
        "struct<a:decimal(7,2),b:decimal(9,2)>"
    )
    for old, new, name in (
        ("s struct<x int>", "s struct<x string>", "x"), ("s array<int>", "s array<string>", r"s\[\]"),
        ("s map<string,int>", "s map<int,int>", "s"), ("d decimal(5,2)", "d decimal(9,3)", "d"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"column '{name}' of the table is "):
            after(old, new)


def test_names_in_another_case(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    for old, new in (("customer string", "Customer string"), ("s struct<x int>", "s struct<X int>")):
        before, after = StructType.fromDDL(old), StructType.fromDDL(new)
        with pytest.raises(ConfigError, match=r"JSON tells upper and lower case apart\. Write it as in the table"):
            evolved(before, after)
        assert evolved(before, after, any_case=True) == before


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schema": "a int"}, "a schema has no effect on --body raw"),
        ({"body": "json"}, "needs --schema"),
        ({"body": "xml"}, "--body xml: there are raw, json"),
        ({"body": "json", "schema": "a wrong type"}, "is not valid"),
        ({"body": "json", "schema": "message int"}, "column 'message'"),
        ({"body": "json", "schema": "_deleted int"}, "column '_deleted'"),
        ({"keep_body": False}, "--no-keep-body needs another --body than raw"),
        ({"merge_key": ("id",)}, "needs --format delta or iceberg"),
        ({"delete_when": "true"}, "without --merge-key"),
    ],
)
def test_settings_that_do_not_fit(spark: SparkSession, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        keep_table(spark, TopicTable("127.0.0.1:1", "T", "/nowhere", "parquet", **options), ignore)


def test_packages_of_the_user_come_with_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    from rocketline.cli.jobs.pipeline_run import settings_of, with_runtime

    monkeypatch.setattr(pyspark, "__version__", "4.2.1")
    conf = ["spark.jars.packages=a:b:1", "spark.sql.extensions=mine", "spark.x=y"]
    found = settings_of(with_runtime("delta", conf))
    assert found["spark.jars.packages"] == "a:b:1,io.delta:delta-spark_4.2_2.13:4.4.0"
    assert (found["spark.sql.extensions"], found["spark.x"]) == ("mine", "y")
    assert with_runtime("parquet", conf) == conf
    with pytest.raises(ConfigError, match=r"s3a://lake: with --format iceberg give a folder of this machine"):
        with_runtime("iceberg", conf, "s3a://lake")


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
    packages = {"spark.jars.packages": "a:b:1,io.delta:delta-spark_4.3_2.13:9"}
    assert "spark.jars.packages" not in format_settings("delta", "4.3.0", packages)
    beside = format_settings("delta", "4.2.1", {"spark.jars.packages": "a:b:1"})["spark.jars.packages"]
    assert beside == "a:b:1,io.delta:delta-spark_4.2_2.13:4.4.0"
    assert format_settings("iceberg", "4.3.0", {}) == {}, "no runtime is needed"
    with pytest.raises(ConfigError, match="--format orc: there are parquet, delta, iceberg"):
        format_settings("orc", "4.2.1", {})
