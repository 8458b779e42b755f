"""One connection of a gRPC client: requests of a read are served in one pass, and their answers leave in one write.

A call whose method does not wait is answered on the spot. Answers that come later, in one turn of the loop, leave together.

Back-pressure: when the peer does not read, we stop serving what it sends, and close the connection if that lasts. Answers
that wait for room in the peer's windows are bounded (`is_behind`, `MAX_STREAM_QUEUE`), and may not wait for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from rocketline.grpc.calls import Call, Message, Served, StreamCall
from rocketline.grpc.framing import HEAD_BYTES, MessageReader, framed, read_timeout
from rocketline.grpc.status import (
    ANSWER_HEADERS,
    OK_TRAILERS,
    CallFailed,
    Status,
    no_grpc,
    trailers,
    trailers_only,
)
from rocketline.grpc.steps import Steps
from rocketline.http2 import (
    ConnectionFailed,
    DataReceived,
    ErrorCode,
    Event,
    Headers,
    Http2Connection,
    Http2Limits,
    RequestStarted,
    Stream,
    StreamReset,
)

log = logging.getLogger(__name__)

WRITE_HIGH_WATER_BYTES = 8 * 1024 * 1024
WRITE_STALL_S = 30.0
MAX_QUEUED_BYTES = 8 * 1024 * 1024
"""Answers of one connection that wait for room, above which no call is served that would make more."""
MAX_STREAM_QUEUE = 1024 * 1024
"""Messages of one two-way stream that wait for room."""
MAX_GRANTED_BYTES = 32 * 1024 * 1024
"""Room given at once for long messages of one connection. Others wait, the oldest first."""
REQUEST_S = 60.0
"""How long a request may take to come."""
LONGEST_TIMER_S = 24 * 3600.0
JOIN_BYTES = 64 * 1024

Services = Mapping[bytes, Served]
"""Methods by path."""


class GrpcChannel(asyncio.Protocol):
    """A connection and its calls."""

    def __init__(
        self,
        services: Services,
        limits: Http2Limits,
        on_open: Callable[[GrpcChannel], None],
        on_close: Callable[[GrpcChannel], None],
    ) -> None:
        self._services = services
        self._http2 = Http2Connection(limits)
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._transport: asyncio.Transport | None = None
        self._on_open = on_open
        self._events: Iterator[Event] = iter(())
        self._at_read_end: list[Steps] = []
        self._writes_soon = False
        self._is_serving = False
        self._stalled: asyncio.TimerHandle | None = None
        self._queued_since = 0.0
        self._granted = 0
        self._wants_room: deque[Call] = deque()
        self._running: set[Call] = set()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self.on_close: list[Callable[[GrpcChannel], None]] = [on_close]
        self.peer: tuple[str, int] | None = None
        self.remote = "?"
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
                else:
                    self._lost(event)
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

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
            self._stalled = self._loop.call_later(WRITE_STALL_S, self._give_up)

    def resume_writing(self) -> None:
        self._end_stall()
        self._serve()
        if self._transport is not None and not self.is_congested:
            self._transport.resume_reading()

    def _give_up(self) -> None:
        log.warning("closing %s: it did not read its answers for %g s", self.remote, WRITE_STALL_S)
        self.abort()

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

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
            raise CallFailed(Status.INTERNAL, "a second message, where there is one")
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
            self._make_room(call)

    def _stream_received(self, call: Call, data: bytes, is_ended: bool) -> None:
        streaming = call.streaming
        assert streaming is not None
        if call.reader is None:
            call.reader = MessageReader(call.headers.get(b"grpc-encoding", b""))
        for message in call.reader.receive(data):
            streaming.received(_parsed(call, message))
            if call.is_over:
                return
        if is_ended:
            streaming.ended()
        elif call.reader.missing_bytes > call.stream.receive_window:
            self._make_room(call)
        elif data and call.reader.is_empty:
            self._http2.grant(call.stream, len(data))

    def _make_room(self, call: Call) -> None:
        if self._granted >= MAX_GRANTED_BYTES:
            self._wants_room.append(call)
            return
        assert call.reader is not None
        size = call.reader.missing_bytes - call.stream.receive_window
        call.granted += size
        self._granted += size
        self._http2.grant(call.stream, size)

    def _call(self, call: Call, data: bytes) -> None:
        message = _parsed(call, data)
        served = call.served
        work = served.unary or served.server_stream
        assert work is not None
        steps = call.steps = Steps(work(call, message), self._done, call)
        if steps.run(self._at_read_end):
            self._running.add(call)
            if call.deadline is not None and call.deadline - self.last_active < LONGEST_TIMER_S:
                call.timer = self._loop.call_at(call.deadline, self._too_late, call)

    def _too_late(self, call: Call) -> None:
        if not call.is_over:
            steps = call.steps
            self.finish(call, Status.DEADLINE_EXCEEDED, "no answer before the client's deadline")
            if steps is not None:
                steps.cancel()

    # Answers

    def _done(self, call: Call, result: Any, error: BaseException | None) -> None:
        if call.is_over:
            if error is not None and not isinstance(error, CallFailed | asyncio.CancelledError):
                log.error("%s of %s failed", call.served.method.path, self.remote, exc_info=error)
            return
        if error is not None:
            if isinstance(error, CallFailed):
                self.finish(call, error.status, error.text)
            elif isinstance(error, asyncio.CancelledError):
                self.finish(call, Status.UNAVAILABLE, "the server is stopping")
            else:
                log.error("%s of %s failed", call.served.method.path, self.remote, exc_info=error)
                self.finish(call, Status.INTERNAL, f"{type(error).__name__}: {error}")
            return
        stream = call.stream
        if call.served.unary is not None:
            self._http2.send_answer(stream, ANSWER_HEADERS, framed(result.SerializeToString()), OK_TRAILERS)
        else:
            data = b"".join([framed(message.SerializeToString()) for message in result])
            self._http2.send_answer(stream, ANSWER_HEADERS, data, OK_TRAILERS)
        self._running.discard(call)
        if stream.queued_bytes:
            self._note_queued()  # it is over when the client goes away before the rest has left
        else:
            self._over(call)
        self._write_soon()

    def send_message(self, call: Call, message: Message) -> None:
        """Send one message of a two-way stream."""
        if not call.has_answered:
            call.has_answered = True
            self._http2.send_headers(call.stream, ANSWER_HEADERS)
        self._http2.send_data(call.stream, framed(message.SerializeToString()))
        if call.stream.queued_bytes > MAX_STREAM_QUEUE:
            log.warning("ending a stream of %s: it does not take what it is sent", self.remote)
            self._http2.reset(call.stream, ErrorCode.ENHANCE_YOUR_CALM)
            self._over(call, lost=True)
        elif call.stream.queued_bytes:
            self._note_queued()
        self._write_soon()

    def finish(self, call: Call, status: Status, text: str) -> None:
        """End a call with a status."""
        if call.is_over:
            return
        block = trailers(status, text) if call.has_answered else trailers_only(status, text)
        self._http2.send_trailers(call.stream, block)
        self._over(call, lost=call.streaming is not None)
        self._write_soon()

    def _lost(self, event: StreamReset) -> None:
        call = event.stream.owner
        if call is not None:
            self._over(call, lost=True)

    def _over(self, call: Call, lost: bool = False) -> None:
        """A call has ended, whoever ended it."""
        if call.is_over:
            return
        call.is_over = True
        self._running.discard(call)
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None
        if call.granted:
            self._granted -= call.granted
            while self._wants_room and self._granted < MAX_GRANTED_BYTES:
                waiting = self._wants_room.popleft()
                if not waiting.is_over:
                    self._make_room(waiting)
                    self._write_soon()
        steps, on_lost = call.steps, call.on_lost
        # Calls, streams and steps hold each other: let go, or garbage collection has to find each of them.
        call.steps = call.on_lost = call.stream.owner = None
        if lost:
            if steps is not None:
                steps.cancel()
            if on_lost is not None:
                on_lost(call.stream.queued_bytes)
            if call.streaming is not None:
                call.streaming.lost()

    # Writing

    def _note_queued(self) -> None:
        if not self._queued_since:
            self._queued_since = self._loop.time()

    def _write_soon(self) -> None:
        """Write what comes in this turn of the loop together; what comes while a read is served leaves with it."""
        if not self._writes_soon and not self._is_serving:
            self._writes_soon = True
            self._loop.call_soon(self._write_gathered)

    def _write_gathered(self) -> None:
        self._writes_soon = False
        self._write()

    def _write(self) -> None:
        out = self._http2.take_output()
        if not out or self._transport is None:
            return
        if len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)

    # What the server asks

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_encrypted(self) -> bool:
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def is_congested(self) -> bool:
        """Whether the peer is behind with reading what we wrote."""
        return self._stalled is not None

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the peer that nothing long should be added."""
        return self._http2.queued_bytes > MAX_QUEUED_BYTES

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
        now = self._loop.time()
        if not self._http2.queued_bytes:
            self._queued_since = 0.0
        elif self._queued_since and now - self._queued_since > 2 * WRITE_STALL_S:
            log.warning("closing %s: it makes no room for its answers", self.remote)
            self.abort()
            return
        late = [
            stream.owner
            for stream in self._http2.streams.values()
            if stream.owner is not None and not stream.is_remote_ended and _is_late(stream.owner, now)
        ]
        for call in late:
            self.finish(call, Status.DEADLINE_EXCEEDED, f"the request was not complete after {REQUEST_S:g} s")

    def close(self) -> None:
        """Tell the peer, and close after what was written has left."""
        if self._transport is not None:
            self._http2.close()
            self._write()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)


def _is_late(call: Call, now: float) -> bool:
    """Whether a request is late; a two-way stream may be silent for as long as it likes."""
    return call.streaming is None and call.steps is None and now - call.began > REQUEST_S


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
        return call.served.method.request.FromString(data)
    except Exception as error:
        raise CallFailed(Status.INTERNAL, f"the message is none of {call.served.method.path}: {error}") from error


def _address(name: Any) -> tuple[str, str, int]:
    """(`ip:port`, ip, port) of a socket name."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "local", "", 0
    ip, port = name[0], name[1]
    return (f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"), ip, port
