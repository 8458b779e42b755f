"""One connection, at either end: requests of the peer are served, answers of the peer are handed to whoever asked.

`data_received` serves every frame of a read in one pass and writes all their answers together. Only a handler that returns
an awaitable costs a future or task, and its answer is written when it is done. A router may have a fast path, which is shown
every read first. Both ends may ask and answer on the same connection; direction is told by the response bit alone.

Requests of ours are written at once, but those of callers whose answers came together leave together, and so do many that
are made in one turn of the loop: a write costs more than making a request.

Back-pressure: when the peer does not read its answers, the write buffer passes its high-water mark and we stop serving its
requests, those already read included; when it stays there too long, the connection is closed. In the other direction whoever
sends much awaits `drained` first.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, cast

from rocketline.errors import ConnectionLost, RemoteProtocolError, TransportError
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import ONEWAY, RESPONSE, Command
from rocketline.protocol.connection import Connection, encode_frame
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.records import Buffer
from rocketline.transport.access import Sign
from rocketline.transport.calls import Calls
from rocketline.transport.fast_path import FastState
from rocketline.transport.limits import Limits, Strangers
from rocketline.transport.router import AtReadEnd, Router, failure
from rocketline.transport.tls import later_problem

log = logging.getLogger(__name__)

UNKNOWN_HOST = encode_host("127.0.0.1", 0)

JOINED_BUFFERS = 128
JOINED_BUFFER_BYTES = 64 * 1024
"""Answers of one read are joined until there are so many buffers, or one so large: then they are written, and we look
whether the peer still reads. Requests that leave together are joined likewise."""

READ_BYTES = 64 * 1024
"""Of one read on asyncio's own loop. It makes room anew for every read, and for its 256 KiB asks the system each time."""

FEW_CALLS = 8
"""With no more than these waiting for their answers a request does not wait for others."""


class Cancellable(Protocol):
    def cancel(self) -> object:
        """The connection went away."""


