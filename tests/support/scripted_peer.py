"""A gRPC client without a socket, and the connection that serves it: bytes are passed by hand, so nothing is left to chance.

It keeps to the windows that it is given, as a good client does.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rocketline.grpc.calls import Served
from rocketline.grpc.channel import GrpcChannel
from rocketline.grpc.framing import framed
from rocketline.http2 import PREFACE, Http2Limits
from rocketline.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    WINDOW_BYTES,
    WINDOW_UPDATE,
    frame,
    settings_frame,
    window_frame,
)
from rocketline.http2.hpack import encode_fields

FrameParts = tuple[int, int, int, bytes]
"""(kind, flags, stream, payload)"""


class WireTransport(asyncio.Transport):
    """Takes what is written, and hands it to whom asks."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False
        self.unread_bytes = 0
        """What the peer is said not to have read."""

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(bytes(data) for data in list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Peer:
    """A client of one method."""

    def __init__(self, served: Served, *, peer_settings: dict[int, int] | None = None) -> None:
        self._path = served.method.path.encode()
        self.channel = GrpcChannel({self._path: served}, Http2Limits(), lambda _: None, lambda _: None)
        self.transport = WireTransport()
        self.channel.connection_made(self.transport)
        self._next = 1
        self._window = Http2Limits().stream_window
        self.room: dict[int, int] = {0: WINDOW_BYTES}
        self.unsent: dict[int, memoryview] = {}
        """What there was no room for yet, by stream."""
        self._ending: set[int] = set()
        self.seen: list[FrameParts] = []
        """All frames of the server."""
        self._shown = 0
        self.channel.data_received(PREFACE + settings_frame(peer_settings or {}))
        self.frames()

    def frames(self) -> list[FrameParts]:
        """What the server sent since this was asked last."""
        self._absorb()
        found, self._shown = self.seen[self._shown :], len(self.seen)
        return found

    def _absorb(self) -> None:
        written, self.transport.written = self.transport.written, b""
        at = 0
        while at < len(written):
            length = int.from_bytes(written[at : at + 3], "big")
            stream = int.from_bytes(written[at + 5 : at + 9], "big")
            payload = written[at + 9 : at + 9 + length]
            self.seen.append((written[at + 3], written[at + 4], stream, payload))
            if written[at + 3] == WINDOW_UPDATE:
                self.room[stream] = self.room.get(stream, self._window) + int.from_bytes(payload, "big")
            at += 9 + length

    def begin(self, message: Any, *, timeout: str | None = None, ends: bool = True) -> int:
        """The headers of a call; its message waits until `flow`."""
        stream, self._next = self._next, self._next + 2
        more = ((b"grpc-timeout", timeout.encode()),) if timeout else ()
        block = encode_fields(
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", self._path), (b":authority", b"test"),
            (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more,
        )  # fmt: skip
        self.room[stream] = self._window
        self.channel.data_received(frame(HEADERS, END_HEADERS, stream, block))
        self.add(stream, message)
        if ends:
            self._ending.add(stream)
        return stream

    def add(self, stream: int, message: Any) -> None:
        self.unsent[stream] = memoryview(bytes(self.unsent.get(stream, b"")) + framed(message.SerializeToString()))

    def request(self, message: Any, *, timeout: str | None = None) -> int:
        stream = self.begin(message, timeout=timeout)
        self.flow()
        return stream

    def flow(self) -> None:
        """Send what there is room for, in turns."""
        moved = True
        while moved:
            moved = False
            for stream in list(self.unsent):
                self._absorb()
                left = self.unsent[stream]
                size = min(16384, len(left), self.room[stream], self.room[0])
                if size <= 0:
                    continue
                moved = True
                self.room[stream] -= size
                self.room[0] -= size
                self.unsent[stream] = left[size:]
                is_last = size == len(left)
                if is_last:
                    del self.unsent[stream]
                ends = is_last and stream in self._ending
                self.channel.data_received(frame(DATA, END_STREAM if ends else 0, stream, bytes(left[:size])))

    def end(self, stream: int) -> None:
        self.channel.data_received(frame(DATA, END_STREAM, stream, b""))

    def reset(self, stream: int) -> None:
        self.unsent.pop(stream, None)
        self.channel.data_received(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))

    def give_room(self, stream: int, size: int) -> None:
        """Open a window of ours, 0 for that of the connection; for a stream, as much of the connection too."""
        room = window_frame(stream, size)
        self.channel.data_received(room + window_frame(0, size) if stream else room)
