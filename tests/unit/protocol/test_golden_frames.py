"""Every captured frame is understood, and comes out again with the same meaning."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import msgspec
import pytest
from tests.golden.wire.load import Frame, frames

from rocketline.errors import RemoteProtocolError
from rocketline.protocol import bodies
from rocketline.protocol.command import JSON, ROCKETMQ, Command
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.protocol.fastjson import parse
from rocketline.protocol.headers import REQUEST_HEADERS, RESPONSE_HEADERS
from rocketline.protocol.record_layout import MAGIC_V1
from rocketline.protocol.records import (
    RecordHead,
    decode_messages,
    decode_record,
    encode_record,
    read_start,
    topic_part,
)

REQUEST_BODIES: dict[int, Any] = {
    34: bodies.HeartbeatData,
    41: bodies.LockBatchRequestBody,
    42: bodies.UnlockBatchRequestBody,
    103: bodies.RegisterBrokerBody,
    200: bodies.SubscriptionGroupConfig,
    322: bodies.DataVersion,
}
RESPONSE_BODIES: dict[int, Any] = {
    21: bodies.TopicConfigSerializeWrapper,
    28: bodies.KVTable,
    38: bodies.ConsumerIdList,
    41: bodies.LockBatchResponseBody,
    43: bodies.ConsumerOffsetTable,
    45: bodies.DelayOffsetTable,
    105: bodies.TopicRouteData,
    106: bodies.ClusterInfo,
    201: bodies.SubscriptionGroupWrapper,
    202: bodies.TopicStatsTable,
    203: bodies.ConsumerConnection,
    204: bodies.ProducerConnection,
    206: bodies.TopicList,
    208: bodies.ConsumeStats,
    219: bodies.KVTable,
    221: bodies.ConsumerStatus,
    222: bodies.ResetOffsetBody,
    223: bodies.ConsumerStatus,
    224: bodies.TopicList,
    300: bodies.GroupList,
    303: bodies.ConsumeTimeSpans,
    304: bodies.TopicList,
    305: bodies.TopicList,
    308: bodies.CorrectionOffsets,
    311: bodies.TopicList,
    315: bodies.BrokerStatsData,
    317: bodies.ConsumeStatsList,
    321: bodies.ConsumeQueueBody,
    322: bodies.DataVersion,
    328: bodies.ProducerTable,
    343: bodies.TopicList,
    345: bodies.QuerySubscriptionBody,
    351: bodies.TopicConfig,
    352: bodies.SubscriptionGroupConfig,
    901: bodies.BrokerMemberGroupAnswer,
}
RESULT_CODES = {310: {0, 10, 11, 12}, 11: {0, 19, 20, 21}, 361: {0, 19, 20, 21}, 12: {0, 22}}
NOT_OURS = {"ReqT", "ns", "nsd", "oway", "lo", "bname"}
"""Fields any request may carry and that mean nothing to us; a header may still have one of them."""


def decode(data: bytes) -> Command:
    (command,) = Connection().receive(data)
    return command


def fields_of(command: Command) -> tuple[Any, ...]:
    return tuple(getattr(command, name) for name in Command.__slots__)


def name_of(frame: Frame) -> str:
    return f"{frame.recording} {frame.sender} {frame.request} {frame.data[:80]!r}"


def successful(frame: Frame, command: Command) -> bool:
    return command.is_response and command.code in RESULT_CODES.get(frame.request, {0})


def test_selection_covers_all_encodings_and_recordings() -> None:
    assert len({frame.recording for frame in frames()}) == 82
    commands = [decode(frame.data) for frame in frames()]
    assert {command.encoding for command in commands} == {JSON, ROCKETMQ}
    assert {command.version for command in commands if command.version} >= {407, 493}


def test_reencoded_frames_have_the_same_meaning() -> None:
    with_empty_fields = set()
    for frame in frames():
        command = decode(frame.data)
        command.nulls = ()
        again = frame_bytes(command)
        assert fields_of(decode(again)) == fields_of(command), name_of(frame)
        if command.encoding == JSON:
            assert header_json(again) == header_json(frame.data), name_of(frame)
        elif again != frame.data:
            with_empty_fields.add(frame.request)
    # Java writes an empty value, which no reader sees; we leave it out. Everything else is the same byte for byte.
    assert with_empty_fields <= {17, 21, 201, 321, 223}


def header_json(data: bytes) -> Any:
    size = int.from_bytes(data[5:8], "big")
    return json.loads(data[8 : 8 + size])


def test_request_headers_keep_every_field() -> None:
    seen = set()
    for frame in frames():
        command = decode(frame.data)
        kind = REQUEST_HEADERS.get(command.code)
        if command.is_response or kind is None:
            continue
        if command.ext == {"b": f"GT_err_{frame.recording.split('.')[1]}"}:  # made wrong on purpose: Apache answered 1
            with pytest.raises(RemoteProtocolError, match="field a is missing"):
                kind.decode(command)
            continue
        seen.add(command.code)
        header = kind.decode(command)
        encoded = header.encode_long() if command.code == 10 else header.encode()  # type: ignore[attr-defined]
        sent = command.ext or {}
        assert {name: value for name, value in sent.items() if name not in NOT_OURS} == {
            name: value for name, value in encoded.items() if name in sent and name not in NOT_OURS
        }, name_of(frame)
        assert kind.decode(Command(310 if command.code == 10 else command.code, header.encode())) == header
    assert seen >= {10, 11, 12, 14, 15, 17, 29, 30, 31, 32, 33, 35, 36, 37, 38, 39, 40, 100, 101, 102, 103, 104, 105}
    assert seen >= {
        201,
        202,
        203,
        204,
        205,
        207,
        208,
        215,
        216,
        219,
        224,
        307,
        309,
        310,
        320,
        322,
        327,
        351,
        352,
        361,
        901,
    }


def test_response_headers_keep_every_field() -> None:
    seen = set()
    for frame in frames():
        command = decode(frame.data)
        kind = RESPONSE_HEADERS.get(frame.request)
        if kind is None or not successful(frame, command):
            continue
        seen.add(frame.request)
        encoded = kind.decode(command).encode()
        sent = command.ext or {}
        assert {name: encoded[name] for name in sent} == sent, name_of(frame)
    assert seen >= {10, 11, 12, 14, 21, 29, 30, 31, 32, 34, 101, 201, 205, 310, 320, 322, 327, 361}


def contains(value: Any, part: Any) -> bool:
    """Whether every member of `part` is in `value`, at any depth; members that `part` left at a default may come on top."""
    if isinstance(part, dict):
        return all(name in value and contains(value[name], item) for name, item in part.items())
    if isinstance(part, list):
        return len(part) == len(value) and all(contains(left, right) for left, right in zip(value, part))
    return bool(value == part)


def test_bodies_keep_every_member() -> None:
    seen = set()
    for frame in frames():
        command = decode(frame.data)
        kind = (RESPONSE_BODIES if command.is_response else REQUEST_BODIES).get(frame.request)
        if kind is None or not command.body or (command.is_response and command.code):
            continue
        seen.add((command.is_response, frame.request))
        body = bodies.decode_body(kind, command.body)
        wanted = parse(command.body)
        wanted.pop("groupTopicMap", None)  # derived from the rest
        written = bodies.encode_body(body)
        assert contains(parse(written), wanted), name_of(frame)
        assert bodies.decode_body(kind, written) == body
    assert seen == {(False, code) for code in REQUEST_BODIES} | {(True, code) for code in RESPONSE_BODIES}


def test_registration_body_is_the_one_of_the_header_crc() -> None:
    registrations = [decode(frame.data) for frame in frames() if frame.request == 103]
    checked = 0
    for command in registrations:
        if command.is_response or not command.body:
            continue
        header = REQUEST_HEADERS[103].decode(command)
        assert header.body_crc32 in (0, crc32(command.body) & 0x7FFFFFFF)  # type: ignore[attr-defined]
        checked += header.body_crc32 != 0  # type: ignore[attr-defined]
        body = bodies.decode_registration(command.body, False, command.version)
        assert body.topic_config_serialize_wrapper.topic_config_table
    assert checked


def test_stored_messages_reencode_to_the_same_bytes() -> None:
    count = 0
    for frame in frames():
        command = decode(frame.data)
        if not (frame.request in (11, 361, 12, 33) and successful(frame, command) and command.body):
            continue
        position = 0
        for message in decode_messages(command.body):
            record = decode_record(command.body, position, len(command.body), check_crc=True)
            magic, topic = topic_part(record.topic)
            assert read_start(command.body, position) == (record.size, magic) == (message.stored_bytes, MAGIC_V1)
            again = encode_record(
                RecordHead(
                    magic,
                    topic,
                    record.queue_id,
                    record.queue_offset,
                    record.log_offset,
                    record.flag,
                    record.sys_flag,
                    record.born_ms,
                    record.born_host,
                    record.store_ms,
                    record.store_host,
                    record.reconsume_times,
                    record.prepared_log_offset,
                ),
                record.body,
                record.properties,
            )
            assert again == command.body[position : position + record.size]
            position += record.size
            count += 1
    assert count > 50


def distinct_frames() -> list[bytes]:
    chosen: dict[Any, bytes] = {}
    for frame in frames():
        command = decode(frame.data)
        chosen.setdefault((frame.request, command.flag, command.encoding), frame.data)
    return [data for data in chosen.values() if len(data) < 2000]


def test_frames_split_at_every_byte() -> None:
    for data in distinct_frames():
        wanted = fields_of(decode(data))
        for cut in range(1, len(data)):
            connection = Connection()
            assert list(connection.receive(data[:cut])) == []
            (command,) = connection.receive(data[cut:])
            assert fields_of(command) == wanted
            connection.finish()


def test_frames_byte_by_byte() -> None:
    stream = b"".join(distinct_frames())
    connection = Connection()
    commands = [command for at in range(len(stream)) for command in connection.receive(stream[at : at + 1])]
    assert [fields_of(command) for command in commands] == [fields_of(decode(data)) for data in distinct_frames()]


@pytest.mark.parametrize("piece_bytes", [7, 1000, 65536, 1 << 24])
def test_many_frames_in_one_read(piece_bytes: int) -> None:
    stream = b"".join(frame.data for frame in frames())
    connection = Connection()
    commands = []
    for at in range(0, len(stream), piece_bytes):
        commands += connection.receive(stream[at : at + piece_bytes])
    connection.finish()
    assert [fields_of(command) for command in commands] == [fields_of(decode(frame.data)) for frame in frames()]


def test_route_for_old_clients_has_bare_integer_keys() -> None:
    old = [
        decode(frame.data).body
        for frame in frames()
        if frame.request == 105 and successful(frame, decode(frame.data)) and b"brokerAddrs" in decode(frame.data).body
    ]
    for body in old:
        route = bodies.decode_body(bodies.TopicRouteData, body)
        for standard in (True, False):
            assert parse(bodies.encode_route(route, standard)) == parse(body)
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(bodies.encode_route(route, False))
    assert old
