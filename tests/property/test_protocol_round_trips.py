"""What is written is read back, whatever it holds."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rocketline.message import MessageQueue
from rocketline.protocol import bodies
from rocketline.protocol.command import JSON, LANGUAGES, ROCKETMQ, Command
from rocketline.protocol.compression import TYPES, compress, decompress
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.protocol.fastjson import parse
from rocketline.protocol.hashing import java_string_hash, joined_hash
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.message_ids import encode_host, offset_id, parse_offset_id
from rocketline.protocol.properties import decode_properties, encode_properties, property_problem
from rocketline.protocol.record_layout import BORN_IPV6, STORE_IPV6
from rocketline.protocol.records import (
    BatchItem,
    RecordHead,
    decode_batch,
    decode_record,
    encode_batch,
    encode_record,
    topic_part,
)

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]))
filled = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
hosts = st.builds(encode_host, st.ip_addresses().map(str), st.integers(0, 65535))


@st.composite
def commands(draw: st.DrawFn) -> Command:
    encoding = draw(st.sampled_from([JSON, ROCKETMQ]))
    fields = text if encoding == JSON else filled
    return Command(
        draw(int32 if encoding == JSON else int16),
        draw(st.dictionaries(fields, fields, max_size=8)),
        draw(st.binary(max_size=200)),
        opaque=draw(int32),
        flag=draw(int32),
        remark=draw(st.none() | fields),
        version=draw(int16),
        language=draw(st.sampled_from(LANGUAGES)),
        encoding=encoding,
    )


def fields_of(command: Command) -> tuple[Any, ...]:
    return tuple(getattr(command, name) for name in Command.__slots__)


@given(st.lists(commands(), max_size=4), st.lists(st.integers(0, 2000), max_size=6))
def test_commands_through_a_connection_cut_anywhere(sent: list[Command], cuts: list[int]) -> None:
    stream = b"".join(map(frame_bytes, sent))
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    connection = Connection()
    received = [command for start, end in pairwise(edges) for command in connection.receive(stream[start:end])]
    connection.finish()
    assert [fields_of(command) for command in received] == [fields_of(command) for command in sent]


@given(st.builds(SendMessageHeader, text, text, text, int32, int32, int32, int64, int32, text, int32, st.booleans(),
                 st.none() | int32, st.booleans(), st.none() | text))  # fmt: skip
def test_send_headers(header: SendMessageHeader) -> None:
    assert SendMessageHeader.decode(Command(310, header.encode())) == header
    assert SendMessageHeader.decode(Command(10, header.encode_long())) == header


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=90),
    st.binary(max_size=300),
    st.binary(max_size=300),
    st.tuples(int32, int64, int64, int32, int64, int64, int32, int64),
    hosts,
    hosts,
    int32,
    st.integers(0, 50),
)
def test_records(
    topic: str,
    body: bytes,
    properties: bytes,
    numbers: tuple[int, ...],
    born: bytes,
    store: bytes,
    flags: int,
    start: int,
) -> None:
    queue_id, queue_offset, log_offset, flag, born_ms, store_ms, reconsume_times, prepared = numbers
    sys_flag = flags & ~(BORN_IPV6 | STORE_IPV6)
    sys_flag |= (BORN_IPV6 if len(born) == 20 else 0) | (STORE_IPV6 if len(store) == 20 else 0)
    magic, raw_topic = topic_part(topic)
    data = encode_record(
        RecordHead(
            magic,
            raw_topic,
            queue_id,
            queue_offset,
            log_offset,
            flag,
            sys_flag,
            born_ms,
            born,
            store_ms,
            store,
            reconsume_times,
            prepared,
        ),
        body,
        properties,
    )
    record = decode_record(bytes(start) + data + b"next", start, start + len(data) + 4, check_crc=True)
    assert (record.size, record.topic, record.body, record.properties) == (len(data), topic, body, properties)
    assert (record.queue_id, record.queue_offset, record.log_offset, record.flag) == (
        queue_id,
        queue_offset,
        log_offset,
        flag,
    )
    assert (record.sys_flag, record.born_ms, record.born_host) == (sys_flag, born_ms, born)
    assert (record.store_ms, record.store_host, record.reconsume_times) == (store_ms, store, reconsume_times)
    assert record.prepared_log_offset == prepared


@given(st.lists(st.builds(BatchItem, int32, st.binary(max_size=50), st.binary(max_size=50)), max_size=6))
def test_batches(items: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(items)) == items


@given(st.dictionaries(text, text, max_size=8))
def test_properties(properties: dict[str, str]) -> None:
    fine = {name: value for name, value in properties.items() if property_problem(name, value) is None}
    assert decode_properties(encode_properties(fine)) == fine
    assert decode_properties(encode_properties(fine)[:-1]) == fine


@given(hosts, int64)
def test_offset_ids(host: bytes, log_offset: int) -> None:
    assert parse_offset_id(offset_id(host, log_offset))[1] == log_offset


@given(st.text(), st.text())
def test_hash_of_joined_text(left: str, right: str) -> None:
    value = 0
    for unit in memoryview((left + right).encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    # A pair of halves meeting in the middle is one character when joined, and two units either way.
    assert java_string_hash(left + right) & 0xFFFFFFFF == value == joined_hash(left, right) & 0xFFFFFFFF


@given(st.binary(max_size=5000), st.sampled_from(sorted(TYPES.values())))
def test_compression(body: bytes, kind: int) -> None:
    assert decompress(compress(body, kind), kind) == body


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
    max_leaves=20,
)


def has_reference(value: Any) -> bool:
    if isinstance(value, dict):
        return "$ref" in value or any(map(has_reference, value.values()))
    return isinstance(value, list) and any(map(has_reference, value))


@given(json_values, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_fastjson_reads_json_like_json(value: Any, ascii_only: bool, indent: Any) -> None:
    written = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    if has_reference(value):
        return
    assert same(parse(written), value)
    # A comment in front sends the same text down the slow road.
    assert same(parse("/**/" + written), value)
    assert same(parse(("/**/" + written).encode()), value)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-15)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right) and type(left) is type(right)


@given(st.dictionaries(st.integers(), json_values.filter(lambda value: not has_reference(value)), max_size=5))
def test_fastjson_reads_bare_integer_keys(table: dict[int, Any]) -> None:
    written = ",".join(f"{key}:{json.dumps(value)}" for key, value in table.items())
    assert same(parse("{" + written + "}"), {str(key): value for key, value in table.items()})


queues = st.builds(MessageQueue, text, text, int32)


@given(st.dictionaries(queues, int64, max_size=5))
def test_maps_keyed_by_queue(table: dict[MessageQueue, int]) -> None:
    body = bodies.ResetOffsetBody({bodies.queue_key(queue): offset for queue, offset in table.items()})
    written = bodies.encode_body(body)
    assert bodies.decode_reset_offsets(written) == body
    bare = ",".join(f"{bodies.queue_key(queue)}:{offset}" for queue, offset in table.items())
    assert bodies.decode_reset_offsets(('{"offsetTable":{' + bare + "}}").encode()) == body
    again = bodies.decode_body(bodies.ResetOffsetBody, written).offset_table
    assert {bodies.parse_queue_key(key): offset for key, offset in again.items()} == table


subscriptions = st.builds(
    bodies.SubscriptionData,
    text,
    text,
    st.lists(text, max_size=3),
    st.lists(int32, max_size=3),
    int64,
    text,
    st.booleans(),
)
consumers = st.builds(bodies.ConsumerData, text, text, text, text, st.lists(subscriptions, max_size=3), st.booleans())
keys = text.filter(lambda key: key != "$ref")  # fastjson's references, which the reader refuses
brokers = st.builds(
    bodies.BrokerData, text, text, st.dictionaries(st.integers(0, 9), text, max_size=3), st.booleans(), st.none() | text
)
topics = st.builds(
    bodies.TopicConfig, filled.filter(lambda name: " " not in name), int32, int32, int32,
    st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]), st.just(0), st.just(False), st.dictionaries(keys, text, max_size=3),
)  # fmt: skip
versions = st.builds(bodies.DataVersion, int64, int64, int64)
routes = st.builds(bodies.TopicRouteData, st.lists(brokers, max_size=2),
              st.lists(st.builds(bodies.QueueData, text, int32, int32, int32, int32), max_size=2),
              st.dictionaries(keys, st.lists(text, max_size=2), max_size=2), st.none() | text)  # fmt: skip
any_body = st.one_of(
    st.builds(bodies.HeartbeatData, text, st.lists(st.builds(bodies.ProducerData, text), max_size=2),
              st.lists(consumers, max_size=2), int32, st.booleans()),
    routes,
    st.builds(bodies.ClusterInfo, st.dictionaries(keys, brokers, max_size=2),
              st.dictionaries(keys, st.lists(text), max_size=2)),
    st.builds(bodies.TopicList, st.lists(text, max_size=3), st.none() | text),
    st.builds(bodies.KVTable, st.dictionaries(keys, text, max_size=3)),
    st.builds(bodies.ConsumerOffsetTable, versions,
              st.dictionaries(keys, st.dictionaries(int32, int64, max_size=3), max_size=3)),
    st.builds(bodies.ConsumerConnection, st.lists(st.builds(bodies.ClientConnection, text, text, text, int32), max_size=2),
              st.none() | text, st.none() | text, st.none() | text, st.dictionaries(keys, subscriptions, max_size=2)),
)  # fmt: skip


@given(any_body)
def test_bodies(body: Any) -> None:
    written = bodies.encode_body(body)
    if b"$ref" not in written:
        assert bodies.decode_body(type(body), written) == body
        assert bodies.decode_body(type(body), b"/**/" + written) == body
        assert bodies.decode_file(type(body), bodies.pretty_json(body)) == body
    assert not any(value is None for value in json.loads(written).values())


@given(versions, st.lists(topics, max_size=5), st.lists(text, max_size=2))
def test_compressed_registrations(
    version: bodies.DataVersion, configs: list[bodies.TopicConfig], filters: list[str]
) -> None:
    table = {config.topic_name: config for config in configs}
    body = bodies.RegisterBrokerBody(bodies.TopicConfigSerializeWrapper(version, table), filters)
    again = bodies.decode_registration(bodies.encode_registration(body, compressed=True), True, 407)
    assert again == body


@given(routes)
def test_routes_in_both_forms(route: bodies.TopicRouteData) -> None:
    standard = bodies.encode_route(route, standard=True)
    assert standard.isascii()
    assert bodies.decode_body(bodies.TopicRouteData, standard) == route
    assert bodies.decode_body(bodies.TopicRouteData, bodies.encode_route(route, standard=False)) == route
