"""HTTP/2 with any input: cut anywhere the same events, and of garbage nothing but the end of the connection."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from rocketline.http2 import PREFACE, ConnectionFailed, DataReceived, Event, Http2Connection, RequestStarted
from rocketline.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, frame, settings_frame
from rocketline.http2.hpack import Decoder, encode_fields, encode_integer
from rocketline.http2.huffman import decode, encode

BLOCK = encode_fields((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"))
START = PREFACE + settings_frame({})


def _shown(event: Event) -> tuple[object, ...]:
    if isinstance(event, RequestStarted):
        return "request", event.stream.id, tuple((event.headers or {}).items()), event.is_ended
    if isinstance(event, DataReceived):
        return "data", event.stream.id, event.data, event.is_ended
    return "reset", event.stream.id, event.code


def _run(parts: list[bytes]) -> tuple[list[tuple[object, ...]], bytes, object]:
    """(events, output, how it ended)."""
    connection, events, failed = Http2Connection(), [], None
    try:
        for part in parts:
            events += [_shown(event) for event in connection.receive(part)]
    except ConnectionFailed as error:
        failed = error.code
    return events, b"".join(connection.take_output()), failed


def _requests(bodies: list[bytes]) -> bytes:
    found = [START]
    for number, body in enumerate(bodies):
        stream_id = 2 * number + 1
        found.append(frame(HEADERS, END_HEADERS, stream_id, BLOCK))
        found.append(frame(PING, 0, 0, bytes(8)))
        found.append(frame(DATA, END_STREAM if number % 3 else 0, stream_id, body))
        if number % 5 == 4:
            found.append(frame(RST_STREAM, 0, stream_id, b"\0\0\0\x08"))
    return b"".join(found)


@given(some.lists(some.binary(max_size=200), max_size=12), some.lists(some.integers(0, 4000), max_size=20))
def test_cut_anywhere(bodies: list[bytes], cuts: list[int]) -> None:
    whole = _requests(bodies)
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    parts = [whole[start:end] for start, end in pairwise(places)]
    assert _run(parts) == _run([whole])


@given(some.lists(some.binary(max_size=300), max_size=10))
def test_garbage_only_ends_the_connection(parts: list[bytes]) -> None:
    _run([START, *parts])


_FRAMES = some.builds(
    lambda kind, flags, stream_id, payload: frame(kind, flags, stream_id, payload),
    some.integers(0, 12),
    some.integers(0, 255),
    some.sampled_from([0, 1, 2, 3, 5, 7, 1 << 30]),
    some.one_of(some.binary(max_size=40), some.just(BLOCK), some.just(bytes(4)), some.just(bytes(8))),
)


@given(some.lists(_FRAMES, max_size=40))
def test_frames_at_random(frames: list[bytes]) -> None:
    _, written, failed = _run([START, *frames])
    if failed is not None:
        assert written.count(b"\x07") >= 1  # GOAWAY


@given(some.binary(max_size=100))
def test_huffman_round_trip(text: bytes) -> None:
    assert decode(encode(text)) == text


_VALUES = some.binary(max_size=60).filter(lambda value: not set(value) & {0, 10, 13})


@given(some.lists(some.lists(some.tuples(some.sampled_from([b"a", b"bb", b"content-type"]), _VALUES)), max_size=6))
def test_fields_with_a_table(blocks: list[list[tuple[bytes, bytes]]]) -> None:
    """Every field becomes an entry, so later blocks push earlier ones out."""
    decoder = Decoder(1 << 20)
    for fields in blocks:
        block = b"".join(b"\x40" + encode_integer(len(name), 0x7F) + name + _coded(value) for name, value in fields)
        assert decoder.decode(block) == fields


def _coded(value: bytes) -> bytes:
    coded = encode(value)
    return encode_integer(len(coded), 0x7F, 0x80) + coded
