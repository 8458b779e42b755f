from __future__ import annotations

import struct

import pytest

from rocketline.errors import LocalProtocolError, RemoteProtocolError
from rocketline.protocol.command import JSON, ROCKETMQ, Command
from rocketline.protocol.connection import MAX_FRAME_BYTES, Connection, encode_frame, frame_bytes

GOOD = frame_bytes(Command(34, {"a": "b"}, b"body", opaque=9))


def raw(length: int, word: int, rest: bytes = b"") -> bytes:
    return struct.pack(">II", length, word) + rest


def test_layout() -> None:
    header_bytes = int.from_bytes(GOOD[5:8], "big")
    assert int.from_bytes(GOOD[:4], "big") == len(GOOD) - 4
    assert GOOD[4] == JSON
    assert GOOD[8 + header_bytes :] == b"body"
    assert frame_bytes(Command(34, encoding=ROCKETMQ))[4] == ROCKETMQ


def test_chunks_are_not_copied() -> None:
    log = bytearray(b"stored messages")
    piece = memoryview(log)[7:]
    first, second = encode_frame(Command(0, {}, chunks=[piece]))
    assert second is piece
    (command,) = Connection().receive(bytes(first) + bytes(second))
    assert command.body == b"messages"


def test_body_absent() -> None:
    (command,) = Connection().receive(frame_bytes(Command(34)))
    assert command.body == b""


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x80000000, MAX_FRAME_BYTES - 3, 3, 0])
def test_length_is_refused_as_soon_as_it_is_seen(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match="frame of"):
        list(Connection().receive(struct.pack(">I", length)))


def test_largest_frame() -> None:
    assert list(Connection().receive(raw(MAX_FRAME_BYTES - 4, 0))) == []


def test_header_longer_than_the_frame() -> None:
    with pytest.raises(RemoteProtocolError, match="header of 7"):
        list(Connection().receive(raw(10, 7)))


def test_header_over_the_limit() -> None:
    with pytest.raises(RemoteProtocolError):
        list(Connection(max_header_bytes=100).receive(raw(1000, 101)))


def test_unknown_encoding_byte() -> None:
    with pytest.raises(RemoteProtocolError, match="encoding 7"):
        list(Connection().receive(raw(6, 0x07000002, b"{}")))


def test_good_frames_before_a_bad_one_are_yielded() -> None:
    connection = Connection()
    commands = connection.receive(GOOD + GOOD + raw(0xFFFFFFFF, 0))
    assert next(commands).opaque == 9
    assert next(commands).opaque == 9
    with pytest.raises(RemoteProtocolError):
        next(commands)


def test_half_a_frame_at_the_end() -> None:
    connection = Connection()
    assert list(connection.receive(GOOD[:-1])) == []
    assert connection.buffered_bytes == len(GOOD) - 1
    with pytest.raises(RemoteProtocolError, match=f"{len(GOOD) - 1} bytes into a frame"):
        connection.finish()


def test_nothing_left_at_the_end() -> None:
    connection = Connection()
    assert len(list(connection.receive(GOOD))) == 1
    assert connection.buffered_bytes == 0
    connection.finish()


def test_memory_follows_what_arrived_not_what_was_announced() -> None:
    connection = Connection()
    list(connection.receive(raw(MAX_FRAME_BYTES - 4, 0, b"x")))
    assert connection.buffered_bytes == 9


def test_hostile_header_length_is_refused_before_the_rest_arrives() -> None:
    connection = Connection()
    data = raw(1_000_000, 999_999)
    for at in range(7):
        assert list(connection.receive(data[at : at + 1])) == []
    with pytest.raises(RemoteProtocolError):
        list(connection.receive(data[7:8]))


def test_garbage_that_is_text() -> None:
    with pytest.raises(RemoteProtocolError):
        list(Connection().receive(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"))


def test_header_too_long_for_a_frame_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="header of"):
        encode_frame(Command(0, {"x": "y" * 0x1000000}))


@pytest.mark.parametrize(
    ("start", "named"),
    [
        ("16 03 01 02 00 01 00 01", "a TLS handshake instead of a frame"),
        ("15 03 03 00 02 02 46 00", "a TLS alert instead of a frame"),
        ("48 54 54 50 2f 31 2e 31", "frame of 1213486160 bytes"),
    ],
)
def test_who_speaks_another_protocol_is_told_so(start: str, named: str) -> None:
    with pytest.raises(RemoteProtocolError, match=named):
        list(Connection().receive(bytes.fromhex(start)))
