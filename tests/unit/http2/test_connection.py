"""The server's side of HTTP/2: requests, flow control both ways, and what ends a stream or a connection."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from rocketline.http2 import (
    PREFACE,
    ConnectionFailed,
    DataReceived,
    ErrorCode,
    Event,
    Http2Connection,
    Http2Limits,
    RequestStarted,
    StreamReset,
)
from rocketline.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    read_uint,
    settings_frame,
    window_frame,
)
from rocketline.http2.hpack import encode_fields

REQUEST = encode_fields((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b"x", b"y"))
ANSWER = encode_fields((b":status", b"200"))
TRAILERS = encode_fields((b"grpc-status", b"0"))
START = PREFACE + settings_frame({})


def headers(stream_id: int = 1, block: bytes = REQUEST, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream_id, block)


def data(payload: bytes, stream_id: int = 1, flags: int = 0) -> bytes:
    return frame(DATA, flags, stream_id, payload)


class Peer:
    """A connection, and the frames it wrote."""

    def __init__(self, limits: Http2Limits | None = None, start: bytes = START) -> None:
        self.connection = Http2Connection(limits or Http2Limits())
        self.connection.take_output()
        self.events(start)
        self.frames()

    def events(self, received: bytes) -> list[Event]:
        return list(self.connection.receive(received))

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """(kind, flags, stream, payload) of everything written since."""
        written, found = b"".join(self.connection.take_output()), []
        while written:
            length = int.from_bytes(written[:3], "big")
            found.append((written[3], written[4], int.from_bytes(written[5:9], "big"), written[9 : 9 + length]))
            written = written[9 + length :]
        return found

    def resets(self) -> list[tuple[int, int]]:
        return [(stream, read_uint(payload)) for kind, _, stream, payload in self.frames() if kind == RST_STREAM]


def test_a_request_and_its_answer() -> None:
    peer = Peer()
    started, received = peer.events(headers() + data(b"abc", flags=END_STREAM))
    assert isinstance(started, RequestStarted)
    assert started.headers is not None
    assert (started.headers[b":path"], started.headers[b"x"], started.is_ended) == (b"/a", b"y", False)
    assert isinstance(received, DataReceived)
    assert (received.data, received.is_ended) == (b"abc", True)
    peer.connection.send_answer(started.stream, ANSWER, b"xyz", TRAILERS)
    assert [frame[:3] for frame in peer.frames()] == [
        (HEADERS, END_HEADERS, 1),
        (DATA, 0, 1),
        (HEADERS, END_HEADERS | END_STREAM, 1),
    ]
    assert not peer.connection.streams


def test_what_it_promises_at_the_start() -> None:
    connection = Http2Connection(Http2Limits(max_streams=7, stream_window=1000))
    first = b"".join(connection.take_output())
    assert bytes.fromhex("000300000007") in first
    assert bytes.fromhex("0004000003e8") in first


def test_blocks_in_several_frames_and_padding() -> None:
    peer = Peer()
    received = headers(block=REQUEST[:3], flags=0) + frame(CONTINUATION, END_HEADERS, 1, REQUEST[3:])
    received += data(b"\x03abc\0\0\0", flags=PADDED | END_STREAM)
    started, body = peer.events(received)
    assert isinstance(started, RequestStarted)
    assert isinstance(body, DataReceived)
    assert body.data == b"abc"


def test_pings_and_settings_are_answered() -> None:
    peer = Peer()
    assert peer.events(frame(PING, 0, 0, b"12345678") + settings_frame({})) == []
    assert peer.frames() == [(PING, ACK, 0, b"12345678"), (SETTINGS, ACK, 0, b"")]


def test_data_waits_for_room_in_both_windows() -> None:
    peer = Peer(start=PREFACE + settings_frame({INITIAL_WINDOW_SIZE: 10}))
    (started,) = peer.events(headers(flags=END_HEADERS | END_STREAM))
    connection, stream = peer.connection, started.stream
    connection.send_answer(stream, ANSWER, b"x" * 25, TRAILERS)
    assert [len(payload) for kind, _, _, payload in peer.frames() if kind == DATA] == [10]
    assert connection.queued_bytes == 15
    peer.events(window_frame(1, 10))
    assert [len(payload) for kind, _, _, payload in peer.frames() if kind == DATA] == [10]
    peer.events(settings_frame({INITIAL_WINDOW_SIZE: 20}))
    kinds = [kind for kind, *_ in peer.frames()]
    assert kinds == [SETTINGS, DATA, HEADERS]
    assert connection.queued_bytes == 0
    assert not connection.streams


def test_of_one_setting_named_twice_the_last_counts() -> None:
    peer = Peer(start=PREFACE + settings_frame({INITIAL_WINDOW_SIZE: 0}))
    (started,) = peer.events(headers(flags=END_HEADERS | END_STREAM))
    peer.connection.send_answer(started.stream, ANSWER, b"x" * 25, TRAILERS)
    peer.frames()
    sizes = [struct.pack(">HI", INITIAL_WINDOW_SIZE, size) for size in (25, 10)]
    peer.events(frame(SETTINGS, 0, 0, b"".join(sizes)))
    assert [len(payload) for kind, _, _, payload in peer.frames() if kind == DATA] == [10]


def test_room_of_one_stream_is_not_for_another() -> None:
    peer = Peer(start=PREFACE + settings_frame({INITIAL_WINDOW_SIZE: 0}))
    for event in peer.events(headers(1, flags=END_HEADERS | END_STREAM) + headers(3, flags=END_HEADERS | END_STREAM)):
        peer.connection.send_answer(event.stream, ANSWER, b"x" * 25, TRAILERS)
    peer.frames()
    peer.events(window_frame(3, 25))
    assert [(kind, stream) for kind, _, stream, _ in peer.frames()] == [(DATA, 3), (HEADERS, 3)]
    assert list(peer.connection.streams) == [1]


def test_the_window_of_the_connection_is_shared() -> None:
    peer = Peer(start=PREFACE + settings_frame({INITIAL_WINDOW_SIZE: 1 << 20}))
    events = peer.events(headers(1, flags=END_HEADERS | END_STREAM) + headers(3, flags=END_HEADERS | END_STREAM))
    for event in events:
        peer.connection.send_answer(event.stream, ANSWER, b"x" * 60_000, TRAILERS)
    sent = sum(len(payload) for kind, _, _, payload in peer.frames() if kind == DATA)
    assert sent == 65_535
    peer.events(window_frame(0, 100_000))
    assert sum(len(payload) for kind, _, _, payload in peer.frames() if kind == DATA) == 120_000 - sent


def test_a_reset_drops_what_waits_and_is_told_how_much() -> None:
    peer = Peer(start=PREFACE + settings_frame({INITIAL_WINDOW_SIZE: 10}))
    (started,) = peer.events(headers(flags=END_HEADERS | END_STREAM))
    peer.connection.send_answer(started.stream, ANSWER, b"x" * 25, TRAILERS)
    (reset,) = peer.events(frame(RST_STREAM, 0, 1, b"\0\0\0\x08"))
    assert isinstance(reset, StreamReset)
    assert (reset.code, reset.stream.queued_bytes, peer.connection.queued_bytes) == (ErrorCode.CANCEL, 15, 0)


def test_room_is_given_when_it_is_asked_for() -> None:
    peer = Peer(Http2Limits(stream_window=10))
    (started,) = peer.events(headers())
    peer.connection.grant(started.stream, 5)
    assert peer.frames() == [(WINDOW_UPDATE, 0, 1, b"\0\0\0\x05")]
    (received,) = peer.events(data(b"x" * 15))
    assert isinstance(received, DataReceived)
    (reset,) = peer.events(data(b"x"))
    assert isinstance(reset, StreamReset)
    assert peer.resets() == [(1, ErrorCode.FLOW_CONTROL_ERROR)]


def test_an_early_answer_resets_the_rest_of_the_request() -> None:
    peer = Peer()
    (started,) = peer.events(headers())
    peer.connection.send_trailers(started.stream, ANSWER)
    assert peer.resets() == [(1, ErrorCode.NO_ERROR)]
    assert not peer.connection.streams


def test_more_streams_than_promised_are_refused() -> None:
    peer = Peer(Http2Limits(max_streams=2))
    peer.events(headers(1) + headers(3) + headers(5))
    assert peer.resets() == [(5, ErrorCode.REFUSED_STREAM)]
    assert len(peer.connection.streams) == 2


def test_too_many_headers_are_told_apart_from_bad_ones() -> None:
    peer = Peer(Http2Limits(max_header_bytes=200))
    (started,) = peer.events(headers(block=REQUEST + encode_fields((b"long", b"x" * 200))))
    assert isinstance(started, RequestStarted)
    assert started.headers is None


@pytest.mark.parametrize(
    "fields",
    [
        [(b":method", b"POST"), (b":scheme", b"http")],
        [(b":method", b"POST"), (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b"x", b"y"), (b":path", b"/")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b":other", b"y")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b"X", b"y")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b"connection", b"close")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b"te", b"gzip")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b"a", b"b\r\nc: d")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b"content-length", b"-1")],
    ],
)
def test_malformed_requests_are_reset(fields: list[tuple[bytes, bytes]]) -> None:
    peer = Peer()
    peer.events(headers(block=encode_fields(*fields)))
    assert peer.resets() == [(1, ErrorCode.PROTOCOL_ERROR)]


def test_a_body_that_is_not_as_long_as_it_says() -> None:
    peer = Peer()
    block = REQUEST + encode_fields((b"content-length", b"5"))
    peer.events(headers(block=block) + data(b"abc", flags=END_STREAM))
    assert peer.resets() == [(1, ErrorCode.PROTOCOL_ERROR)]


@pytest.mark.parametrize(
    ("received", "code"),
    [
        (data(b"x"), ErrorCode.PROTOCOL_ERROR),
        (data(b"x", 0), ErrorCode.PROTOCOL_ERROR),
        (headers(2), ErrorCode.PROTOCOL_ERROR),
        (headers(3) + headers(1), ErrorCode.STREAM_CLOSED),
        (headers(flags=0) + frame(PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(CONTINUATION, END_HEADERS, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (headers(block=b"\x80"), ErrorCode.COMPRESSION_ERROR),
        (headers(block=b"\x10x", flags=END_HEADERS | PADDED), ErrorCode.PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 1, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(PING, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (frame(GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(PUSH_PROMISE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(PRIORITY, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
        (settings_frame({INITIAL_WINDOW_SIZE: 1 << 31}), ErrorCode.FLOW_CONTROL_ERROR),
        (settings_frame({5: 100}), ErrorCode.PROTOCOL_ERROR),
        (settings_frame({2: 2}), ErrorCode.PROTOCOL_ERROR),
        (window_frame(0, 0), ErrorCode.PROTOCOL_ERROR),
        (window_frame(0, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (window_frame(1, 1), ErrorCode.PROTOCOL_ERROR),
        (b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_what_ends_a_connection(received: bytes, code: ErrorCode) -> None:
    peer = Peer()
    with pytest.raises(ConnectionFailed) as failed:
        peer.events(received)
    assert failed.value.code is code
    kind, _, _, payload = peer.frames()[-1]
    assert (kind, int.from_bytes(payload[4:8], "big")) == (GOAWAY, code)


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n\r\n", PREFACE + frame(PING, 0, 0, bytes(8))])
def test_a_connection_begins_as_it_must(start: bytes) -> None:
    with pytest.raises(ConnectionFailed):
        list(Http2Connection().receive(start))


def _flood(make: Callable[[int], bytes]) -> ErrorCode:
    peer = Peer(Http2Limits(max_resets=50, max_idle_frames=500, max_block_bytes=50_000))
    with pytest.raises(ConnectionFailed) as failed:
        for number in range(5000):
            peer.events(make(number))
            peer.frames()
    assert len(peer.connection.streams) <= 1
    return failed.value.code


def test_floods_end_the_connection() -> None:
    def rapid_reset(number: int) -> bytes:
        return headers(2 * number + 1) + frame(RST_STREAM, 0, 2 * number + 1, b"\0\0\0\x08")

    assert _flood(rapid_reset) is ErrorCode.ENHANCE_YOUR_CALM
    assert _flood(lambda number: frame(PING, 0, 0, bytes(8))) is ErrorCode.ENHANCE_YOUR_CALM
    assert _flood(lambda number: settings_frame({})) is ErrorCode.ENHANCE_YOUR_CALM
    assert _flood(lambda number: data(b"") if number else headers()) is ErrorCode.ENHANCE_YOUR_CALM
    endless = frame(CONTINUATION, 0, 1, b"x" * 1000)
    assert _flood(lambda number: endless if number else headers(flags=0)) is ErrorCode.ENHANCE_YOUR_CALM


def test_resets_of_a_client_that_also_finishes_are_no_flood() -> None:
    peer = Peer(Http2Limits(max_resets=5))
    for number in range(100):
        first, second = 4 * number + 1, 4 * number + 3
        (started, *_) = peer.events(headers(first, flags=END_HEADERS | END_STREAM) + headers(second))
        peer.connection.send_answer(started.stream, ANSWER, b"", TRAILERS)
        peer.events(frame(RST_STREAM, 0, second, b"\0\0\0\x08"))
        peer.frames()


def test_a_peer_with_a_smaller_header_table_is_told() -> None:
    peer = Peer(start=PREFACE + settings_frame({1: 0}))
    events = peer.events(headers(1, flags=END_HEADERS | END_STREAM) + headers(3, flags=END_HEADERS | END_STREAM))
    for event in events:
        peer.connection.send_answer(event.stream, ANSWER, b"", TRAILERS)
    blocks = [payload for kind, _, _, payload in peer.frames() if kind == HEADERS]
    assert blocks == [b"\x20" + ANSWER, TRAILERS, ANSWER, TRAILERS]
