"""Bodies in Avro and Protobuf: which columns a schema gives, what bodies give for them, and why some give nothing."""

from __future__ import annotations

import io
import json
import random
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.decoding.avro import AvroDecoding
from rocketline.pipelines.tables.decoding.choice import SchemaSource, decoding_for
from rocketline.pipelines.tables.decoding.fitting import fit_for
from rocketline.pipelines.tables.decoding.interface import BadBody
from rocketline.pipelines.tables.decoding.protobuf import ProtobufDecoding
from rocketline.pipelines.tables.decoding.registry import Registry, Wire

pytest.importorskip("pyspark")

EVERYTHING = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
        {"name": "more", "type": {"type": "map", "values": "int"}},
        {"name": "size", "type": ["int", "long", "null"]},
    ],
}  # fmt: skip
ROW = {
    "id": 1 << 40, "note": None, "amount": Decimal("12.34"), "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 1, 2, 3, 4, UTC), "state": "PAID", "lines": [{"sku": "a"}], "more": {"x": 1}, "size": 7,
}  # fmt: skip


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def encoded(schema: Any, row: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def test_avro_gives_typed_columns_and_their_values() -> None:
    decoding = AvroDecoding(json.dumps(EVERYTHING))
    columns = decoding.columns()
    assert columns.simpleString() == (
        "struct<id:bigint,note:string,amount:decimal(9,2),day:date,at:timestamp,state:string,"
        "lines:array<struct<sku:string>>,more:map<string,int>,size:bigint>"
    )
    found = fit_for(columns)(decoding.decoder()(encoded(EVERYTHING, ROW)))
    assert found == {**ROW, "more": [("x", 1)]}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string"}, "is no record"),
        ({"type": "nonsense"}, "no schema of Avro"),
        (record("R", a=["string", "int"]), "a: a union of several types"),
        (record("R", a=["null", "R"]), "contains itself"),
    ],
)
def test_avro_schemas_without_columns(schema: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        AvroDecoding(json.dumps(schema)).columns()


def test_hostile_bodies_have_a_reason_and_never_another_error() -> None:
    decode = AvroDecoding(json.dumps(EVERYTHING)).decoder()
    fit = fit_for(AvroDecoding(json.dumps(EVERYTHING)).columns())
    good, choose = encoded(EVERYTHING, ROW), random.Random(7)
    with pytest.raises(BadBody, match="1 bytes follow the record"):
        decode(good + b"!")
    bad = 0
    for _ in range(3000):
        body = bytearray(good[: choose.randrange(len(good) + 1)])
        for _ in range(choose.randrange(4)):
            if body:
                body[choose.randrange(len(body))] = choose.randrange(256)
        try:
            fit(decode(bytes(body)))
        except BadBody as error:
            assert str(error)
            bad += 1
    assert bad > 1000


@pytest.mark.parametrize(
    ("columns", "value", "problem"),
    [
        (record("R", a="int"), {"a": 1 << 31}, "column a: '2147483648' is no int"),
        (record("R", a="int"), {"a": True}, "column a: 'True' is no int"),
        (record("R", a=record("S", b="double")), {"a": {"b": "x"}}, r"column a\.b: 'x' is no double"),
        (record("R", a={"type": "array", "items": "boolean"}), {"a": [1]}, r"column a\[\]: '1' is no boolean"),
    ],
)
def test_values_that_do_not_fit_name_their_column(columns: Any, value: Any, problem: str) -> None:
    with pytest.raises(BadBody, match=problem):
        fit_for(AvroDecoding(json.dumps(columns)).columns())(value)


def test_older_and_newer_bodies_fit_by_name() -> None:
    fit = fit_for(AvroDecoding(json.dumps(record("R", id="long", customer="string", amount="double"))).columns())
    assert fit({"id": 1, "Customer": "c", "gone": 2}) == {"id": 1, "customer": "c", "amount": None}
    assert fit({"amount": 2}) == {"id": None, "customer": None, "amount": 2.0}


class Answers(BaseHTTPRequestHandler):
    """The seam for what a real registry never does: errors, redirects, rubbish."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/schemas/ids/1":
            self.reply(200, json.dumps({"schema": json.dumps(record("R", a="int"))}))
        elif self.path == "/schemas/ids/2":
            self.reply(200, json.dumps({"schema": "message M {}", "schemaType": "PROTOBUF"}))
        elif self.path == "/schemas/ids/3":
            self.reply(302, "", location="/schemas/ids/1")
        elif self.path == "/schemas/ids/4":
            self.reply(200, "<html>")
        else:
            self.reply(404, "{}")

    def reply(self, code: int, text: str, **headers: str) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def answers() -> Iterator[tuple[Registry, list[str]]]:
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Answers,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Registry(f"http://127.0.0.1:{server.server_port}"), asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_id_is_asked_for_once_and_an_unknown_one_sets_aside(answers: tuple[Registry, list[str]]) -> None:
    registry, asked = answers
    decode = AvroDecoding(registry=registry, subject="T-value", wire=Wire.CONFLUENT).decoder()
    for _ in range(2):
        assert decode(b"\0\0\0\0\1\x08") == {"a": 4}
        with pytest.raises(BadBody, match="the registry does not know schema 9"):
            decode(b"\0\0\0\0\x09\x08")
        with pytest.raises(BadBody, match="schema 2 of the registry: it is a schema of PROTOBUF"):
            decode(b"\0\0\0\0\2\x08")
    assert asked == [f"/schemas/ids/{number}" for number in (1, 9, 2)]
    with pytest.raises(BadBody, match="does not begin with a 0 and the id of a schema in 4 bytes"):
        decode(b"\1\0\0\0\1\x08")
    with pytest.raises(ConfigError, match="answers 302 to http://127"):
        decode(b"\0\0\0\0\3\x08")
    with pytest.raises(ConfigError, match="answers no JSON: is this the address"):
        decode(b"\0\0\0\0\4\x08")
    with pytest.raises(ConfigError, match="has no subject 'T-value': name it with --schema-subject"):
        AvroDecoding(registry=registry, subject="T-value", wire=Wire.CONFLUENT).columns()


def test_a_registry_that_is_not_there_ends_the_task_and_says_where() -> None:
    find = Registry("http://127.0.0.1:9").cached(str)
    with pytest.raises(ConfigError, match=r"does not answer at http://127\.0\.0\.1:9/schemas/ids/5"):
        find(5)
    with pytest.raises(ConfigError, match="the account belongs into ROCKETLINE_REGISTRY_ACCOUNT"):
        Registry("http://me:secret@host:1")


def descriptors() -> bytes:
    """package shop: message Other {}, message Order { ... message Line }, enum State."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=number)
    simple = (
        ("id", Field.TYPE_INT64),
        ("count", Field.TYPE_UINT32),
        ("raw", Field.TYPE_BYTES),
        ("big", Field.TYPE_UINT64),
    )
    for number, (name, kind) in enumerate(simple, 1):
        order.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    order.field.add(name="state", number=5, type=Field.TYPE_ENUM, type_name=".shop.State", label=Field.LABEL_OPTIONAL)
    order.field.add(
        name="lines", number=6, type=Field.TYPE_MESSAGE, type_name=".shop.Order.Line", label=Field.LABEL_REPEATED
    )
    order.field.add(
        name="at", number=7, type=Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=Field.LABEL_OPTIONAL
    )
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="next", number=1, type=Field.TYPE_MESSAGE, type_name=".shop.Loop", label=Field.LABEL_OPTIONAL)
    stamp = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    return descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString()


