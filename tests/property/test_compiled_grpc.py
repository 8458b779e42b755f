"""Compiled code of the gRPC front gives what Python gives: fields of header blocks, and plain messages to send."""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.compiled import compiled, needs_compiled, python, thorough

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.http2.hpack import STATIC
from rocketline.proxy.messages import PlainSend, send_reader, to_broker
from rocketline.proxy.problems import Problem
from rocketline.proxy.proto import pb
from rocketline.proxy.validation import check_message

CONFIG = GrpcConfig(max_body_bytes=64, max_property_bytes=80, max_group_bytes=12)
NOW_MS = 1_790_000_000_000

_fields = st.tuples(st.binary(max_size=8), st.binary(max_size=8))
_blocks = st.lists(
    st.sampled_from([b"\x82", b"\x80", b"\xbe", b"\xc0", b"\xff\x00", b"\xff\x80\x00", b"\xff\x80\x80\x80\x80\x00"])
    | st.binary(max_size=6)
).map(b"".join)


@needs_compiled
@thorough
@given(_blocks, st.lists(_fields, max_size=70), st.integers(-50, 300), st.data())
@example(b"\xff", [], 100, None)
def test_fields_of_tables(block: bytes, table: list[Any], room: int, data: Any) -> None:
    position = 0 if data is None else data.draw(st.integers(0, len(block)))
    found = []
    for take in (python("take_indexed"), compiled("take_indexed")):
        fields: list[Any] = []
        found.append((take(block, position, STATIC, deque(table), fields, room), fields))
    assert found[0] == found[1]


_word = st.text("aZ0-_~", max_size=14)
_text = _word | st.text("a |\x01\x7fü\N{GRINNING FACE}", max_size=6)
_number = st.sampled_from([0, 1, -1, 2, 4, 1_790_000_000, 1 << 40, (1 << 63) - 1, -(1 << 63)])
_plain_system = st.fixed_dictionaries(
    {"message_id": _text, "born_host": _text},
    optional={
        "tag": _text,
        "keys": st.lists(_text, max_size=4),
        "body_encoding": st.integers(0, 3),
        "message_type": st.integers(0, 6),
        "queue_id": st.integers(-1, 9),
        "message_group": _text,
    },
)
_odd_system = st.fixed_dictionaries(
    {},
    optional={
        "delivery_attempt": st.integers(-1, 3),
        "priority": st.integers(-1, 3),
        "trace_context": _text,
        "store_host": _text,
    },
)


@st.composite
def _messages(draw: Any) -> Any:
    message = pb.Message(body=draw(st.binary(max_size=70)))
    message.topic.name = draw(_text)
    if draw(st.booleans()):
        message.topic.resource_namespace = draw(_text)
    system = draw(_plain_system)
    if draw(st.integers(0, 4)) == 0:
        system |= draw(_odd_system)
        message.user_properties.update(draw(st.dictionaries(_word, _text, max_size=2)))
    message.system_properties.MergeFrom(pb.SystemProperties(**system))
    born = message.system_properties.born_timestamp
    born.seconds, born.nanos = draw(_number), draw(st.sampled_from([0, 1, -1, 999_999_999, 1_000_000_000]))
    return message


def _general(request: Any) -> Any:
    """What Python makes of a request; None when it refuses it, or has no place for it in a PlainSend."""
    (message,) = request.messages
    try:
        check_message(message, CONFIG, NOW_MS)
    except Problem:
        return None
    name = message.topic.name
    made = to_broker(message, name, "peer:1", NOW_MS)
    plain = PlainSend(name, made.message_id, made.group, made.properties, made.born_ms, made.body)
    return plain if plain.outgoing == made else None


@needs_compiled
@thorough
@given(_messages())
def test_plain_messages(message: Any) -> None:
    request = pb.SendMessageRequest(messages=[message])
    read = send_reader(CONFIG)(request.SerializeToString())
    if isinstance(read, PlainSend):
        assert read == _general(request)
    else:
        assert read == request


@needs_compiled
@thorough
@given(_messages(), st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=3)), min_size=1, max_size=3))
def test_damaged_messages(message: Any, changes: list[tuple[int, bytes]]) -> None:
    """What compiled code takes, protobuf reads as the same."""
    data = pb.SendMessageRequest(messages=[message]).SerializeToString()
    for at, put in changes:
        data = data[:at] + put + data[at + len(put) :]
    try:
        read = send_reader(CONFIG)(data)
    except Exception:  # protobuf's: it is none
        return
    if isinstance(read, PlainSend):
        assert read == _general(pb.SendMessageRequest.FromString(data))


@needs_compiled
def test_what_clients_send_is_plain() -> None:
    """As Java's and Go's clients make it."""
    message = pb.Message(body=b"body")
    message.topic.resource_namespace, message.topic.name = "ns", "orders"
    system = message.system_properties
    system.tag, system.message_id, system.born_host, system.message_group = "blue", "0102FC", "10.1.2.3", "g-1"
    system.keys.extend(["k1", "k2"])
    system.body_encoding, system.message_type, system.queue_id = 1, 2, 3
    system.born_timestamp.seconds, system.born_timestamp.nanos = 1_790_000_000, 5_000_000
    read = send_reader(CONFIG)(pb.SendMessageRequest(messages=[message]).SerializeToString())
    assert isinstance(read, PlainSend)
    assert read == _general(pb.SendMessageRequest(messages=[message]))
    assert (read.topic, read.group, read.born_ms) == ("orders", "g-1", 1_790_000_000_005)
