"""The server's side of one HTTP/2 connection (RFC 9113): bytes in, events out. No I/O.

    connection = Http2Connection()
    for event in connection.receive(data):
        ...                                 # answers by send_headers, send_data, send_trailers, reset
    write(connection.take_output())

What a peer can make us remember is bounded. Streams open at once: `max_streams`. Data of one stream that was not asked for:
`stream_window`; the application makes more room (`grant`) when it knows what for. Headers: one block at a time, of limited
length. Data that waits because the peer gives no room: `queued_bytes`, which the application looks at. Streams that are over
leave nothing behind. Peers that only open and reset streams, or send frames that bring nothing, are sent away.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketline.errors import RemoteProtocolError
from rocketline.http2.events import (
    DEFAULT_LIMITS,
    AnswerSent,
    DataReceived,
    Event,
    Http2Limits,
    RequestStarted,
    StreamReset,
)
from rocketline.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    GOAWAY,
    HAS_PRIORITY,
    HEAD_BYTES,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_BYTES,
    WINDOW_UPDATE,
    ConnectionFailed,
    ErrorCode,
    StreamFailed,
    frame,
    goaway_frame,
    read_settings,
    read_uint,
    reset_frame,
    settings_frame,
    window_frame,
)
from rocketline.http2.hpack import MAX_TABLE_BYTES, Decoder, Field
from rocketline.http2.outgoing import Outgoing
from rocketline.http2.requests import checked_request, checked_trailers, content_length
from rocketline.http2.stream import Stream


class Http2Connection(Outgoing):
    """Raises ConnectionFailed out of `receive` when the connection must end; the reason is in the output by then."""

    def __init__(self, limits: Http2Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        self._limits = limits
        self._decoder = Decoder(limits.max_header_bytes)
        self._partial = b""
        self._awaits_preface = True
        self._awaits_settings = True
        self.streams: dict[int, Stream] = {}
        self.last_stream_id = 0
        self._block: list[bytes] | None = None
        """Parts of a header block that goes on in the next frame."""
        self._block_bytes = 0
        self._block_start = (0, 0)
        """Stream and flags of that block."""
        self._receive_window = limits.connection_window
        self._unacknowledged = 0
        self._resets = 0
        self._idle_frames = 0
        self._is_closing = False
        promised = {
            MAX_CONCURRENT_STREAMS: limits.max_streams,
            INITIAL_WINDOW_SIZE: limits.stream_window,
            MAX_HEADER_LIST_SIZE: limits.max_header_bytes,
        }
        self._out += (settings_frame(promised), window_frame(0, limits.connection_window - WINDOW_BYTES))

    @property
    def unfinished_bytes(self) -> int:
        """How much was received of a frame that is not complete."""
        return len(self._partial)

    # Receiving

    def receive(self, data: bytes) -> Iterator[Event]:
        """The events of what was read; the caller goes through all of them before the next read."""
        if self._partial:
            data = self._partial + data
            self._partial = b""
        try:
            yield from self._frames(data)
        except ConnectionFailed as failed:
            self._is_closing = True
            self._out.append(goaway_frame(self.last_stream_id, failed.code, str(failed)))
            raise

    def _frames(self, data: bytes) -> Iterator[Event]:
        position, end = 0, len(data)
        if self._awaits_preface:
            if not self._has_preface(data):
                self._partial = data
                return
            position = len(PREFACE)
        while end - position >= HEAD_BYTES:
            length = data[position] << 16 | data[position + 1] << 8 | data[position + 2]
            if length > FRAME_BYTES:
                raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes is too long")
            stop = position + HEAD_BYTES + length
            if stop > end:
                break
            kind, flags = data[position + 3], data[position + 4]
            stream_id = int.from_bytes(data[position + 5 : position + 9], "big") & MAX_WINDOW
            payload = data[position + HEAD_BYTES : stop]
            position = stop
            event: Event | None = None
            try:
                if self._block is not None or self._awaits_settings:
                    self._check_order(kind, stream_id, flags)
                if kind == DATA:
                    event = self._data(stream_id, flags, payload)
                elif kind == HEADERS:
                    event = self._headers(stream_id, flags, payload)
                elif kind == CONTINUATION:
                    event = self._continuation(stream_id, flags, payload)
                else:
                    event = self._control(kind, stream_id, flags, payload)
            except StreamFailed as failed:
                event = self._fail(failed)
            if event is not None:
                yield event
            if self._sent:
                sent, self._sent = self._sent, []
                yield from map(AnswerSent, sent)
        self._partial = data[position:]

    def _has_preface(self, data: bytes) -> bool:
        """Whether the text that begins every connection is complete; what there is of it must be right."""
        start = data[: len(PREFACE)]
        if start != PREFACE[: len(start)]:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "the connection does not begin as HTTP/2 does")
        self._awaits_preface = len(start) < len(PREFACE)
        return not self._awaits_preface

    def _check_order(self, kind: int, stream_id: int, flags: int) -> None:
        if self._block is not None and (kind != CONTINUATION or stream_id != self._block_start[0]):
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "another frame comes inside a header block")
        if self._awaits_settings:
            if kind != SETTINGS or flags & ACK:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._awaits_settings = False

    def _fail(self, failed: StreamFailed) -> Event | None:
        self._out.append(reset_frame(failed.stream_id, failed.code))
        stream = self.streams.get(failed.stream_id)
        if stream is None:
            return None
        self._forget(stream)
        return StreamReset(stream, failed.code)

    def _data(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if not stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "DATA for no stream")
        size = len(payload)
        self._take_room(size)
        if flags & PADDED:
            payload = _unpadded(payload)
        stream = self.streams.get(stream_id)
        if stream is None or stream.is_remote_ended:
            if stream_id > self.last_stream_id:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "DATA for a stream that was not opened")
            raise StreamFailed(stream_id, ErrorCode.STREAM_CLOSED, "DATA for a stream that has ended")
        if size > stream.receive_window:
            raise StreamFailed(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than there is room for")
        stream.receive_window -= size
        is_ended = bool(flags & END_STREAM)
        if not payload and not is_ended:
            self._note_idle()
            return None
        self._idle_frames = 0
        if stream.expected is not None:
            self._count_body(stream, len(payload), is_ended)
        if is_ended:
            self._remote_ended(stream)
        return DataReceived(stream, payload, is_ended)

    def _count_body(self, stream: Stream, size: int, is_ended: bool) -> None:
        assert stream.expected is not None
        stream.expected -= size
        if stream.expected < 0 or (is_ended and stream.expected):
            raise StreamFailed(stream.id, ErrorCode.PROTOCOL_ERROR, "the body is not as long as content-length says")

    def _take_room(self, size: int) -> None:
        """The room of the connection is given back at once: streams have limits of their own."""
        self._receive_window -= size
        if self._receive_window < 0:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection has room for")
        self._unacknowledged += size
        if self._unacknowledged > self._limits.connection_window // 2:
            self._out.append(window_frame(0, self._unacknowledged))
            self._receive_window += self._unacknowledged
            self._unacknowledged = 0

    def _headers(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if not stream_id & 1:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"HEADERS for stream {stream_id}, which is no client's")
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & HAS_PRIORITY:
            if len(payload) < 5:
                raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, "HEADERS are too short for a priority")
            if read_uint(payload[:4]) == stream_id:
                raise StreamFailed(stream_id, ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself")
            payload = payload[5:]
        if flags & END_HEADERS:
            return self._decoded(stream_id, flags, payload)
        self._block, self._block_bytes = [payload], len(payload)
        self._block_start = stream_id, flags
        return None

    def _continuation(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if self._block is None:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of no header block")
        self._block_bytes += len(payload)
        if self._block_bytes > self._limits.max_block_bytes:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM, f"a header block of {self._block_bytes} bytes")
        if not payload:
            self._note_idle()
        self._block.append(payload)
        if not flags & END_HEADERS:
            return None
        block, self._block = b"".join(self._block), None
        return self._decoded(stream_id, self._block_start[1], block)

    def _decoded(self, stream_id: int, flags: int, block: bytes) -> Event | None:
        try:
            fields = self._decoder.decode(block)
        except RemoteProtocolError as error:
            raise ConnectionFailed(ErrorCode.COMPRESSION_ERROR, str(error)) from error
        stream = self.streams.get(stream_id)
        if stream is not None:
            return self._trailers(stream, flags, fields)
        if stream_id <= self.last_stream_id:
            raise ConnectionFailed(ErrorCode.STREAM_CLOSED, f"HEADERS for stream {stream_id}, which is over")
        self.last_stream_id = stream_id
        self._idle_frames = 0
        if len(self.streams) >= self._limits.max_streams or self._is_closing:
            self._resets += 1  # who asks for more than it was told, again and again, is no better than who resets
            self._check_resets()
            raise StreamFailed(stream_id, ErrorCode.REFUSED_STREAM, "too many streams")
        return self._open(stream_id, bool(flags & END_STREAM), fields)

    def _open(self, stream_id: int, is_ended: bool, fields: list[Field] | None) -> Event:
        headers = None if fields is None else checked_request(stream_id, fields)
        stream = Stream(stream_id, self._limits.stream_window, self._peer_stream_window)
        if headers is not None and b"content-length" in headers:
            stream.expected = content_length(stream_id, headers)
            if is_ended and stream.expected:
                raise StreamFailed(stream_id, ErrorCode.PROTOCOL_ERROR, "no body, and content-length says there is one")
        self.streams[stream_id] = stream
        stream.is_remote_ended = is_ended
        return RequestStarted(stream, headers, is_ended)

    def _trailers(self, stream: Stream, flags: int, fields: list[Field] | None) -> Event:
        if stream.is_remote_ended:
            raise StreamFailed(stream.id, ErrorCode.STREAM_CLOSED, "HEADERS for a stream that has ended")
        if not flags & END_STREAM:
            raise StreamFailed(stream.id, ErrorCode.PROTOCOL_ERROR, "trailers that do not end their stream")
        checked_trailers(stream.id, fields or [])
        if stream.expected:
            raise StreamFailed(stream.id, ErrorCode.PROTOCOL_ERROR, "the body is not as long as content-length says")
        self._remote_ended(stream)
        return DataReceived(stream, b"", True)

    def _remote_ended(self, stream: Stream) -> None:
        stream.is_remote_ended = True
        if stream.is_local_ended and stream.trailers is None:
            self._finished(stream)

    # Frames that are no request

    def _control(self, kind: int, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if kind == WINDOW_UPDATE:
            self._window_update(stream_id, payload)
        elif kind == RST_STREAM:
            return self._reset(stream_id, payload)
        elif kind == PING:
            self._ping(stream_id, flags, payload)
        elif kind == SETTINGS:
            self._settings(stream_id, flags, payload)
        elif kind == PRIORITY:
            self._priority(stream_id, payload)
        elif kind == GOAWAY:
            if stream_id:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
            self._is_closing = True
        elif kind == PUSH_PROMISE:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "a client that pushes")
        else:
            self._note_idle()  # a kind of frame that is not known is passed over
        return None

    def _note_idle(self) -> None:
        self._idle_frames += 1
        if self._idle_frames > self._limits.max_idle_frames:
            raise ConnectionFailed(
                ErrorCode.ENHANCE_YOUR_CALM, f"{self._idle_frames} frames in a row that bring nothing"
            )

    def _window_update(self, stream_id: int, payload: bytes) -> None:
        self._note_idle()
        if len(payload) != 4:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"WINDOW_UPDATE of {len(payload)} bytes")
        increment = read_uint(payload)
        before = self.queued_bytes
        if not stream_id:
            self._send_window += increment
            if not increment or self._send_window > MAX_WINDOW:
                code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
                raise ConnectionFailed(code, f"WINDOW_UPDATE by {increment}")
            self._send_blocked()
        elif (stream := self.streams.get(stream_id)) is not None:
            stream.send_window += increment
            if not increment or stream.send_window > MAX_WINDOW:
                code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
                raise StreamFailed(stream_id, code, f"WINDOW_UPDATE by {increment}")
            if stream.outbox is not None:
                self._send_queued(stream)
        elif stream_id > self.last_stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of a stream that was not opened")
        if self.queued_bytes < before:
            self._idle_frames = 0

    def _reset(self, stream_id: int, payload: bytes) -> Event | None:
        if len(payload) != 4:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"RST_STREAM of {len(payload)} bytes")
        if not stream_id or stream_id > self.last_stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "RST_STREAM of a stream that was not opened")
        stream = self.streams.get(stream_id)
        if stream is None:
            self._note_idle()
            return None
        self._resets += 1
        self._check_resets()
        self._forget(stream)
        return StreamReset(stream, int.from_bytes(payload, "big"))

    def _check_resets(self) -> None:
        if self._resets > self._limits.max_resets:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM, f"{self._resets} streams were reset, and few ended")

    def _ping(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "PING of a stream")
        if len(payload) != 8:
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"PING of {len(payload)} bytes")
        self._note_idle()
        if not flags & ACK:
            self._out.append(frame(PING, ACK, 0, payload))

    def _priority(self, stream_id: int, payload: bytes) -> None:
        self._note_idle()
        if not stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "PRIORITY of no stream")
        if len(payload) != 5:
            raise StreamFailed(stream_id, ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY of {len(payload)} bytes")
        if read_uint(payload[:4]) == stream_id:
            raise StreamFailed(stream_id, ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself")

    def _settings(self, stream_id: int, flags: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
        if len(payload) % 6 or (flags & ACK and payload):
            raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
        self._note_idle()
        if flags & ACK:
            return
        settings = read_settings(payload)
        for key, value in settings:
            self._set(key, value)
        if (size := dict(settings).get(INITIAL_WINDOW_SIZE)) is not None:
            self._set_windows(size)  # once, however often a frame names it: all streams have to be gone through
        self._out.append(frame(SETTINGS, ACK, 0, b""))
        if self._blocked:
            self._send_blocked()

    def _set(self, key: int, value: int) -> None:
        if key == INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, f"windows of {value} bytes")
        if key == MAX_FRAME_SIZE:
            if not FRAME_BYTES <= value < 1 << 24:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"frames of {value} bytes")
            self._peer_frame_bytes = value
        elif key == ENABLE_PUSH and value > 1:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
        elif key == HEADER_TABLE_SIZE and value < MAX_TABLE_BYTES:
            self._say_no_table()

    def _set_windows(self, size: int) -> None:
        """The peer's windows of all streams, open ones too, change by as much."""
        more = size - self._peer_stream_window
        self._peer_stream_window = size
        for stream in self.streams.values():
            stream.send_window += more
            if stream.send_window > MAX_WINDOW:
                raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {stream.send_window} bytes")

    # For the application

    def grant(self, stream: Stream, size: int) -> None:
        """Let the peer send that much more on a stream."""
        stream.receive_window += size
        self._out.append(window_frame(stream.id, size))

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """End a stream now."""
        self._out.append(reset_frame(stream.id, code))
        self._forget(stream)

    def close(self, text: str = "") -> None:
        """Tell the peer that new streams are not served any more, unless one of us said so before."""
        if not self._is_closing:
            self._is_closing = True
            self._out.append(goaway_frame(self.last_stream_id, ErrorCode.NO_ERROR, text))

    def abandon(self) -> None:
        """The connection is lost: let go of what was to be sent."""
        for stream in list(self.streams.values()):
            stream.owner = None
            self._forget(stream)
        self._out.clear()

    def _finished(self, stream: Stream) -> None:
        if self._resets:
            self._resets -= 1
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        self.streams.pop(stream.id, None)
        self._drop_queued(stream)


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "padding that is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
