"""The remoting protocol without any I/O: bytes in, commands out; commands in, bytes out.

    frame = length 4 | encoding 1, header length 3 | header | body

`length` counts everything after itself. A `Connection` is fed whatever a socket read returned and yields every complete
frame of it; a piece of a frame waits for the rest. Memory grows with bytes received, never with a length announced, and
a frame that is too large or malformed raises RemoteProtocolError at once, after the good frames before it were yielded:
the stream cannot be trusted from there on and must be closed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain

from rocketline._impl import compiled
from rocketline.errors import LocalProtocolError, RemoteProtocolError
from rocketline.protocol.command import Command
from rocketline.protocol.header_codec import Received, decode_header, encode_header
from rocketline.protocol.records import Buffer

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Largest frame, its length field included: Apache's limit."""

MAX_HEADER_BYTES = 4 * 1024 * 1024
"""Largest header. Real ones are below 256 KiB, except the answer to a batch of many thousand messages."""

_LENGTH = struct.Struct(">I")
_PREFIX = struct.Struct(">II")


@compiled
def take_frames(
    data: bytes,
    position: int,
    max_frame_bytes: int,
    max_header_bytes: int,
    received: type[Received],
    command: type[Command],
) -> tuple[list[Command], int]:
    """The commands of the complete and plain frames from `position` on, and where the rest begins.

    In Python it takes none: `Connection` reads them one by one, as it does with whatever is left.
    """
    return [], position


class Connection:
    """One direction-less end of a remoting connection: what it reads and how it writes."""

    __slots__ = ("_max_frame_bytes", "_max_header_bytes", "_missing", "partial")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_header_bytes = max_header_bytes
        self.partial = bytearray()
        """The beginning of a frame that has not come whole."""
        self._missing = 0

    def limit(self, max_frame_bytes: int, max_header_bytes: int) -> None:
        """From the next frame on."""
        self._max_frame_bytes, self._max_header_bytes = max_frame_bytes, max_header_bytes

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self.partial)

    @property
    def is_inside_frame(self) -> bool:
        """Whether the last bytes ended in the middle of a frame."""
        return bool(self.partial)

    def receive(self, data: bytes) -> Iterator[Command]:
        """Every command that `data` completes, in order."""
        if self.partial:
            data = self.joined(data)
        commands, position = take_frames(data, 0, self._max_frame_bytes, self._max_header_bytes, Received, Command)
        # What is left is the piece of a frame, or one to be read with care.
        return iter(commands) if position == len(data) else chain(commands, self._read(data, position))

    def joined(self, data: bytes) -> bytes:
        """The piece of a frame that came before, with what follows it; nothing while more is missing."""
        self.partial += data
        self._missing -= len(data)
        if self._missing > 0:
            return b""
        data = bytes(self.partial)
        self.partial.clear()
        return data

    def _read(self, data: bytes, position: int) -> Iterator[Command]:
        available = len(data)
        while available - position >= 8:
            length, word = _PREFIX.unpack_from(data, position)
            header_bytes = word & 0xFFFFFF
            if length + 4 > self._max_frame_bytes or header_bytes > length - 4 or header_bytes > self._max_header_bytes:
                raise self._bad_lengths(length, header_bytes)
            end = position + 4 + length
            if end > available:
                break
            body_at = position + 8 + header_bytes
            yield decode_header(word >> 24, data[position + 8 : body_at], data[body_at:end])
            position = end
        if position < available:
            self._keep(data, position, available)

    def finish(self) -> None:
        """The peer closed: RemoteProtocolError when it did so inside a frame."""
        if self.partial:
            raise RemoteProtocolError(f"connection closed {len(self.partial)} bytes into a frame")

    def _keep(self, data: bytes, position: int, available: int) -> None:
        left = available - position
        self.partial += data[position:] if position else data
        if left >= 4:
            length = _LENGTH.unpack_from(data, position)[0]
            if length + 4 > self._max_frame_bytes or length < 4:
                raise self._bad_lengths(length, 0)
            # Until the header's length is known, come back as soon as it is: a hostile one is refused early.
            self._missing = (8 if left < 8 else 4 + length) - left
        else:
            self._missing = 4 - left

    def _bad_lengths(self, length: int, header_bytes: int) -> RemoteProtocolError:
        return not_a_frame(length, header_bytes, self._max_frame_bytes, self._max_header_bytes)


def not_a_frame(
    length: int, header_bytes: int, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES
) -> RemoteProtocolError:
    """Lengths that no frame has, which are TLS where they begin as its records do."""
    if length >> 16 == 0x1603:
        return RemoteProtocolError("a TLS handshake instead of a frame, and TLS is not spoken here")
    if length >> 16 == 0x1503:
        return RemoteProtocolError("a TLS alert instead of a frame: it takes only TLS, connect with tls=True")
    return RemoteProtocolError(
        f"frame of {length} bytes with a header of {header_bytes}: a frame may have at most "
        f"{max_frame_bytes - 4} and a header {max_header_bytes}"
    )


def encode_frame(command: Command) -> list[Buffer]:
    """The frame as buffers to write one after the other; stored messages among them stay uncopied."""
    header = encode_header(command)
    header_bytes = len(header)
    word = (command.encoding << 24) | header_bytes
    if header_bytes > 0xFFFFFF:
        raise LocalProtocolError(f"header of {header_bytes} bytes does not fit a frame")
    if command.chunks is None:
        body = command.body
        return [b"".join((_PREFIX.pack(4 + header_bytes + len(body), word), header, body))]
    length = 4 + header_bytes + sum(map(len, command.chunks))
    return [_PREFIX.pack(length, word) + header, *command.chunks]


def frame_bytes(command: Command) -> bytes:
    """The frame in one piece."""
    return b"".join(encode_frame(command))
