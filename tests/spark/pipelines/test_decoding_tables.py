"""Tables of topics whose bodies are Avro with a real registry, or Protobuf: columns, evolution, reasons."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.live import send
from tests.support.java import JavaUnavailable
from tests.support.registry import register, registry_folder, schema_registry
from tests.unit.pipelines.test_decoding import descriptors, encoded, record

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.decoding.avro import AvroDecoding
from rocketline.pipelines.tables.decoding.choice import SchemaSource, decoding_for
from rocketline.pipelines.tables.decoding.protobuf import ProtobufDecoding
from rocketline.pipelines.tables.formats import table_in
from rocketline.pipelines.tables.table import TopicTable, keep_table
from rocketline.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ignore(text: str) -> None:
    pass


def rows(spark: SparkSession, wanted: TopicTable, name: str = "") -> list[Any]:
    found = table_in(spark, wanted.target, wanted.topic + name, "parquet").read()
    assert found is not None
    return found.collect()


@pytest.fixture(scope="module")
def registry(spark: SparkSession) -> Any:
    try:
        registry_folder()
    except JavaUnavailable as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"CI must have the registry: {error}", pytrace=False)
        pytest.skip(str(error))
    with schema_registry() as address:
        yield address


def test_avro_of_a_registry_whose_schema_changes(
    spark: SparkSession, cluster: LocalCluster, topic: str, registry: str, tmp_path: Path
) -> None:
    def add(schema: Any, row: Any, *bodies: bytes) -> TopicTable:
        number = register(registry, f"{topic}-value", schema)
        send(cluster.namesrv, topic, [b"\0" + number.to_bytes(4, "big") + encoded(schema, row), *bodies])
        decoding = decoding_for("avro", topic, SchemaSource(registry=registry))
        wanted = TopicTable(cluster.namesrv, topic, str(tmp_path), "parquet", "avro", decoding=decoding)
        keep_table(spark, wanted, ignore)
        return wanted

    optional = {"type": ["null", "double"], "default": None}
    add(record("Order", id="int", customer="string"), {"id": 1, "customer": "a"}, b"{}", b"\0\0\0\xff\xff!")
    second: Any = record("Order", id="long", customer="string")
    second["fields"].append({"name": "amount", **optional})
    add(second, {"id": 1 << 40, "customer": "b", "amount": 2.5}, b"\0\0\0\0\1")
    third: Any = record("Order", id="long")
    third["fields"].append({"name": "amount", **optional})
    wanted = add(third, {"id": 3, "amount": None})

    found = rows(spark, wanted)
    assert sorted((row.id, row.customer, row.amount) for row in found) == [
        (1, "a", None), (3, None, None), (1 << 40, "b", 2.5),
    ]  # fmt: skip
    reasons = sorted(row.error for row in rows(spark, wanted, "_rejected"))
    assert len(reasons) == 3
    assert reasons[0].startswith("the body does not begin with a 0 and the id of a schema in 4 bytes")
    assert reasons[1].startswith("the body is no Avro of its schema: ")
    assert reasons[2] == f"the registry does not know schema {0xFFFF}"
    send(cluster.namesrv, topic, [b"one more"])
    with pytest.raises(ConfigError, match="column 'amount' of the table is double, the schema says string"):
        file = AvroDecoding(json.dumps(record("Order", amount="string")))
        keep_table(spark, replace(wanted, decoding=file), ignore)


def test_protobuf_by_its_descriptors(spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    send(
        cluster.namesrv, topic, [b"\x08\x2a\x28\x01\x3a\x02\x08\x05", b"\x08", b"\x3a\x0b\x08" + b"\xff" * 9 + b"\x01"]
    )
    decoding = ProtobufDecoding(descriptors(), "shop.Order")
    wanted = TopicTable(cluster.namesrv, topic, str(tmp_path), "parquet", "protobuf", decoding=decoding)
    keep_table(spark, wanted, ignore)
    (row, other) = sorted(rows(spark, wanted), key=lambda row: -row.id)
    assert (row.id, row.state, row.lines, row.at.second) == (42, "PAID", [], 5)
    assert other.at.year == 1969
    assert [row.error[:29] for row in rows(spark, wanted, "_rejected")] == ["the body is no shop.Order: Er"]
