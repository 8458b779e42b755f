"""The fields of a request, checked by the rules of HTTP/2."""

from __future__ import annotations

import re

from rocketline.http2.frames import ErrorCode, StreamFailed
from rocketline.http2.hpack import Field

Headers = dict[bytes, bytes]

PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
REQUIRED = (b":method", b":scheme", b":path")
_FORBIDDEN = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_MAX_NAMES = 1024
_names: set[bytes] = set()
"""Names that were found to be good."""


def checked_request(stream_id: int, fields: list[Field]) -> Headers:
    """The fields of a request by name; those of one name are joined. StreamFailed when the rules are broken."""
    is_regular = False
    for name, _ in fields:
        if name in _names:
            is_regular = True
        elif name in PSEUDO:
            if is_regular:
                raise _malformed(stream_id, f"{name.decode()} comes too late")
        else:
            _check_name(stream_id, name)
            is_regular = True
    headers = dict(fields)
    if len(headers) != len(fields):
        headers = _joined(stream_id, fields)
    for name in REQUIRED:
        if not headers.get(name):
            raise _malformed(stream_id, f"there is no {name.decode()}")
    if headers.get(b"te", b"trailers") != b"trailers":
        raise _malformed(stream_id, "te is not trailers")
    return headers


def checked_trailers(stream_id: int, fields: list[Field]) -> None:
    for name, _ in fields:
        if name[:1] == b":":
            raise _malformed(stream_id, "trailers have fields of a request")
        _check_name(stream_id, name)


def content_length(stream_id: int, headers: Headers) -> int:
    text = headers[b"content-length"]
    if not text.isdigit() or len(text) > 18:
        raise _malformed(stream_id, f"content-length is {text[:40]!r}")
    return int(text)


def _check_name(stream_id: int, name: bytes) -> None:
    if not _NAME.fullmatch(name) or name in _FORBIDDEN:
        raise _malformed(stream_id, f"the field {name[:40]!r} is not allowed")
    if len(_names) < _MAX_NAMES and len(name) <= 64:
        _names.add(name)


def _joined(stream_id: int, fields: list[Field]) -> Headers:
    headers: Headers = {}
    for name, value in fields:
        if name not in headers:
            headers[name] = value
        elif name in PSEUDO:
            raise _malformed(stream_id, f"{name.decode()} comes twice")
        else:
            headers[name] += (b"; " if name == b"cookie" else b",") + value
    return headers


def _malformed(stream_id: int, problem: str) -> StreamFailed:
    return StreamFailed(stream_id, ErrorCode.PROTOCOL_ERROR, problem)
