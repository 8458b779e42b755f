"""Frames of HTTP/2 (RFC 9113): numbers of types, flags, settings and errors, and frames of our own."""

from __future__ import annotations

import struct
from enum import IntEnum

from rocketline.errors import RemoteProtocolError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
FRAME_BYTES = 16_384
"""Most bytes of a frame without its head: the size that holds without a setting, in both directions."""
MAX_WINDOW = (1 << 31) - 1
WINDOW_BYTES = 65_535
"""Windows without a setting."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)

_HEAD = struct.Struct(">IBI")
_UINT = struct.Struct(">I")
_SETTING = struct.Struct(">HI")


class ErrorCode(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ConnectionFailed(RemoteProtocolError):
    """The peer broke the rules in a way that ends the connection."""

    def __init__(self, code: ErrorCode, problem: str) -> None:
        super().__init__(problem)
        self.code = code


class StreamFailed(RemoteProtocolError):
    """The peer broke the rules in a way that ends one stream."""

    def __init__(self, stream_id: int, code: ErrorCode, problem: str) -> None:
        super().__init__(problem)
        self.stream_id = stream_id
        self.code = code


def frame_head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    return _HEAD.pack(length << 8 | kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def settings_frame(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    return list(_SETTING.iter_unpack(payload))


def reset_frame(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, _UINT.pack(code))


def goaway_frame(last_stream_id: int, code: int, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _UINT.pack(last_stream_id) + _UINT.pack(code) + text.encode()[:200])


def window_frame(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, _UINT.pack(increment))


def read_uint(payload: bytes) -> int:
    """The number of a frame that has one, without its reserved bit."""
    return int(_UINT.unpack(payload)[0]) & MAX_WINDOW