class Channel(asyncio.Protocol):
    """A connection and everything in flight on it."""

    # With a thousand connections each memory line of an object that a message touches is fetched anew.
    __slots__ = (
        "_calls", "_closed", "_connection", "_drained", "_frames", "_gathers", "_limits", "_loop", "_next_opaque",
        "_nonsense", "_on_open", "_requests", "_sign", "_stalled", "_transport", "_unfinished", "_unheard_hint",
        "_waiting", "fast", "identity", "language", "last_active", "local", "lost_because", "on_close", "peer",
        "remote", "remote_host", "remote_ip", "router", "strangers", "version",
    )  # fmt: skip

    def __init__(
        self,
        router: Router,
        limits: Limits,
        *,
        on_open: Callable[[Channel], None] | None = None,
        on_close: Callable[[Channel], None] | None = None,
        sign: Sign | None = None,
        unheard_hint: str = "",
        strangers: Strangers | None = None,
    ) -> None:
        """`sign` is the last to touch our own requests. `unheard_hint` is told when not even the first was answered.
        `strangers` limit the peer until a request of his has passed the guard."""
        self.router = router
        self._limits = limits
        self._sign = sign
        self._unheard_hint = unheard_hint
        self._on_open = on_open
        self.strangers = strangers
        bounds = strangers or limits
        self._connection = Connection(bounds.max_frame_bytes, bounds.max_header_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._calls = Calls(self._loop)
        self._waiting: set[Cancellable] = set()
        self._next_opaque = 0
        self._requests: list[Buffer] = []
        self._gathers = False
        self._frames: Iterator[Command] = iter(())
        self._unfinished: list[tuple[Command, AtReadEnd]] = []
        self._stalled: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self._closed = self._loop.create_future()
        self._nonsense: RemoteProtocolError | None = None
        self.on_close: list[Callable[[Channel], None]] = [on_close] if on_close else []
        self.lost_because = ""
        """Why the connection ended, as far as is known."""
        self.peer: tuple[str, int] | None = None
        """Whom a load balancer connects for; None: whoever is at the other end of the socket."""
        self.remote = "?"
        self.remote_host = UNKNOWN_HOST
        self.remote_ip = ""
        """The address of the peer without its port; "" where it has none."""
        self.identity = ""
        """The account that a certificate of the peer names; "" when there is none."""
        self.local = "?"
        self.version = 0
        self.language = ""
        self.last_active = self._loop.time()
        self.fast: FastState | None = None
        """What the router's fast path remembers of this connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_water_bytes)
        if getattr(transport, "max_size", 0) > READ_BYTES:
            transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        peer = self.peer or transport.get_extra_info("peername")
        self.remote, self.remote_host = _address(peer)
        self.remote_ip = peer[0] if isinstance(peer, tuple) else ""
        self._calls.remote = self.remote
        self.local, _ = _address(transport.get_extra_info("sockname"))
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        fast_path = self.router.fast_path
        if fast_path is not None:
            if self._connection.partial and not (data := self._connection.joined(data)):
                return
            consumed, answers = fast_path.serve(self, data)
            if answers:
                self.write_all(answers)
            if consumed == len(data):
                return
            data = data[consumed:]
        self.receive(data)

    def receive(self, data: bytes) -> None:
        """Serve what was read by the handlers of its requests."""
        self._frames = self._connection.receive(data)
        self._serve_frames()
        if self.strangers is not None and self._transport is not None:
            self.strangers.note(self, self._connection.buffered_bytes)

    def now_known(self) -> None:
        """A request of the peer has passed the guard."""
        if self.strangers is not None:
            self.strangers.forget(self)
            self.strangers = None
            self._connection.limit(self._limits.max_frame_bytes, self._limits.max_header_bytes)

    def _serve_frames(self) -> None:
        """Serve what was read until the peer falls behind with reading; the rest waits in `_frames`."""
        out: list[Buffer] = []
        answers = 0
        try:
            for command in self._frames:
                if command.flag & RESPONSE:
                    self._calls.answer(command)
                    answers += 1
                    continue
                self._serve(command, out)
                if out and (len(out) >= JOINED_BUFFERS or len(out[-1]) >= JOINED_BUFFER_BYTES):
                    self.write_all(out)
                    out = []
                    if self.is_congested:
                        self._finish(out)
                        self.write_all(out)
                        return
        except RemoteProtocolError as error:
            self._finish(out)
            self.write_all(out)
            log.warning("closing %s: %s", self.remote, error)
            self._nonsense = error
            self.close()
            return
        if self._unfinished:
            self._finish(out)
        if out:
            self.write_all(out)
        if answers > 1:
            self._gather()  # comes after those who waited for the answers, in the same turn of the loop

    def _finish(self, out: list[Buffer]) -> None:
        """Answer what had to wait for the end of the read."""
        unfinished, self._unfinished = self._unfinished, []
        for request, later in unfinished:
            try:
                reply = later.finish()
            except Exception as error:
                reply = failure(self, request, error)
            if not isinstance(reply, Command):
                self._answer_later(request, reply, out)
            elif not request.flag & ONEWAY:
                out += self._encode_reply(request, reply)

    def eof_received(self) -> bool:
        self._settle()
        try:
            self._connection.finish()
        except RemoteProtocolError as error:
            log.info("%s: %s", self.remote, error)
        return False

    def _settle(self) -> None:
        """The fast path may have kept what was read last."""
        if self.router.fast_path is not None:
            self.router.fast_path.settle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        self._transport = None
        if self.strangers is not None:
            self.strangers.forget(self)
        self._frames = iter(())
        self._end_stall()
        self._requests.clear()
        lost = f"{self.remote} closed the connection before answering"
        if problem := later_problem(exc):
            lost = f"{lost}: {problem}"
        elif 0 in self._calls:
            lost += self._unheard_hint
        if self._nonsense is not None:
            lost = (
                f"{self.remote} answered what is not RocketMQ's protocol ({self._nonsense}): is it a broker's address?"
            )
        self._calls.fail(ConnectionLost, lost)
        self.lost_because = lost if self._nonsense is not None else str(exc or "the other side closed it")
        for waiting in list(self._waiting):
            waiting.cancel()
        self._waiting.clear()
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
            self._stalled = self._loop.call_later(self._limits.write_stall_s, self._give_up)

    def resume_writing(self) -> None:
        self._end_stall()
        self._serve_frames()
        if self._transport is not None and not self.is_congested:
            self._transport.resume_reading()

    def _serve(self, request: Command, out: list[Buffer]) -> None:
        reply = self.router.serve(self, request)
        if reply is None:
            return
        if isinstance(reply, Command):
            if not request.flag & ONEWAY:
                out += self._encode_reply(request, reply)
        elif isinstance(reply, AtReadEnd):
            self._unfinished.append((request, reply))
        else:
            self._answer_later(request, reply, out)

    def _encode_reply(self, request: Command, reply: Command) -> list[Buffer]:
        try:
            return encode_frame(reply)
        except Exception as error:  # a handler's mistake must not cost the other answers of this read
            return encode_frame(failure(self, request, error))

    def _answer_later(self, request: Command, reply: Awaitable[Command | None], out: list[Buffer]) -> None:
        if len(self._waiting) >= self._limits.max_waiting:
            if asyncio.iscoroutine(reply):
                reply.close()
            elif isinstance(reply, asyncio.Future):
                reply.cancel()
            remark = f"this connection already has {len(self._waiting)} requests waiting"
            if not request.flag & ONEWAY:
                out += encode_frame(request.reply(ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        try:
            future = asyncio.ensure_future(reply, loop=self._loop)
        except TypeError as error:
            out += encode_frame(failure(self, request, error))
            return
        self._waiting.add(future)
        future.add_done_callback(partial(self._answer, request))

    def hold(self, waiting: Cancellable) -> bool:
        """Note that a request of the peer waits, and is to be told when the connection ends; False: too many do already."""
        if len(self._waiting) >= self._limits.max_waiting:
            return False
        self._waiting.add(waiting)
        return True

    def release(self, waiting: Cancellable) -> None:
        """Somebody who was held is answered now."""
        self._waiting.discard(waiting)

    def _answer(self, request: Command, future: asyncio.Future[Command | None]) -> None:
        self._waiting.discard(future)
        if future.cancelled() or self._transport is None:
            return
        error = future.exception()
        reply = failure(self, request, error) if error is not None else future.result()
        if self.router.guard is not None:
            reply = self.router.guard.late_answer(self, request, reply)
        if reply is not None and not request.flag & ONEWAY:
            self.write_all(self._encode_reply(request, reply))

    def call(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        """Send a request now; what is returned becomes its answer. No coroutine: one frame less to wake for each answer."""
        opaque = command.opaque = self.take_opaque()
        return self._call(self._encoded(command), opaque, command.code, timeout)

    def call_ready(self, frame: bytes, opaque: int, code: int, timeout: float) -> asyncio.Future[Command]:
        """Like `call`, for a request that is a frame already, with a number from `take_opaque`; nothing signs it."""
        return self._call([frame], opaque, code, timeout)

    def _call(self, frame: list[Buffer], opaque: int, code: int, timeout: float) -> asyncio.Future[Command]:
        calls = self._calls
        if len(calls) >= self._limits.max_calls:
            calls.drop_given_up()
            if len(calls) >= self._limits.max_calls:
                raise TransportError(f"{len(calls)} requests to {self.remote} are already waiting for an answer")
        answer = calls.add(opaque, code, timeout)
        try:
            self._send_frame(frame)
        except BaseException:
            calls.forget(opaque)
            raise
        return answer

    def send_oneway(self, command: Command) -> None:
        """Send a request that nobody answers; returns once it is handed to the socket."""
        command.opaque = self.take_opaque()
        command.flag |= ONEWAY
        self._send(command)

    async def drained(self) -> None:
        """Wait while the peer is behind with reading what we wrote."""
        if self.is_congested and self.is_open:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.remote} is closed")

    def take_opaque(self) -> int:
        """A number that tells a request of ours from the others."""
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & 0x7FFFFFFF
        return opaque

    def _encoded(self, command: Command) -> list[Buffer]:
        if self._sign is not None:
            self._sign(command)
        return encode_frame(command)

    def _send(self, command: Command) -> None:
        self._send_frame(self._encoded(command))

    def _send_frame(self, frame: list[Buffer]) -> None:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost(f"the connection to {self.remote} is closed")
        requests = self._requests
        requests += frame
        if not self._gathers and len(self._calls) > FEW_CALLS:
            self._gather()
        if not self._gathers or len(requests) >= JOINED_BUFFERS or len(requests[-1]) >= JOINED_BUFFER_BYTES:
            self._write_requests()

    def _gather(self) -> None:
        """Let requests wait for each other until the tasks that are ready now have run."""
        if not self._gathers:
            self._gathers = True
            self._loop.call_soon(self._gathered)

    def _gathered(self) -> None:
        self._gathers = False
        self._write_requests()

    def _write_requests(self) -> None:
        requests, self._requests = self._requests, []
        self.write_all(requests)

    def write(self, answers: bytes) -> None:
        """Write answers that are ready frames."""
        if self._transport is not None and answers:
            self._transport.write(answers)

    def write_all(self, buffers: Sequence[Buffer]) -> None:
        """Write frames that are ready, in parts."""
        transport = self._transport
        if transport is None or not buffers:
            return
        self.last_active = self._loop.time()
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_inside_frame(self) -> bool:
        """Whether what was received last ended in the middle of a frame."""
        return self._connection.is_inside_frame

    @property
    def unfinished_bytes(self) -> int:
        """How much was received of a frame that is not complete."""
        return self._connection.buffered_bytes

    @property
    def certificate(self) -> str:
        """The account that the certificate of the other end names; "" without one."""
        return self.identity

    @property
    def is_encrypted(self) -> bool:
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def is_congested(self) -> bool:
        """Whether the peer is behind with reading what we wrote."""
        return self._stalled is not None

    @property
    def waiting_count(self) -> int:
        """Requests of the peer that were not answered yet; several that the fast path took from one read count as one."""
        return len(self._waiting) + (0 if self.fast is None else self.fast.waiting)

    @property
    def pending_count(self) -> int:
        """Our own requests that were not answered yet."""
        self._calls.drop_given_up()
        return len(self._calls)

    def close(self) -> None:
        """Close after what was written has left."""
        self._write_requests()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def disown(self) -> None:
        """In a forked child: the connection is the parent's. The event loop must not be told (it shares its selector with
        the parent's), so the descriptor is made to mean nothing instead of being closed."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        self._transport = None
        if sock is not None and sock.fileno() >= 0:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, sock.fileno(), inheritable=False)
            os.close(null)

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    def _give_up(self) -> None:
        log.warning("closing %s: it did not read its answers for %g s", self.remote, self._limits.write_stall_s)
        self.abort()

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None


def _address(name: Any) -> tuple[str, bytes]:
    """(`ip:port`, the form records hold) of a socket name."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "local", UNKNOWN_HOST
    ip, port = name[0], name[1]
    return (f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"), encode_host(ip, port)
