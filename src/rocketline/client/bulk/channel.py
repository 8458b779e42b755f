"""One blocking connection: requests out, answers in whatever order they come, no event loop and no thread.

The body of an answer is a view of the buffer that the socket wrote it to, so a reply of megabytes is copied once, by the
kernel. Every wait ends at the caller's deadline. A connection that failed, also by a late answer, is closed: bytes after
half a frame cannot be decoded.
"""

from __future__ import annotations

import socket
import ssl
import struct
from itertools import count
from typing import NamedTuple, NoReturn

from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ConnectionLost, RemoteProtocolError, RequestTimeout, TransportError
from rocketline.protocol.command import Command
from rocketline.protocol.connection import MAX_FRAME_BYTES, MAX_HEADER_BYTES, frame_bytes, not_a_frame
from rocketline.protocol.header_codec import decode_header
from rocketline.transport.access import Contexts, Sign
from rocketline.transport.client import connect_failed, split_address
from rocketline.transport.tls import later_problem, unheard_hint

_PREFIX = struct.Struct(">II")


class BulkAnswer(NamedTuple):
    """A response; `command.body` is empty, the body is beside it."""

    command: Command
    body: memoryview


class BulkChannel:
    """A connection to one address, made by the first request. `sign` is applied last."""

    def __init__(
        self,
        address: str,
        clock: Clock = SYSTEM_CLOCK,
        *,
        sign: Sign | None = None,
        contexts: Contexts | None = None,
    ) -> None:
        self.address = address
        self._clock = clock
        self._sign = sign
        self._contexts = contexts
        self._is_unheard = True
        self._socket: socket.socket | None = None
        self._opaques = count(1)
        self._awaited: set[int] = set()
        self._early: dict[int, BulkAnswer] = {}

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def send(self, command: Command, deadline: float) -> int:
        """Write a request; returns the number its answer will carry."""
        connection = self._socket or self._connect(deadline)
        command.opaque = next(self._opaques) & 0x7FFFFFFF
        if self._sign is not None:
            self._sign(command)
        try:
            connection.settimeout(self._left(deadline))
            connection.sendall(frame_bytes(command))
        except OSError as error:
            self._fail(error)
        self._awaited.add(command.opaque)
        return command.opaque

    def receive(self, opaque: int, deadline: float) -> BulkAnswer:
        """Wait for the answer to a request that was sent over the connection that is open now."""
        if opaque in self._early:
            return self._early.pop(opaque)
        while True:
            if opaque not in self._awaited:
                raise ConnectionLost(f"the connection to {self.address} went away before request {opaque} was answered")
            answer = self._next_frame(deadline)
            number = answer.command.opaque
            if not answer.command.is_response or number not in self._awaited:
                continue  # the server's own requests, and answers that nobody waits for any more
            self._awaited.discard(number)
            if number == opaque:
                return answer
            self._early[number] = answer

    def call(self, command: Command, deadline: float) -> BulkAnswer:
        return self.receive(self.send(command, deadline), deadline)

    def abandon(self, opaque: int) -> None:
        """Ignore the answer to a request."""
        self._awaited.discard(opaque)
        self._early.pop(opaque, None)

    def close(self) -> None:
        connection, self._socket = self._socket, None
        self._awaited.clear()
        self._early.clear()
        if connection is not None:
            connection.close()

    def _connect(self, deadline: float) -> socket.socket:
        left_s = self._left(deadline)
        try:
            host, port = split_address(self.address)
            connection = socket.create_connection((host, port), timeout=left_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._contexts is not None:
                connection = _secured(connection, host, self._contexts())
        except (OSError, ValueError) as error:
            raise connect_failed(self.address, error, left_s, tls=self._contexts is not None) from error
        self._is_unheard = True
        self._socket = connection
        return connection

    def _next_frame(self, deadline: float) -> BulkAnswer:
        length, word = _PREFIX.unpack(self._read(_PREFIX.size, deadline))
        header_bytes = word & 0xFFFFFF
        if not header_bytes + 4 <= length <= MAX_FRAME_BYTES - 4 or header_bytes > MAX_HEADER_BYTES:
            self.close()
            raise RemoteProtocolError(f"{self.address}: {not_a_frame(length, header_bytes)}")
        self._is_unheard = False
        content = self._read(length - 4, deadline)
        try:
            command = decode_header(word >> 24, bytes(content[:header_bytes]), b"")
        except RemoteProtocolError:
            self.close()
            raise
        return BulkAnswer(command, content[header_bytes:].toreadonly())

    def _read(self, size: int, deadline: float) -> memoryview:
        connection = self._socket
        if connection is None:
            raise ConnectionLost(f"the connection to {self.address} was closed")
        content = memoryview(bytearray(size))
        done = 0
        try:
            while done < size:
                connection.settimeout(self._left(deadline))
                received = connection.recv_into(content[done:])
                if not received:
                    raise ConnectionResetError("the peer closed it")
                done += received
        except OSError as error:
            self._fail(error)
        return content

    def _left(self, deadline: float) -> float:
        return max(0.001, deadline - self._clock.monotonic())

    def _fail(self, error: OSError) -> NoReturn:
        self.close()
        failure: TransportError
        if isinstance(error, TimeoutError):
            failure = RequestTimeout(f"{self.address} did not answer, or take our request, in time")
        else:
            reason = later_problem(error) or str(error)
            hint = unheard_hint(has_tls=self._contexts is not None) if self._is_unheard else ""
            failure = ConnectionLost(f"the connection to {self.address} failed: {reason}{hint}")
        raise failure from error


def _secured(connection: socket.socket, host: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise
