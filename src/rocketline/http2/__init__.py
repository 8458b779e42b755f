"""HTTP/2 for servers, without I/O: frames, header compression, streams and flow control."""

from rocketline.http2.connection import Http2Connection
from rocketline.http2.events import AnswerSent, DataReceived, Event, Http2Limits, RequestStarted, StreamReset
from rocketline.http2.frames import PREFACE, ConnectionFailed, ErrorCode
from rocketline.http2.requests import Headers
from rocketline.http2.stream import Stream

__all__ = [
    "PREFACE",
    "AnswerSent",
    "ConnectionFailed",
    "DataReceived",
    "ErrorCode",
    "Event",
    "Headers",
    "Http2Connection",
    "Http2Limits",
    "RequestStarted",
    "Stream",
    "StreamReset",
]
