"""The half of a connection that answers: results become frames, and what comes in one turn of the loop leaves together.

A call is over when its answer has left, not when it is ready: an answer may have to wait for room in the peer's windows. If
the client's time is over before that, or the client goes away, the call is lost, and its method is told what was not sent.

What waits for a peer is bounded (`is_behind`, `MAX_STREAM_QUEUE`). A peer that takes nothing for a while is sent away; one
that is slow and goes on taking is not.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rocketline.grpc.calls import Call, Message
from rocketline.grpc.framing import framed
from rocketline.grpc.room import Room
from rocketline.grpc.status import ANSWER_HEADERS, OK_TRAILERS, CallFailed, Status, trailers, trailers_only
from rocketline.http2 import ErrorCode, Http2Connection, Http2Limits

log = logging.getLogger(__name__)

WRITE_STALL_S = 30.0
QUEUE_STALL_S = 60.0
MAX_QUEUED_BYTES = 8 * 1024 * 1024
"""Answers of one connection that wait to be taken, above which no call is served that would make more."""
MAX_STREAM_QUEUE = 1024 * 1024
"""Messages of one two-way stream that wait for room."""
LONGEST_TIMER_S = 24 * 3600.0


class Answering(asyncio.Protocol):
    """What is sent on a connection."""

    def __init__(self, limits: Http2Limits) -> None:
        self._http2 = Http2Connection(limits)
        self._room = Room(self._http2)
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._transport: asyncio.Transport | None = None
        self._is_serving = False
        self._writes_soon = False
        self._unwritten_bytes = 0
        self._stalled: asyncio.TimerHandle | None = None
        self._stalled_bytes = 0
        self._queued_since = 0.0
        self._taken_bytes = 0
        self._running: set[Call] = set()
        self.remote = "?"

    # The ends of calls

    def _done(self, call: Call, result: Any, error: BaseException | None) -> None:
        if error is not None:
            self._failed(call, error)
            return
        if call.is_over:
            return
        stream = call.stream
        if call.served.unary is not None:
            data = framed(result.SerializeToString())
        else:
            data = b"".join([framed(message.SerializeToString()) for message in result])
        self._http2.send_answer(stream, ANSWER_HEADERS, data, OK_TRAILERS)
        self._unwritten_bytes += len(data)
        self._running.discard(call)
        if stream.queued_bytes:
            call.has_answered = True
            self._set_timer(call)
            self._note_queued()
        else:
            self._over(call)
        self._write_soon()

    def _failed(self, call: Call, error: BaseException) -> None:
        if isinstance(error, CallFailed):
            self.finish(call, error.status, error.text)
        elif isinstance(error, asyncio.CancelledError):
            self.finish(call, Status.UNAVAILABLE, "the server is stopping")
        else:
            log.error("%s of %s failed", call.served.method.path, self.remote, exc_info=error)
            self.finish(call, Status.INTERNAL, f"{type(error).__name__}: {error}")

    def _set_timer(self, call: Call) -> None:
        if call.timer is None and call.deadline is not None and call.deadline - self.now() < LONGEST_TIMER_S:
            call.timer = self._loop.call_at(call.deadline, self._too_late, call)

    def _too_late(self, call: Call) -> None:
        if not call.is_over:
            steps = call.steps
            self.finish(call, Status.DEADLINE_EXCEEDED, "no answer before the client's deadline")
            if steps is not None:
                steps.cancel()

    def send_message(self, call: Call, message: Message) -> None:
        """Send one message of a two-way stream."""
        if not call.has_answered:
            call.has_answered = True
            self._http2.send_headers(call.stream, ANSWER_HEADERS)
        data = framed(message.SerializeToString())
        self._http2.send_data(call.stream, data)
        self._unwritten_bytes += len(data)
        if call.stream.queued_bytes > MAX_STREAM_QUEUE:
            log.warning("ending a stream of %s: it does not take what it is sent", self.remote)
            self._http2.reset(call.stream, ErrorCode.ENHANCE_YOUR_CALM)
            self._over(call, lost=True)
        elif call.stream.queued_bytes:
            self._note_queued()
        self._write_soon()

    def finish(self, call: Call, status: Status, text: str) -> None:
        """End a call with a status. One whose answer still waits for room is ended without the rest of it."""
        if call.is_over:
            return
        if call.stream.is_local_ended:
            self._http2.reset(call.stream, ErrorCode.CANCEL)
            self._over(call, lost=True)
        else:
            block = trailers(status, text) if call.has_answered else trailers_only(status, text)
            self._http2.send_trailers(call.stream, block)
            self._over(call, lost=call.streaming is not None)
        self._write_soon()

    def _over(self, call: Call, lost: bool = False) -> None:
        """A call has ended, whoever ended it."""
        if call.is_over:
            return
        call.is_over = True
        self._running.discard(call)
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None
        if self._room.release(call):
            self._write_soon()
        steps, on_lost = call.steps, call.on_lost
        # Calls, streams and steps hold each other: let go, or garbage collection has to find each of them. Whoever still
        # has the call must not keep the beginning of its message with it.
        call.steps = call.on_lost = call.stream.owner = call.reader = None
        if lost:
            if steps is not None:
                steps.cancel()
            if on_lost is not None:
                on_lost(call.stream.queued_bytes)
            if call.streaming is not None:
                call.streaming.lost()

    # Writing

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
        self._unwritten_bytes = 0
        if not out or self._transport is None:
            return
        if len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)

    # Peers that do not take what they are sent

    @property
    def is_congested(self) -> bool:
        """Whether the peer is behind with reading what we wrote."""
        return self._stalled is not None

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the peer that nothing long should be added."""
        waiting = self._http2.queued_bytes + self._unwritten_bytes
        if self._transport is not None:
            waiting += self._transport.get_write_buffer_size()
        return waiting > MAX_QUEUED_BYTES

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
            self._watch_stall(self._transport)

    def _watch_stall(self, transport: asyncio.Transport) -> None:
        self._stalled_bytes = transport.get_write_buffer_size()
        self._stalled = self._loop.call_later(WRITE_STALL_S, self._look_at_stall)

    def _look_at_stall(self) -> None:
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size() < self._stalled_bytes:
            self._watch_stall(self._transport)  # it is slow, and it reads
            return
        log.warning("closing %s: it did not read its answers for %g s", self.remote, WRITE_STALL_S)
        self.abort()

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _note_queued(self) -> None:
        if not self._queued_since:
            self._queued_since = self.now()
            self._taken_bytes = self._http2.unqueued_bytes

    def _takes_nothing(self, now: float) -> bool:
        """Whether answers have waited for long, of which the peer took nothing."""
        if not self._http2.queued_bytes:
            self._queued_since = 0.0
        elif self._taken_bytes != self._http2.unqueued_bytes:
            self._queued_since, self._taken_bytes = now, self._http2.unqueued_bytes
        return bool(self._queued_since) and now - self._queued_since > QUEUE_STALL_S

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
