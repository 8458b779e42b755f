"""HTTP/2 by hand, for peers that keep no rules: frames are bytes, and nobody checks them before they go out."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from tests.support.patience import PATIENCE_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """`length` may lie."""
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header_block(headers: Mapping[str, str]) -> bytes:
    """Literals without a table, the plainest form."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, size = b"", len(data) - 127
    while size >= 128:
        rest += bytes([size % 128 + 128])
        size //= 128
    return b"\x7f" + rest + bytes([size]) + data


def call_headers(method: str, client_id: str) -> bytes:
    """The header block of a call of RocketMQ's service."""
    return header_block(
        {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"/apache.rocketmq.v2.MessagingService/{method}",
            ":authority": "test",
            "te": "trailers",
            "content-type": "application/grpc",
            "x-mq-client-id": client_id,
            "x-mq-client-version": "5.1.2",
            "x-mq-language": "PYTHON",
        }
    )


def grpc_message(data: bytes, length: int | None = None) -> bytes:
    """A message with its prefix; `length` may lie."""
    return struct.pack(">BI", 0, len(data) if length is None else length) + data


class RawPeer:
    """A connection; a context manager."""

    def __init__(self, address: str, *, window: int | None = None, hello: bool = True) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        if hello:
            settings = b"" if window is None else struct.pack(">HI", INITIAL_WINDOW, window)
            self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(SETTINGS, ACK, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def flood(self, data: bytes, limit_bytes: int) -> int:
        """Send the same again and again, until the other side has had enough; how much it took."""
        taken = 0
        with suppress(OSError):
            while taken < limit_bytes:
                self._socket.sendall(data)
                taken += len(data)
        return taken

    def read_frame(self) -> tuple[int, int, int, bytes] | None:
        """Kind, flags, stream and payload of the next frame; None at the end."""
        head = self._read(9)
        if head is None:
            return None
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        payload = self._read(int.from_bytes(head[:3], "big"))
        return None if payload is None else (kind, flags, stream, payload)

    def ended(self) -> bool:
        """Read until the other side ends the connection."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                if self.read_frame() is None:
                    return True
            except OSError:
                return True
        return False

    def answer_of(self, stream: int) -> list[tuple[int, int, bytes]]:
        """All frames of a stream until it ends."""
        found = []
        while (got := self.read_frame()) is not None:
            kind, flags, number, payload = got
            if number == stream:
                found.append((kind, flags, payload))
                if kind == RST_STREAM or (flags & END_STREAM and kind in (DATA, HEADERS)):
                    break
        return found

    def _read(self, size: int) -> bytes | None:
        found = b""
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            if not piece:
                return None
            found += piece
        return found
