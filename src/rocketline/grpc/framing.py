"""Messages inside a stream: a byte that says whether they are compressed, their length in four bytes, the message."""

from __future__ import annotations

import zlib

from rocketline.grpc.status import CallFailed, Status

HEAD_BYTES = 5
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A body of 4 MiB, which is what brokers take, with room for more such messages; as long as a frame of remoting."""
_GZIP = 16 + zlib.MAX_WBITS


def framed(message: bytes) -> bytes:
    """
    >>> framed(b"abc")
    b'\\x00\\x00\\x00\\x00\\x03abc'
    """
    return b"\0" + len(message).to_bytes(4, "big") + message


class MessageReader:
    """Cuts the data of one stream into messages."""

    __slots__ = ("_have", "_parts", "_size", "_unpacks")

    def __init__(self, encoding: bytes) -> None:
        self._parts: list[bytes] = []
        self._have = 0
        self._size: int | None = None
        """Of the message whose parts are there, with its head; None: not even the head is complete."""
        self._unpacks = encoding == b"gzip"

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a message is there that is not complete."""
        return not self._have

    @property
    def missing_bytes(self) -> int:
        """How much the message still needs of which something is there."""
        return 0 if self._size is None else self._size - self._have

    def receive(self, data: bytes) -> list[bytes]:
        """The messages that are complete now."""
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._size is not None and self._have < self._size:
                return []
            data = b"".join(self._parts)
        messages: list[bytes] = []
        position = 0
        while (size := _size_at(data, position)) is not None and position + size <= len(data):
            messages.append(self._message(data[position : position + size]))
            position += size
        rest = data[position:]
        self._parts, self._have, self._size = [rest] if rest else [], len(rest), size
        return messages

    def _message(self, frame: bytes) -> bytes:
        if not frame[0]:
            return frame[HEAD_BYTES:]
        if frame[0] != 1 or not self._unpacks:
            raise CallFailed(Status.INTERNAL, "a compressed message, and no grpc-encoding that is known here")
        return _unpacked(frame[HEAD_BYTES:])


def _size_at(data: bytes, position: int) -> int | None:
    """The size of a message with its head; None when the head is not complete."""
    if len(data) - position < HEAD_BYTES:
        return None
    length = int.from_bytes(data[position + 1 : position + HEAD_BYTES], "big")
    if length > MAX_MESSAGE_BYTES:
        raise CallFailed(
            Status.RESOURCE_EXHAUSTED, f"a message of {length} bytes is longer than the {MAX_MESSAGE_BYTES} taken here"
        )
    return HEAD_BYTES + length


def _unpacked(data: bytes) -> bytes:
    inflate = zlib.decompressobj(_GZIP)
    try:
        message = inflate.decompress(data, MAX_MESSAGE_BYTES)
    except zlib.error as error:
        raise CallFailed(Status.INTERNAL, f"a message that is no gzip: {error}") from error
    if inflate.unconsumed_tail:
        raise CallFailed(
            Status.RESOURCE_EXHAUSTED, f"a message that unpacks to more than the {MAX_MESSAGE_BYTES} bytes taken here"
        )
    if not inflate.eof:
        raise CallFailed(Status.INTERNAL, "a gzip message that is cut off")
    return message


_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def read_timeout(text: bytes) -> float:
    """Seconds of a `grpc-timeout`.

    >>> read_timeout(b"1500m"), read_timeout(b"2H")
    (1.5, 7200.0)
    """
    number, unit = text[:-1], _UNITS.get(text[-1:])
    if unit is None or not number.isdigit() or len(number) > 8:
        raise CallFailed(Status.INTERNAL, f"grpc-timeout {text[:20]!r} is none")
    return int(number) * unit
