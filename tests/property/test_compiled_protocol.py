"""Compiled code of the protocol gives what Python gives, for good input and bad: the same result or the same error."""

from __future__ import annotations

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.golden.wire import load as golden
from tests.support.compiled import (
    any_text,
    compiled,
    int16,
    int32,
    needs_compiled,
    pure,
    python,
    text,
    thorough,
)

from rocketline import _impl
from rocketline.errors import RocketlineError
from rocketline.protocol import connection, records
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import JSON, ROCKETMQ, Command
from rocketline.protocol.connection import MAX_FRAME_BYTES, MAX_HEADER_BYTES, Connection, frame_bytes

pytestmark = needs_compiled


@thorough
@given(st.binary(max_size=3000))
def test_crc(data: bytes) -> None:
    assert records.crc32(data) == records.zlib_crc32(data)
    assert records.crc32(memoryview(data)[1:]) == records.zlib_crc32(data[1:])


def test_crc_of_every_length() -> None:
    data = bytes(number * 7 & 0xFF for number in range(65536 + 17))
    for size in (*range(300), 1024, 4095, len(data)):
        assert records.crc32(data[:size]) == records.zlib_crc32(data[:size])


@thorough
@given(any_text, any_text)
def test_hashes(topic: str, key: str) -> None:
    assert compiled("java_string_hash")(key) == python("java_string_hash")(key)
    assert compiled("index_key_hash")(topic, key) == python("index_key_hash")(topic, key)


def test_the_one_hash_without_an_absolute_value() -> None:
    lowest = "polygenelubricants"
    assert compiled("java_string_hash")(lowest) == python("java_string_hash")(lowest) == -(1 << 31)
    for topic, key in (("", "x"), ("a", lowest)):
        assert compiled("index_key_hash")(topic, key) == python("index_key_hash")(topic, key)


property_text = st.lists(
    st.sampled_from(["a", "UNIQ_KEY", "TAGS", "KEYS", "\x01", "\x02", "\x02", "ü", "\ud800", ""])
).map("".join)


@thorough
@given(property_text | any_text)
def test_properties(encoded: str) -> None:
    assert compiled("decode_properties")(encoded) == python("decode_properties")(encoded)


plain_commands = st.builds(
    Command,
    int16,
    st.none() | st.dictionaries(text, text, max_size=8),
    st.binary(max_size=60),
    opaque=int32,
    flag=int32,
    remark=st.none() | text,
    version=int16,
    language=st.sampled_from(["JAVA", "GO", "RUST", "nobody"]),
    encoding=st.sampled_from([JSON, ROCKETMQ]),
)
scraps = st.sampled_from(
    [b'{"code":310', b',"code":1', b'"code":', b"-1", b"-0", b"01", b"1.0", b"1e3", b"2147483648", b"99999999999999999999",
     b',"extFields":{', b'"a":"b"', b'"i":"UNIQ_KEY\\u0001AB\\u0002"', b'"\\u00fc":"\\ud83d\\ude00"', b'"x":"\\ud800"',
     b'"x":7', b'"x":null', b'"t":"\\t\\/\\x"', b"{}", b"}", b'"raw":"\x01"', b'"\xc3\xbc":"\xc3"', b",", b":", b" ", b"\n",
     b"null", b',"language":"JAVA"', b',"language":9', b',"remark":null', b',"remark":"no\\"pe"', b',"opaque":5',
     b',"version":-3', b',"flag":0', b',"serializeTypeCurrentRPC":"JSON"', b',"body":"AAAA"', b',"encoding":1',
     b',"chunks":"x"', b',"other":[1]', b'"', b"\\"]
)  # fmt: skip
json_headers = st.lists(scraps, max_size=14).map(b"".join) | st.builds(
    lambda parts: b'{"code":310' + b"".join(parts) + b"}", st.lists(scraps, max_size=8)
)


def frame(encoding: int, header: bytes, body: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), encoding << 24 | len(header)) + header + body


frames = (
    plain_commands.map(lambda command: _frame_of(command))
    | st.builds(frame, st.sampled_from([0, 0, 0, 1, 2]), json_headers, st.binary(max_size=20))
    | st.builds(frame, st.just(1), st.binary(max_size=60), st.binary(max_size=20))
    | st.binary(max_size=30)
)


def _frame_of(command: Command) -> bytes:
    command.ext = {key or "k": value or "v" for key, value in (command.ext or {}).items()} or command.ext
    return frame_bytes(command)


def received(data: bytes, cuts: list[int]) -> tuple[list[Command], str, int]:
    """What a connection makes of a stream that arrives in pieces, and how it ends."""
    end, commands, error = Connection(4096, 2048), [], ""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    try:
        for start, stop in pairwise(edges):
            for command in end.receive(data[start:stop]):
                commands.append(command)
    except RocketlineError as problem:
        error = str(problem)
    return commands, error, end.buffered_bytes if not error else 0


def same_frames(data: bytes, cuts: list[int]) -> None:
    quickly = received(data, cuts)
    with pure(connection, "take_frames"):
        carefully = received(data, cuts)
    assert quickly == carefully
    assert [type(command) for command in quickly[0]] == [type(command) for command in carefully[0]]


@thorough
@given(st.lists(frames, max_size=6).map(b"".join), st.lists(st.integers(0, 5000), max_size=3))
def test_frames(data: bytes, cuts: list[int]) -> None:
    same_frames(data, cuts)


@thorough
@given(st.data(), st.lists(plain_commands, min_size=1, max_size=4))
def test_frames_with_wrong_bytes(data: st.DataObject, commands: list[Command]) -> None:
    stream = bytearray(b"".join(_frame_of(command) for command in commands))
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, len(stream) - 1), st.integers(0, 255)), max_size=4)):
        stream[place] = byte
    same_frames(bytes(stream), [])


def test_the_frames_of_a_send_are_plain() -> None:
    """Or nothing here would compare anything."""
    take = compiled("take_frames")
    fields = {"a": "group", "b": "topic", "i": "UNIQ_KEY\x01AB\x02", "k": "false"}
    for encoding in (JSON, ROCKETMQ):
        stream = frame_bytes(Command(310, fields, b"body", 7, version=493, language="JAVA", encoding=encoding)) * 3
        commands, position = take(stream, 0, 4096, 2048, connection.Received, Command)
        assert position == len(stream)
        assert [(one.code, one.ext, one.body, one.opaque) for one in commands] == [(310, fields, b"body", 7)] * 3


@thorough
@given(st.text("0123456789ABCDEF", max_size=40), st.lists(st.integers(0, (1 << 63) - 1)).map(tuple))
def test_offset_ids(host: str, log_offsets: tuple[int, ...]) -> None:
    assert compiled("offset_ids")(host, log_offsets) == python("offset_ids")(host, log_offsets)


def test_pulls_of_javas_clients_are_plain() -> None:
    """They are taken apart into three numbers and what stays."""
    take_pulls = _impl.compiled_only("take_pulls")
    seen = 0
    for frame in golden.frames():
        if frame.request not in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            continue
        (command,) = Connection().receive(frame.data)
        _, key = take_pulls(frame.data, MAX_FRAME_BYTES, MAX_HEADER_BYTES, {})
        if command.is_response:
            assert key is None
            continue
        assert command.ext is not None
        numbers = command.opaque, int(command.ext["queueOffset"]), int(command.ext["commitOffset"])
        assert take_pulls(frame.data, MAX_FRAME_BYTES, MAX_HEADER_BYTES, {key: "plan"}) == (
            [("plan", *numbers, len(frame.data))],
            None,
        )
        seen += 1
    assert seen > 40
