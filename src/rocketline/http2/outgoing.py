"""The half of a connection that sends: what is written, and what waits for room in the peer's windows."""

from __future__ import annotations

from collections import deque

from rocketline.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    HEADERS,
    WINDOW_BYTES,
    ErrorCode,
    frame,
    frame_head,
    reset_frame,
)
from rocketline.http2.stream import Stream

_NO_TABLE = b"\x20"
"""In a header block: the dynamic table is empty from here on."""


class Outgoing:
    """Header blocks and data of all streams."""

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self._send_window = WINDOW_BYTES
        self._peer_stream_window = WINDOW_BYTES
        self._peer_frame_bytes = FRAME_BYTES
        self._block_prefix = b""
        self._blocked: dict[Stream, None] = {}
        self.queued_bytes = 0
        """Data that waits for room in the peer's windows."""
        self.unqueued_bytes = 0
        """Data that has waited and was sent, since the beginning."""
        self._sent: list[Stream] = []
        """Streams that ended since the last event, after they had waited."""

    def take_output(self) -> list[bytes]:
        """What is to be written, in order."""
        out, self._out = self._out, []
        return out

    def send_answer(self, stream: Stream, headers: bytes, data: bytes, trailers: bytes) -> None:
        """A whole answer: two header blocks, and the data between them."""
        size = len(data)
        if (
            size > self._peer_frame_bytes
            or size > stream.send_window
            or size > self._send_window
            or self._block_prefix
            or not stream.is_remote_ended
        ):
            self.send_headers(stream, headers)
            self.send_data(stream, data)
            self.send_trailers(stream, trailers)
            return
        number = stream.id
        self._send_window -= size
        self._out.append(
            b"".join(
                (
                    frame_head(len(headers), HEADERS, END_HEADERS, number),
                    headers,
                    frame_head(size, DATA, 0, number),
                    data,
                    frame_head(len(trailers), HEADERS, END_HEADERS | END_STREAM, number),
                    trailers,
                )
            )
        )
        stream.is_local_ended = True
        self._finished(stream)

    def send_headers(self, stream: Stream, block: bytes) -> None:
        self._out.append(frame(HEADERS, END_HEADERS, stream.id, self._prefixed(block)))

    def send_data(self, stream: Stream, data: bytes) -> None:
        """Send data, or keep it until there is room."""
        if stream.outbox is None and len(data) <= min(stream.send_window, self._send_window, self._peer_frame_bytes):
            stream.send_window -= len(data)
            self._send_window -= len(data)
            self._out += (frame_head(len(data), DATA, 0, stream.id), data)
            return
        if stream.outbox is None:
            stream.outbox = deque()
            self._blocked[stream] = None
        stream.outbox.append(memoryview(data))
        stream.queued_bytes += len(data)
        self.queued_bytes += len(data)
        self._send_queued(stream)

    def send_trailers(self, stream: Stream, block: bytes) -> None:
        """End our side of a stream, after its data."""
        stream.is_local_ended = True
        if stream.outbox is not None:
            stream.trailers = block
        else:
            self._end(stream, block)

    def _prefixed(self, block: bytes) -> bytes:
        if self._block_prefix:
            block, self._block_prefix = self._block_prefix + block, b""
        return block

    def _send_blocked(self) -> None:
        """Send what there is room for now."""
        for stream in list(self._blocked):
            if self._send_window <= 0:
                break
            self._send_queued(stream)

    def _send_queued(self, stream: Stream) -> None:
        outbox = stream.outbox
        assert outbox is not None
        while outbox:
            room = min(stream.send_window, self._send_window, self._peer_frame_bytes)
            if room <= 0:
                return
            part = outbox[0][:room]
            size = len(part)
            if size == len(outbox[0]):
                outbox.popleft()
            else:
                outbox[0] = outbox[0][size:]
            stream.send_window -= size
            self._send_window -= size
            stream.queued_bytes -= size
            self.queued_bytes -= size
            self.unqueued_bytes += size
            self._out += (frame_head(size, DATA, 0, stream.id), bytes(part))
        stream.outbox = None
        del self._blocked[stream]
        if stream.trailers is not None:
            block, stream.trailers = stream.trailers, None
            self._end(stream, block)
            self._sent.append(stream)

    def _end(self, stream: Stream, block: bytes) -> None:
        self._out.append(frame(HEADERS, END_HEADERS | END_STREAM, stream.id, self._prefixed(block)))
        if not stream.is_remote_ended:
            # The answer is complete, and what the request would still bring is not wanted.
            self._out.append(reset_frame(stream.id, ErrorCode.NO_ERROR))
        self._finished(stream)

    def _drop_queued(self, stream: Stream) -> None:
        """A stream is over: what waits is never sent."""
        if stream.outbox is not None:
            self.queued_bytes -= stream.queued_bytes
            stream.outbox = None
            self._blocked.pop(stream, None)

    def _say_no_table(self) -> None:
        """Peers that allow a smaller header table want to hear that we keep to it."""
        self._block_prefix = _NO_TABLE

    def _finished(self, stream: Stream) -> None:
        """Called when both sides of a stream have ended."""
        raise NotImplementedError
