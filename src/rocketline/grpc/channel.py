"""One connection of a gRPC client: requests of a read are served in one pass, and their answers leave in one write.

A call whose method does not wait is answered on the spot. Answers that come later, in one turn of the loop, leave together.

When the peer does not read, we stop serving what it sends. How answers are sent is in `answering.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from rocketline.grpc.answering import Answering
from rocketline.grpc.calls import Call, Message, Served, StreamCall
from rocketline.grpc.framing import HEAD_BYTES, MessageReader, read_timeout
from rocketline.grpc.status import CallFailed, Status, no_grpc, trailers_only
from rocketline.grpc.steps import Steps
from rocketline.http2 import (
    ConnectionFailed,
    DataReceived,
    Event,
    Headers,
    Http2Limits,
    RequestStarted,
    Stream,
    StreamReset,
)

log = logging.getLogger(__name__)

WRITE_HIGH_WATER_BYTES = 8 * 1024 * 1024
REQUEST_S = 60.0
"""How long a message may take to come."""

Services = Mapping[bytes, Served]
"""Methods by path."""


class GrpcChannel(Answering):
    """A connection and its calls."""

    def __init__(
        self,
        services: Services,
        limits: Http2Limits,
        on_open: Callable[[GrpcChannel], None],
        on_close: Callable[[GrpcChannel], None],
    ) -> None:
        super().__init__(limits)
        self._services = services
        self._stream_window = limits.stream_window
        self._on_open = on_open
        self._events: Iterator[Event] = iter(())
        self._at_read_end: list[Steps] = []
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self.on_close: list[Callable[[GrpcChannel], None]] = [on_close]
        self.peer: tuple[str, int] | None = None
        self.remote_ip = ""
        self.remote_port = 0
        self.local: tuple[str, int] = ("", 0)
        self.identity = ""
        self.last_active = self._loop.time()
        self.owner: Any = None
        """What the application keeps of this connection."""

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self.remote, self.remote_ip, self.remote_port = _address(self.peer or transport.get_extra_info("peername"))
        _, host, port = _address(transport.get_extra_info("sockname"))
        self.local = host, port
        self._on_open(self)
        self._write()

    def data_received(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        self._events = self._http2.receive(data)
        self._serve()

    def _serve(self) -> None:
        """Serve what was read until the peer falls behind with reading; the rest waits in `_events`."""
        self._is_serving = True
        try:
            for event in self._events:
                if isinstance(event, RequestStarted):
                    self._started(event)
                elif isinstance(event, DataReceived):
                    call = event.stream.owner
                    if call is not None:
                        self._received(call, event.data, event.is_ended)
                elif event.stream.owner is not None:
                    self._over(event.stream.owner, lost=isinstance(event, StreamReset))
                if self.is_congested:
                    break
        except ConnectionFailed as failed:
            log.warning("closing %s: %s", self.remote, failed)
            self._finish_read()
            self.close()
            return
        finally:
            self._is_serving = False
        self._finish_read()

    def _finish_read(self) -> None:
        waiting, self._at_read_end = self._at_read_end, []
        for steps in waiting:
            steps.run(self._at_read_end)
        if self._at_read_end:  # one that waits twice
            self._finish_read()
            return
        self._write()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._events = iter(())
        self._end_stall()
        for stream in list(self._http2.streams.values()):
            if stream.owner is not None:
                self._over(stream.owner, lost=True)
        self._http2.abandon()
        if not self._closed.done():
            self._closed.set_result(None)
        for callback in self.on_close:
            try:
                callback(self)
            except Exception:
                log.exception("%s closed, and one who watched it failed", self.remote)

    def resume_writing(self) -> None:
        self._end_stall()
        self._serve()
        if self._transport is not None and not self.is_congested:
            self._transport.resume_reading()

    # Requests

    def _started(self, event: RequestStarted) -> None:
        stream, headers, is_ended = event
        problem = _problem(headers)
        if problem is not None:
            self._refuse(stream, problem)
            return
        assert headers is not None
        served = self._services.get(headers[b":path"])
        if served is None:
            text = f"there is no method {headers[b':path'].decode('latin-1')[:200]}"
            self._refuse(stream, trailers_only(Status.UNIMPLEMENTED, text))
            return
        call = Call(self, stream, headers, served, self.last_active)
        stream.owner = call
        try:
            if (timeout := headers.get(b"grpc-timeout")) is not None:
                call.deadline = self.last_active + read_timeout(timeout)
            if served.bidirectional is not None:
                call.streaming = served.bidirectional(StreamCall(call))
        except CallFailed as failed:
            self.finish(call, failed.status, failed.text)
            return
        if is_ended:
            self._received(call, b"", True)

    def _refuse(self, stream: Stream, block: bytes) -> None:
        self._http2.send_trailers(stream, block)

    def _received(self, call: Call, data: bytes, is_ended: bool) -> None:
        try:
            if call.streaming is not None:
                self._stream_received(call, data, is_ended)
            elif call.reader is None and is_ended and _is_whole(data):
                self._call(call, data[HEAD_BYTES:])
            else:
                self._collect(call, data, is_ended)
        except CallFailed as failed:
            self.finish(call, failed.status, failed.text)
        except Exception as error:
            log.exception("%s of %s failed", call.served.method.path, self.remote)
            self.finish(call, Status.INTERNAL, f"{type(error).__name__}: {error}")

    def _collect(self, call: Call, data: bytes, is_ended: bool) -> None:
        """A request that does not come in one piece."""
        if call.steps is not None:
            if data:
                raise CallFailed(Status.INTERNAL, "a second message, where there is one")
            return  # the end of what is served already
        reader = call.reader
        if reader is None:
            reader = call.reader = MessageReader(call.headers.get(b"grpc-encoding", b""))
        messages = reader.receive(data)
        if is_ended:
            if len(messages) != 1 or not reader.is_empty:
                raise CallFailed(Status.INTERNAL, f"{len(messages)} whole messages, where there is one")
            self._call(call, messages[0])
        elif messages:
            if len(messages) > 1 or not reader.is_empty:
                raise CallFailed(Status.INTERNAL, "more than one message, where there is one")
            # Some clients end their side in a frame of its own; the message need not wait for it.
            self._call(call, messages[0])
        elif reader.missing_bytes > call.stream.receive_window:
            self._room.ask(call)

    def _stream_received(self, call: Call, data: bytes, is_ended: bool) -> None:
        streaming = call.streaming
        assert streaming is not None
        reader = call.reader
        if reader is None:
            reader = call.reader = MessageReader(call.headers.get(b"grpc-encoding", b""))
        was_empty = reader.is_empty
        messages = reader.receive(data)
        if was_empty or messages:
            call.began = self.last_active
        for message in messages:
            streaming.received(_parsed(call, message))
            if call.is_over:
                return
        if messages:
            self._room.release(call)
        if is_ended:
            streaming.ended()
        elif reader.missing_bytes > call.stream.receive_window:
            self._room.ask(call)
        elif not reader.missing_bytes:
            self._room.refill(call, self._stream_window)

    def _call(self, call: Call, data: bytes) -> None:
        message = _parsed(call, data)
        served = call.served
        work = served.unary or served.server_stream
        assert work is not None
        steps = call.steps = Steps(work(call, message), self._done, call)
        if steps.run(self._at_read_end):
            self._running.add(call)
            self._set_timer(call)

    # What the server asks

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_encrypted(self) -> bool:
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def waiting_count(self) -> int:
        """Calls that were not answered yet, streams that go both ways apart."""
        return len(self._running)

    @property
    def stream_count(self) -> int:
        return len(self._http2.streams)

    @property
    def unfinished_bytes(self) -> int:
        return self._http2.unfinished_bytes

    def sweep(self) -> None:
        """Called now and then: end what takes too long."""
        now = self.now()
        if self._takes_nothing(now):
            log.warning("closing %s: it makes no room for its answers", self.remote)
            self.abort()
            return
        late = [
            stream.owner
            for stream in self._http2.streams.values()
            if stream.owner is not None and not stream.is_remote_ended and _is_late(stream.owner, now)
        ]
        for call in late:
            self.finish(call, Status.DEADLINE_EXCEEDED, f"the message was not complete after {REQUEST_S:g} s")

    def say_goodbye(self) -> None:
        """Tell the peer to open new calls elsewhere; those that there are go on."""
        self._http2.close()
        self._write()

    def close(self) -> None:
        """Tell the peer, and close after what was written has left."""
        if self._transport is not None:
            self.say_goodbye()
            self._transport.close()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)


def _is_late(call: Call, now: float) -> bool:
    """Whether a message is late. Between its messages a two-way stream may be silent for as long as it likes."""
    reader = call.reader
    is_coming = call.steps is None if call.streaming is None else reader is not None and not reader.is_empty
    return is_coming and now - call.began > REQUEST_S


def _problem(headers: Headers | None) -> bytes | None:
    """The answer to a request that is none of gRPC's, or has too many headers."""
    if headers is None:
        return trailers_only(Status.RESOURCE_EXHAUSTED, "the metadata is longer than what is taken here")
    if headers[b":method"] != b"POST":
        return no_grpc(405)
    if not headers.get(b"content-type", b"").startswith(b"application/grpc"):
        return no_grpc(415)
    if headers.get(b"grpc-encoding", b"identity") not in (b"identity", b"gzip"):
        return trailers_only(Status.UNIMPLEMENTED, "grpc-encoding is neither identity nor gzip")
    return None


def _is_whole(data: bytes) -> bool:
    """Whether data is one message that is not compressed."""
    return len(data) >= HEAD_BYTES and not data[0] and int.from_bytes(data[1:5], "big") == len(data) - HEAD_BYTES


def _parsed(call: Call, data: bytes) -> Message:
    try:
        return (call.served.read or call.served.method.request.FromString)(data)
    except Exception as error:
        raise CallFailed(Status.INTERNAL, f"the message is none of {call.served.method.path}: {error}") from error


def _address(name: Any) -> tuple[str, str, int]:
    """(`ip:port`, ip, port) of a socket name."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "local", "", 0
    ip, port = name[0], name[1]
    return (f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"), ip, port
