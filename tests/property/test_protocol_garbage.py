"""Bytes from nowhere: everything that reads them takes them or raises an error of ours, never another one."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any
from zlib import compress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.golden.wire.load import Frame, frames, ids, records

from rocketline.errors import ConfigError, CorruptRecord, ProtocolError, RemoteProtocolError
from rocketline.protocol import bodies
from rocketline.protocol.compression import TYPES, decompress
from rocketline.protocol.connection import Connection, encode_frame
from rocketline.protocol.fastjson import FastJsonError, parse
from rocketline.protocol.header_codec import decode_header
from rocketline.protocol.headers import REQUEST_HEADERS, RESPONSE_HEADERS
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.record_layout import MAGIC_V1, MAGIC_V2
from rocketline.protocol.records import decode_batch, decode_messages, decode_record

OURS = (RemoteProtocolError, CorruptRecord, ProtocolError)
BODY_KINDS: tuple[Any, ...] = (
    bodies.HeartbeatData, bodies.TopicRouteData, bodies.RegisterBrokerBody, bodies.SubscriptionGroupWrapper,
    bodies.ConsumeStats, bodies.LockBatchRequestBody, bodies.ClusterInfo, bodies.KVTable, bodies.ConsumerOffsetTable,
)  # fmt: skip


jsonish = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"', "'", "\\", "/*", "*/", "//", "\n", " ", "0", "-1", "1.5", "1e9", "9" * 30,
         "null", "true",
         "a", '"a"', "'b'", '"$ref"', "$ref", "\\u0041", "\\ud800", "\0", "\ufeff", "ü", "😀", "NaN",
         '"clientID"', '"topic"', '"code"']
    ),
    max_size=40,
).map("".join)  # fmt: skip
garbage = st.binary(max_size=300) | jsonish.map(str.encode)


def feed(data: bytes, piece_bytes: int) -> None:
    connection = Connection()
    with suppress(RemoteProtocolError):
        for at in range(0, len(data), piece_bytes):
            for command in connection.receive(data[at : at + piece_bytes]):
                encode_frame(command)
                for kind in (REQUEST_HEADERS.get(command.code), RESPONSE_HEADERS.get(command.code)):
                    if kind is not None:
                        with suppress(RemoteProtocolError):
                            kind.decode(command).encode()
        connection.finish()


@st.composite
def framed(draw: st.DrawFn) -> bytes:
    """Garbage with right lengths around it, so that it gets past the first check."""
    header, body = draw(garbage), draw(garbage)
    word = draw(st.sampled_from([0, 0, 1, 1, 2, 255])) << 24 | len(header)
    return struct.pack(">II", 4 + len(header) + len(body), word) + header + body


@given(st.lists(framed() | garbage, max_size=3).map(b"".join), st.sampled_from([1, 3, 8, 1000]))
@example(b"\xff" * 100, 1)
@example(struct.pack(">II", 4, 0), 3)
def test_connection(data: bytes, piece_bytes: int) -> None:
    feed(data, piece_bytes)


@given(st.integers(0, 255), garbage)
def test_headers(encoding: int, header: bytes) -> None:
    for chosen in (0, 1, encoding):
        with suppress(RemoteProtocolError):
            decode_header(chosen, header, b"")


@given(jsonish | st.text(max_size=100) | st.binary(max_size=100))
def test_fastjson(text: str | bytes) -> None:
    with suppress(FastJsonError):
        parse(text)


@given(garbage)
def test_bodies(data: bytes) -> None:
    for kind in BODY_KINDS:
        with suppress(RemoteProtocolError):
            bodies.encode_body(bodies.decode_body(kind, data))
        with suppress(ConfigError):
            bodies.decode_file(kind, data)
    with suppress(RemoteProtocolError):
        bodies.decode_reset_offsets(data)
    with suppress(RemoteProtocolError):
        bodies.parse_queue_key(data.decode("utf-8", "surrogateescape"))
    for version in (30, 407, 493):
        for packed in (data, compress(data)):
            with suppress(RemoteProtocolError):
                bodies.decode_registration(packed, packed is not data, version)


@given(st.binary(max_size=300), st.sampled_from([MAGIC_V1, MAGIC_V2, 0]), st.integers(0, 60))
def test_records(data: bytes, magic: int, start: int) -> None:
    data = bytes(start) + struct.pack(">ii", len(data) + 8, magic) + data
    for read in (decode_messages, decode_batch):
        with suppress(*OURS):
            read(data)  # type: ignore[operator]
    with suppress(CorruptRecord):
        decode_record(data, start, len(data), check_crc=True)


@given(st.binary(max_size=300), st.integers(-(1 << 31), (1 << 31) - 1))
def test_compressed_bodies(data: bytes, sys_flag: int) -> None:
    with suppress(RemoteProtocolError):
        decompress(data, sys_flag, 1000)


@given(st.text(max_size=60))
def test_offset_ids(text: str) -> None:
    with suppress(ProtocolError):
        parse_offset_id(text)


def mutants(data: bytes, random: Random, count: int) -> list[bytes]:
    made = []
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.randrange(len(mutant))
            change = random.randrange(4)
            if change == 0:
                mutant[at] ^= 1 << random.randrange(8)
            elif change == 1:
                mutant[at] = random.choice(b"\x00\x01\x7f\x80\xff\"'{}[]:,\\")
            elif change == 2 and len(mutant) > 1:
                del mutant[at : at + random.randrange(1, 9)]
            else:
                mutant[at:at] = random.randbytes(random.randrange(1, 5))
            if not mutant:
                break
        made.append(bytes(mutant))
    return made


def fix_lengths(data: bytes, like: Frame) -> bytes:
    """The frame with its length made right again, so that what is inside is looked at."""
    if len(data) < 8:
        return data
    header_bytes = min(int.from_bytes(like.data[5:8], "big"), len(data) - 8)
    return struct.pack(">II", len(data) - 4, like.data[4] << 24 | header_bytes) + data[8:]


@pytest.mark.parametrize("seed", range(4))
def test_mutated_frames(seed: int) -> None:
    random = Random(seed)
    for frame in frames():
        for mutant in mutants(frame.data[:4000], random, 2):
            feed(mutant, 1000)
            feed(fix_lengths(mutant, frame), 1000)


def _bodies_of_golden_frames() -> list[bytes]:
    found = {}
    for frame in frames():
        (command,) = Connection().receive(frame.data)
        if command.body:
            found.setdefault((frame.request, command.is_response, command.code), command.body[:4000])
    return list(found.values())


@pytest.mark.parametrize("seed", range(3))
def test_mutated_bodies(seed: int) -> None:
    random = Random(seed)
    readers: list[Callable[[bytes], Any]] = [decode_messages, decode_batch, parse]
    for body in _bodies_of_golden_frames():
        for mutant in mutants(body, random, 4):
            for read in readers:
                with suppress(*OURS):
                    read(mutant)
            for kind in BODY_KINDS:
                with suppress(RemoteProtocolError):
                    bodies.encode_body(bodies.decode_body(kind, mutant))


def test_mutated_records() -> None:
    random = Random(5)
    for data, _ in records():
        for mutant in mutants(data, random, 400):
            with suppress(CorruptRecord):
                decode_record(mutant, 0, len(mutant))
            with suppress(*OURS):
                decode_messages(mutant, 100_000)


def test_mutated_compressed_bodies() -> None:
    random = Random(6)
    for vector in ids()["compress"]:
        for mutant in mutants(bytes.fromhex(vector["compressed"]), random, 200):
            with suppress(RemoteProtocolError):
                assert len(decompress(mutant, TYPES[vector["type"].lower()], 10_000)) <= 10_000
