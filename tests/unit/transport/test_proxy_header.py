"""PROXY headers, whole, in pieces and broken."""

from __future__ import annotations

import socket
import struct

import pytest

from rocketline.errors import RemoteProtocolError
from rocketline.transport.proxy_header import V2_START, ProxyHeader, read_proxy_header


def v2(command: int, family: int, addresses: bytes, version: int = 2) -> bytes:
    return V2_START + bytes([version << 4 | command, family]) + struct.pack(">H", len(addresses)) + addresses


IPV4 = socket.inet_aton("10.9.8.7") + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 4711, 10911)
IPV6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + bytes(16) + struct.pack(">HH", 4711, 10911)


@pytest.mark.parametrize(
    ("header", "peer"),
    [
        (b"PROXY TCP4 10.9.8.7 10.0.0.1 4711 10911\r\n", ("10.9.8.7", 4711)),
        (b"PROXY TCP6 2001:db8::7 ::1 4711 10911\r\n", ("2001:db8::7", 4711)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ff ff 1 2\r\n", None),
        (v2(1, 0x11, IPV4), ("10.9.8.7", 4711)),
        (v2(1, 0x21, IPV6), ("2001:db8::7", 4711)),
        (v2(1, 0x11, IPV4 + b"fields of its own"), ("10.9.8.7", 4711)),
        (v2(0, 0x00, b""), None),
        (v2(1, 0x31, bytes(216)), None),
    ],
)
def test_whole_and_in_pieces(header: bytes, peer: tuple[str, int] | None) -> None:
    assert read_proxy_header(bytearray(header + b"\x16rest")) == ProxyHeader(len(header), peer)
    assert [read_proxy_header(header[:size]) for size in range(1, len(header))] == [None] * (len(header) - 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x10",
        b"\x16\x03\x01",
        b"PROXX",
        b"PROXY TCP4 10.9.8.7\r\n",
        b"PROXY TCP4 somebody 10.0.0.1 1 2\r\n",
        b"PROXY TCP4 10.9.8.7 10.0.0.1 70000 2\r\n",
        b"PROXY UDP4 10.9.8.7 10.0.0.1 1 2\r\n",
        b"PROXY " + b"x" * 200,
        v2(1, 0x11, IPV4, version=3),
        v2(2, 0x11, IPV4),
        v2(1, 0x11, IPV4[:8]),
        v2(1, 0x11, bytes(60_000)),
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="PROXY header"):
        read_proxy_header(data)
