"""When a certificate ends: read from its DER form, because Python's ssl module tells it only of a peer's certificate."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

_SEQUENCE, _UTC_TIME, _CONTEXT_0 = 0x30, 0x17, 0xA0


def not_after(pem: str) -> datetime | None:
    """The end of the first certificate in a PEM file; None when it cannot be told."""
    start, end = pem.find(ssl.PEM_HEADER), pem.find(ssl.PEM_FOOTER)
    try:
        der = ssl.PEM_cert_to_DER_cert(pem[start : end + len(ssl.PEM_FOOTER)])
        return _end_of(der)
    except (ValueError, IndexError):
        return None


def _end_of(der: bytes) -> datetime:
    """Certificate > signed part > validity: behind version, serial number, algorithm and issuer."""
    signed_part = _open(der, _open(der, 0))
    position = _skip(der, signed_part) if der[signed_part] == _CONTEXT_0 else signed_part
    for _ in range(3):
        position = _skip(der, position)
    end = _skip(der, _open(der, position))
    text = der[_open(der, end, der[end]) : _skip(der, end)].decode("ascii")
    return datetime.strptime(text, "%y%m%d%H%M%SZ" if der[end] == _UTC_TIME else "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _open(der: bytes, position: int, kind: int = _SEQUENCE) -> int:
    """Where the content of an element begins."""
    if der[position] != kind:
        raise ValueError(f"element {der[position]:#x} instead of {kind:#x}")
    return position + 2 + (der[position + 1] & 0x7F if der[position + 1] & 0x80 else 0)


def _skip(der: bytes, position: int) -> int:
    """Where the element behind the one at `position` begins."""
    content = _open(der, position, der[position])
    length = der[position + 1]
    if length & 0x80:
        length = int.from_bytes(der[position + 2 : content], "big")
    return content + length
