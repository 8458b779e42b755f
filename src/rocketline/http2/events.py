"""What happens on a connection, and what one may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rocketline.http2.requests import Headers
from rocketline.http2.stream import Stream


@dataclass(frozen=True)
class Http2Limits:
    """What one connection may cost."""

    max_streams: int = 1024
    stream_window: int = 64 * 1024
    connection_window: int = 1024 * 1024
    max_header_bytes: int = 16 * 1024
    """Of the decoded fields of a request, as HTTP/2 counts them."""
    max_block_bytes: int = 64 * 1024
    """Of a header block as it comes."""
    max_resets: int = 1000
    """Streams that the peer may reset more often than it lets streams end."""
    max_idle_frames: int = 10_000
    """Frames in a row that bring nothing: pings, settings, empty data."""


class RequestStarted(NamedTuple):
    stream: Stream
    headers: Headers | None
    """None: there were more than allowed."""
    is_ended: bool


class DataReceived(NamedTuple):
    stream: Stream
    data: bytes
    is_ended: bool


class StreamReset(NamedTuple):
    """The stream is over before its answer was; the peer's doing, or the end of one that broke the rules."""

    stream: Stream
    code: int


class AnswerSent(NamedTuple):
    """All of an answer that had to wait for room was sent, and the stream is over."""

    stream: Stream


Event = RequestStarted | DataReceived | StreamReset | AnswerSent

DEFAULT_LIMITS = Http2Limits()
