"""A gRPC client that does as it is told, byte by byte: for tests of what good clients never do.

Header blocks use no table, so each frame can be made by itself.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from tests.support.patience import PATIENCE_S

from rocketline.grpc.framing import MessageReader, framed
from rocketline.http2.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEAD_BYTES,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    frame,
    reset_frame,
    settings_frame,
    window_frame,
)
from rocketline.http2.hpack import Decoder, encode_fields
from rocketline.proxy.proto import SERVICE, schema

METHODS = schema.methods(SERVICE)


class Answer:
    """What came on one stream."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.data = b""
        self.reset: int | None = None
        self.is_ended = False
        self.changed = asyncio.Event()

    @property
    def grpc_status(self) -> int | None:
        status = self.headers.get(b"grpc-status")
        return None if status is None else int(status)

    def messages(self, kind: Any) -> list[Any]:
        return [kind.FromString(message) for message in MessageReader(b"").receive(self.data)]


class GrpcWire:
    """One connection; an async context manager."""

    def __init__(self, address: str, *, tls: bool = False, settings: Mapping[int, int] | None = None) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._tls = tls
        self._settings = dict(settings or {})
        self._answers: dict[int, Answer] = {}
        self._next = 1
        self._decoder = Decoder(1 << 20)
        self.goaway: int | None = None
        self.is_closed = False
        self.broken_rule: AssertionError | None = None
        """What the server did that HTTP/2 forbids."""
        self.acknowledges = True
        """Whether windows are opened again for what came."""
        self.metadata: dict[str, str] = {
            "x-mq-client-id": "wire-1",
            "x-mq-language": "PYTHON",
            "x-mq-client-version": "5.1.2",
        }
        self._wakes: list[asyncio.Event] = []
        self.room: dict[int, int] = {}
        """What the server gave room for, by stream; 0 is the connection."""

    async def __aenter__(self) -> Self:
        context = None
        if self._tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
        self._reader, self.writer = await asyncio.open_connection(self._host, self._port, ssl=context)
        self.writer.write(PREFACE + settings_frame(self._settings))
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()

    @property
    def alpn(self) -> str | None:
        found: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        return found.selected_alpn_protocol()

    def start(self, path: str, more: Mapping[str, str] | None = None, *, ends: bool = False) -> int:
        """Send the headers of a call; returns its stream."""
        stream_id, self._next = self._next, self._next + 2
        fields = {
            ":method": "POST", ":scheme": "http", ":path": path, ":authority": "test", "te": "trailers",
            "content-type": "application/grpc", **self.metadata, **(more or {}),
        }  # fmt: skip
        block = encode_fields(*((name.encode(), value.encode()) for name, value in fields.items()))
        self._answers[stream_id] = Answer()
        self.writer.write(frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), stream_id, block))
        return stream_id

    def send(self, stream_id: int, message: Any, *, ends: bool = False) -> None:
        data = framed(message.SerializeToString())
        self.data(stream_id, data, ends=ends)

    def data(self, stream_id: int, data: bytes, *, ends: bool = False) -> None:
        """Send data as it is, in frames of the usual size."""
        parts = [data[at : at + 16384] for at in range(0, len(data), 16384)] or [b""]
        for number, part in enumerate(parts, 1):
            is_last = ends and number == len(parts)
            self.writer.write(frame(DATA, END_STREAM if is_last else 0, stream_id, part))

    def cancel(self, stream_id: int) -> None:
        """Give a call up."""
        self.writer.write(reset_frame(stream_id, ErrorCode.CANCEL))

    async def flow(self, bodies: Mapping[int, bytes], window: int = 64 * 1024) -> None:
        """Send bodies in turns, as far as the server gives room for each; `window` is the room at the start."""
        left = {stream_id: memoryview(body) for stream_id, body in bodies.items()}
        self.room = {0: 1024 * 1024, **dict.fromkeys(bodies, window)}
        while left:
            await self.until(lambda: self.room[0] > 0 and any(self.room[stream_id] > 0 for stream_id in left))
            for stream_id, body in list(left.items()):
                size = min(16384, len(body), self.room[stream_id], self.room[0])
                if size <= 0:
                    continue
                self.room[stream_id] -= size
                self.room[0] -= size
                is_last = size == len(body)
                self.writer.write(frame(DATA, END_STREAM if is_last else 0, stream_id, bytes(body[:size])))
                left[stream_id] = body[size:]
                if is_last:
                    del left[stream_id]
            await self.writer.drain()

    def answer(self, stream_id: int) -> Answer:
        return self._answers[stream_id]

    async def ended(self, stream_id: int) -> Answer:
        """The whole answer of a stream."""
        answer = self._answers[stream_id]
        await self.until(lambda: answer.is_ended or answer.reset is not None or self.is_closed)
        return answer

    async def call(self, name: str, request: Any, more: Mapping[str, str] | None = None) -> Any:
        """A unary call of RocketMQ's service, which ends well."""
        method = METHODS[name]
        stream_id = self.start(method.path, more)
        self.send(stream_id, request, ends=True)
        answer = await self.ended(stream_id)
        assert answer.grpc_status == 0, (answer.headers, answer.reset, self.goaway)
        messages = answer.messages(method.response)
        return messages if method.streams_responses else messages[0]

    async def until(self, is_so: Any) -> None:
        """Wait until something is so, looked at after every read."""
        wake = asyncio.Event()
        self._wakes.append(wake)
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await wake.wait()
                wake.clear()
                if self.broken_rule is not None:
                    raise self.broken_rule
        self._wakes.remove(wake)

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(HEAD_BYTES)
                length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                stream_id = int.from_bytes(head[5:], "big")
                self._frame(kind, flags, stream_id, await self._reader.readexactly(length))
                self._wake()
        except (asyncio.IncompleteReadError, OSError):
            self.is_closed = True
            self._wake()
        except AssertionError as rule:
            self.broken_rule = rule
            self._wake()

    def _wake(self) -> None:
        for wake in self._wakes:
            wake.set()

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        answer = self._answers.get(stream_id)
        if kind == SETTINGS and not flags & ACK:
            self.writer.write(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.writer.write(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        elif kind == WINDOW_UPDATE:
            increment = int.from_bytes(payload, "big")
            assert increment, f"WINDOW_UPDATE of stream {stream_id} by 0"
            self.room[stream_id] = self.room.get(stream_id, 0) + increment
        elif answer is None:
            return
        elif kind == HEADERS:
            answer.headers |= dict(self._decoder.decode(payload) or [])
            answer.is_ended = bool(flags & END_STREAM)
        elif kind == DATA:
            answer.data += payload
            answer.is_ended = bool(flags & END_STREAM)
            if payload and self.acknowledges:
                self.writer.write(window_frame(0, len(payload)) + window_frame(stream_id, len(payload)))
        elif kind == RST_STREAM and not answer.is_ended:
            answer.reset = int.from_bytes(payload, "big")
