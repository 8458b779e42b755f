"""HPACK: the examples of RFC 7541, and blocks that break its rules."""

from __future__ import annotations

import pytest

from rocketline.errors import RemoteProtocolError
from rocketline.http2 import huffman
from rocketline.http2.hpack import Decoder, encode_fields, encode_integer

FIRST = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com")]
SECOND = [*FIRST, (b"cache-control", b"no-cache")]
THIRD = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":path", b"/index.html"),
    (b":authority", b"www.example.com"),
    (b"custom-key", b"custom-value"),
]


@pytest.mark.parametrize(
    "blocks",
    [
        (  # C.3: without Huffman
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ),
        (  # C.4: with it
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ),
    ],
)
def test_requests_of_the_standard(blocks: tuple[str, ...]) -> None:
    decoder = Decoder(4096)
    assert [decoder.decode(bytes.fromhex(block)) for block in blocks] == [FIRST, SECOND, THIRD]


def test_numbers_of_the_standard() -> None:
    assert encode_integer(10, 31) == b"\x0a"
    assert encode_integer(1337, 31) == bytes.fromhex("1f9a0a")


def test_huffman_both_ways() -> None:
    assert huffman.encode(b"www.example.com").hex() == "f1e3c2e5f23a6ba0ab90f4ff"
    every_byte = bytes(range(256))
    assert huffman.decode(huffman.encode(every_byte)) == every_byte


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("80", "entry 0"),
        ("be", "not there"),
        ("ff8080808010", "too large"),
        ("4003", "inside"),
        ("00036162", "inside a text"),
        ("3fe21f", "larger than"),
        ("8220", "inside a block"),
        ("0001618100", "padding"),  # padded by zeros
        ("00016184ffffffff", "ends none"),
    ],
)
def test_broken_blocks(block: str, problem: str) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        Decoder(4096).decode(bytes.fromhex(block))


def test_a_long_list_is_cut_and_the_table_stays_right() -> None:
    decoder = Decoder(100)
    added = b"\x40" + encode_integer(1, 0x7F) + b"a" + encode_integer(1, 0x7F) + b"b"
    assert decoder.decode(added * 5) is None
    assert decoder.decode(b"\xbe") == [(b"a", b"b")]


def test_a_table_of_no_size_keeps_nothing() -> None:
    decoder = Decoder(4096)
    assert decoder.decode(bytes.fromhex("20") + b"\x40\x01a\x01b") == [(b"a", b"b")]
    with pytest.raises(RemoteProtocolError):
        decoder.decode(b"\xbe")


def test_a_value_with_a_line_end_has_no_name() -> None:
    assert Decoder(4096).decode(b"\x00\x01a\x01\n") == [(b"", b"\n")]


def test_our_own_fields_can_be_read() -> None:
    fields = [(b":status", b"200"), (b"grpc-status", b"0"), (b"long", b"x" * 300)]
    assert Decoder(4096).decode(encode_fields(*fields)) == fields
