"""How a gRPC call ends, and the header blocks that say so."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from rocketline.errors import RocketlineError
from rocketline.http2.hpack import encode_fields


class Status(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class CallFailed(RocketlineError):
    """Raised by a method: the call ends with this status and no message."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


_TYPE = (b"content-type", b"application/grpc")
_OK = (b":status", b"200")
ANSWER_HEADERS = encode_fields(_OK, _TYPE, (b"grpc-accept-encoding", b"gzip"))
OK_TRAILERS = encode_fields((b"grpc-status", b"0"))
_MAX_TEXT = 1024


def trailers(status: Status, text: str) -> bytes:
    """The block that ends an answer."""
    return OK_TRAILERS if status is Status.OK else encode_fields(*_fields(status, text))


def trailers_only(status: Status, text: str) -> bytes:
    """The only block of an answer without messages."""
    return encode_fields(_OK, _TYPE, *_fields(status, text))


def _fields(status: Status, text: str) -> list[tuple[bytes, bytes]]:
    return [(b"grpc-status", b"%d" % status), (b"grpc-message", percent_encoded(text[:_MAX_TEXT]))]


@lru_cache(16)
def no_grpc(http_status: int) -> bytes:
    """The only block of an answer to a request that is none of gRPC's."""
    return encode_fields((b":status", b"%d" % http_status))


def percent_encoded(text: str) -> bytes:
    """A text as `grpc-message` has it.

    >>> percent_encoded("50 % of caf\\u00e9")
    b'50 %25 of caf%C3%A9'
    """
    return b"".join(
        bytes((byte,)) if 0x20 <= byte < 0x7F and byte != 0x25 else b"%%%02X" % byte for byte in text.encode()
    )
