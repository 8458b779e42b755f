"""The header of a load balancer (PROXY protocol, versions 1 and 2) that says for whom it connects. Bytes in, address out."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from rocketline.errors import RemoteProtocolError
from rocketline.protocol.numbers import read_number

V1_START = b"PROXY "
V2_START = b"\r\n\r\n\x00\r\nQUIT\n"
MAX_V1_BYTES = 107
MAX_V2_BYTES = 16 + 2048
"""Load balancers add fields of their own behind the addresses; none needs that much."""

_V1_LINE = re.compile(rb"PROXY (?:UNKNOWN[^\r\n]*|TCP[46] (\S+) \S+ (\d{1,5}) \d{1,5})\r\n")
_ADDRESS_BYTES = {0x11: 4, 0x21: 16}
"""Bytes of an address over TCP, IPv4 and IPv6."""

Peer = tuple[str, int]


class ProxyHeader(NamedTuple):
    """`peer` is None when the load balancer speaks for itself, as in a health check."""

    length: int
    peer: Peer | None


def read_proxy_header(data: bytes | bytearray) -> ProxyHeader | None:
    """The header that `data` begins with, None while it is not complete; RemoteProtocolError when there is none."""
    if data.startswith(V2_START[: len(data)]):
        return _read_v2(bytes(data))
    if data.startswith(V1_START[: len(data)]):
        return _read_v1(bytes(data))
    raise RemoteProtocolError("no PROXY header at its beginning, which rocketline.proxyProtocolFrom demands of it")


def _read_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, MAX_V1_BYTES)
    if end < 0:
        if len(data) >= MAX_V1_BYTES:
            raise RemoteProtocolError(f"a PROXY header without an end in its first {MAX_V1_BYTES} bytes")
        return None
    line = _V1_LINE.fullmatch(data[: end + 2])
    if line is None:
        raise RemoteProtocolError("a PROXY header that cannot be read")
    peer = None if line[1] is None else _peer(line[1].decode("ascii", "replace"), line[2].decode())
    return ProxyHeader(end + 2, peer)


def _peer(host: str, port: str) -> Peer:
    number = read_number(port, highest=65535)
    try:
        ip = str(ip_address(host))
    except ValueError:
        number = None
    if number is None:
        raise RemoteProtocolError("a PROXY header with an address that is none")
    return ip, number


def _read_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < 16:
        return None
    version, command = data[12] >> 4, data[12] & 15
    length = 16 + int.from_bytes(data[14:16], "big")
    if version != 2 or command > 1 or length > MAX_V2_BYTES:
        raise RemoteProtocolError("a PROXY header that cannot be read")
    if len(data) < length:
        return None
    size = _ADDRESS_BYTES.get(data[13], 0)
    if command == 0 or not size:
        return ProxyHeader(length, None)
    if length < 16 + 2 * size + 4:
        raise RemoteProtocolError("a PROXY header that is too short for its addresses")
    port = 16 + 2 * size
    return ProxyHeader(length, (str(ip_address(data[16 : 16 + size])), int.from_bytes(data[port : port + 2], "big")))