def test_protobuf_gives_typed_columns_and_their_values() -> None:
    decoding = ProtobufDecoding(descriptors(), "shop.Order")
    assert decoding.columns().simpleString() == (
        "struct<id:bigint,count:bigint,raw:binary,big:decimal(20,0),state:string,lines:array<struct<sku:string>>,at:timestamp>"
    )
    body = b"\x08\x2a\x10\xff\xff\xff\xff\x0f\x1a\x02hi\x28\x01\x32\x03\x0a\x01s\x3a\x02\x08\x05"
    found = fit_for(decoding.columns())(decoding.decoder()(body))
    at = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert found == {
        "id": 42, "count": 0xFFFFFFFF, "raw": b"hi", "big": 0, "state": "PAID", "lines": [{"sku": "s"}], "at": at,
    }  # fmt: skip
    assert decoding.decoder()(b"")["id"] == 0
    with pytest.raises(BadBody, match=r"the body is no shop\.Order"):
        decoding.decoder()(b"\x08")
    with pytest.raises(ConfigError, match="contains itself"):
        ProtobufDecoding(descriptors(), "shop.Loop").columns()
    with pytest.raises(ConfigError, match=r"no message 'Order': name it with its package"):
        ProtobufDecoding(descriptors(), "Order").columns()


def test_numbers_of_a_message_before_its_body() -> None:
    head = b"\0\0\0\0\7"
    order = ProtobufDecoding(descriptors(), "shop.Order", Wire.CONFLUENT).decoder()
    assert order(head + b"\x02\x02\x08\x2a")["id"] == 42
    with pytest.raises(BadBody, match=r"the body is message \[0\] of its schema, shop\.Order is \[1\]"):
        order(head + b"\x00\x08\x2a")
    line = ProtobufDecoding(descriptors(), "shop.Order.Line", Wire.APICURIO).decoder()
    assert line(b"\0" + bytes(8) + b"\x04\x02\x00\x0a\x01s") == {"sku": "s"}
    assert ProtobufDecoding(descriptors(), "shop.Other", Wire.CONFLUENT).decoder()(head + b"\0") == {}
    for rest in (b"", b"\x02", b"\xff\xff\xff\xff\xff\xff", b"\x7f"):
        with pytest.raises(BadBody):
            order(head + rest)


@pytest.mark.parametrize(
    ("body", "given", "problem"),
    [
        ("raw", {"wire": "confluent"}, "have no effect on --body raw"),
        ("json", {"wire": "confluent", "registry": "http://r:1"}, "have no effect on --body json"),
        ("avro", {}, "needs one of --schema-file FILE.avsc and --schema-registry"),
        ("avro", {"file": "/nowhere.avsc"}, "/nowhere.avsc cannot be read"),
        ("avro", {"registry": "host:1"}, "--schema-registry: an address like"),
        ("avro", {"registry": "http://h", "wire": "kafka"}, "--wire kafka: there are confluent, apicurio"),
        ("protobuf", {"registry": "http://h"}, "--body protobuf needs --schema-file"),
    ],
)
def test_choices_that_do_not_fit(body: str, given: dict[str, Any], problem: str) -> None:
    if "file" in given:
        given = {**given, "file": Path(given["file"])}
    with pytest.raises(ConfigError, match=problem):
        decoding_for(body, "T", SchemaSource(**given))
