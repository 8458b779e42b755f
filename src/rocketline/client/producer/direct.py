"""Direct sends: a thread writes the request to a socket and reads the answer itself.

Switching to the thread of the event loop and back costs more than the send. So a thread that sends a plain message takes a
connection out of a pool, has it to itself for one request and one answer, and puts it back. Other messages are sent by the
event loop, and so are retries, which go on with the same `Attempts`.

* Only messages without a queue or sharding key of their own: those keep an order with one-way and submitted sends, which
  travel on the loop's connection.
* Only to brokers that the loop is connected to: it knows which are down, and when to try again.
* A connection that failed, or whose answer is late, is closed. One that was unused for a second is first checked
  for having been closed by the broker.
* A thread that is the only one to send polls for its answer for 100 us before it sleeps, as long as that succeeds often.
* A forked child closes the sockets without writing to them.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any, Protocol
from weakref import WeakSet

from rocketline.client.producer.attempts import Attempts, first_attempt
from rocketline.client.producer.outgoing import RequestMaker, SendRequest, check_message
from rocketline.client.producer.receipts import SendReceipt, read_receipt
from rocketline.client.producer.send_hooks import SendHooks
from rocketline.client.producer.sender import Sender
from rocketline.client.session import ClientSession
from rocketline.errors import BrokerError, ConnectionLost, RemoteProtocolError, RequestTimeout, TransportError
from rocketline.message import Message, MessageQueue
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import RESPONSE, Command
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.system.forks import in_forked_child
from rocketline.system.sockets import readable_within
from rocketline.transport.client import connect_failed, split_address

MAX_CONNECTIONS = 32
"""To one broker; more threads than that send by the loop, on one connection together."""

UNUSED_S = 1.0
"""After so long a broker may have closed a connection (Apache's does so after two minutes)."""

OLD_S = 120.0
CONNECT_S = 3.0
READ_BYTES = 4096
LONGEST_SLEEP_S = 3600.0
"""Longer ones are made of several: poll counts milliseconds in 32 bits."""

POLL_S = 0.0001
"""So long a thread polls for its answer before it sleeps. To sleep and be woken costs 20 to 50 us, often more than the
broker takes to answer, and about as much processor time as polling."""

MOST_CREDIT = 64
MISS_COSTS = 8
REST_READS = 256
"""When more than one in 8 answers come later than that (a broker far away, or one that flushes first, or one that has to run
on this core), polling is a waste: for the next 256 answers the thread sleeps, then polling is tried again."""


class DirectConnection:
    """One request at a time on a socket of its own."""

    __slots__ = ("_credit", "_frames", "_readable", "_socket", "address", "used_at")

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(split_address(address), timeout=timeout_s)
        except (OSError, ValueError) as error:
            raise connect_failed(address, error, timeout_s, tls=False) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._readable = readable_within(self._socket)
        self._frames = Connection()
        self._credit = 0
        self.used_at = monotonic()

    def call(self, frame: bytes, opaque: int, started: float, timeout_s: float, *, alone: bool) -> Command:
        """The answer to a request; after a TransportError the connection is of no use any more.

        `alone`: no other thread of this process waits for an answer. Several that poll would only keep each other
        from running.
        """
        deadline = started + timeout_s
        try:
            self._write(frame, deadline)
            while data := self._read(deadline, alone):
                for answer in self._frames.receive(data):
                    if answer.flag & RESPONSE and answer.opaque == opaque:
                        return answer
                if monotonic() >= deadline:
                    raise TimeoutError
        except TimeoutError as error:
            code = int(RequestCode.SEND_MESSAGE_V2)
            raise RequestTimeout(f"{self.address} did not answer request {code} within {timeout_s:g} s") from error
        except OSError as error:
            raise ConnectionLost(f"the connection to {self.address} failed: {error}") from error
        except RemoteProtocolError as error:
            text = f"{self.address} answered what is not RocketMQ's protocol ({error}): is it a broker's address?"
            raise ConnectionLost(text) from error
        raise ConnectionLost(f"{self.address} closed the connection before answering")

    def _write(self, frame: bytes, deadline: float) -> None:
        try:
            sent = self._socket.send(frame)
        except BlockingIOError:
            sent = 0
        if sent < len(frame):  # a large one: the broker must read first
            self._socket.settimeout(max(0.001, deadline - monotonic()))
            self._socket.sendall(memoryview(frame)[sent:])
            self._socket.setblocking(False)

    def _read(self, deadline: float, alone: bool) -> bytes:
        """What has come; nothing when the broker has closed the connection."""
        credit = self._credit
        if credit < 0:
            self._credit = credit + 1
        elif alone:
            data = self._poll()
            if data is not None:
                self._credit = min(credit + 1, MOST_CREDIT)
                return data
            self._credit = credit - MISS_COSTS if credit >= MISS_COSTS else -REST_READS
        while self._sleep(deadline - monotonic()) or monotonic() < deadline:
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:
                continue
        raise TimeoutError

    def _poll(self) -> bytes | None:
        """What comes within a moment, without a sleep until then."""
        receive, until = self._socket.recv, monotonic() + POLL_S
        while True:
            try:
                return receive(READ_BYTES)
            except BlockingIOError:
                if monotonic() >= until:
                    return None

    def _sleep(self, left_s: float) -> bool:
        """Until something has come, or the time is over."""
        return self._readable(max(0.0, min(left_s, LONGEST_SLEEP_S)))

    def is_closed_by_peer(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def end(self) -> None:
        """Wake the thread that waits for an answer: there will be none."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class ProducerOnLoop(Protocol):
    """The producer on the event loop."""

    def send(self, message: Message, *, timeout: float | None = None) -> Coroutine[Any, Any, SendReceipt]: ...

    def finish(self, outgoing: SendRequest, attempts: Attempts) -> Coroutine[Any, Any, SendReceipt]: ...


class DirectSends:
    """The connections of one producer that threads send on; any thread may call it."""

    def __init__(
        self, session: ClientSession, sender: Sender, maker: RequestMaker, hooks: SendHooks, producer: ProducerOnLoop
    ) -> None:
        self._session = session
        self._sender = sender
        self._maker = maker
        self._options = maker.options
        self._hooks = hooks
        self._producer = producer
        self._sign = session.access.sign
        self._opaques = count()
        session.unique_ids.next()  # it begins with a prefix, which two threads must not draw at once
        self._max_connections = MAX_CONNECTIONS
        self._lock = threading.Lock()
        self._free: dict[str, list[DirectConnection]] = {}
        self._all: set[DirectConnection] = set()
        self._counts: Counter[str] = Counter()
        self._closed = False
        _opened.add(self)

    def send(self, message: Message, timeout: float | None) -> SendReceipt | Coroutine[Any, Any, SendReceipt]:
        """Send and wait for the broker; what is not done then, the event loop has to do: the coroutine returned."""
        options = self._options
        message = options.with_bytes(message)
        if self._hooks.are_needed or message.sharding_key is not None:
            return self._producer.send(message, timeout=timeout)
        check_message(message, options.max_message_bytes)
        if len(message.body) >= options.compression.over_bytes:
            return self._producer.send(message, timeout=timeout)
        outgoing = self._maker.make(message)
        attempts = first_attempt(options.retries, timeout or options.timeout_s, monotonic)
        return self._attempt(outgoing, attempts) or self._producer.finish(outgoing, attempts)

    def _attempt(self, outgoing: SendRequest, attempts: Attempts) -> SendReceipt | None:
        """The receipt, if the first attempt could be made here and stored the message."""
        route = self._session.routes.writable(outgoing.topic)
        if route is None or attempts.left_s <= 0:
            return None
        queue = self._sender.next_queue(route, attempts)
        broker = self._session.master_of(queue.broker_name)
        if broker is None:  # the loop waits for one
            return None
        address, started, limit_s = broker.address, attempts.started, attempts.limit_s()
        connection = self._taken(address, started) or self._connected(address, limit_s)
        if connection is None:
            return None
        try:
            opaque = next(self._opaques) & 0x7FFFFFFF
            answer = self._answer(connection, self._frame(outgoing, queue, opaque), opaque, started, limit_s)
            receipt = read_receipt(answer, outgoing.message_id, queue, address)
        except (TransportError, BrokerError) as error:
            attempts.failed(queue, address, error)
            return None
        return receipt if attempts.is_stored(receipt) else None

    def _frame(self, outgoing: SendRequest, queue: MessageQueue, opaque: int) -> bytes:
        if self._sign is None and outgoing.is_plain:
            return outgoing.frame(queue, opaque)
        command = outgoing.command(queue)
        command.opaque = opaque
        if self._sign is not None:
            self._sign(command)
        return frame_bytes(command)

    def _answer(
        self, connection: DirectConnection, frame: bytes, opaque: int, started: float, timeout_s: float
    ) -> Command:
        try:
            _sending.add(connection)
            answer = connection.call(frame, opaque, started, timeout_s, alone=len(_sending) == 1)
        except BaseException:  # after Ctrl-C too: the next send would read the answer of this one
            self._drop(connection)
            raise
        finally:
            _sending.discard(connection)
        connection.used_at = started
        self._free[connection.address].append(connection)
        if self._closed:
            self._close_free()
        return answer

    def _taken(self, address: str, now: float) -> DirectConnection | None:
        """A connection that nobody else uses now."""
        free = self._free.get(address)
        while free:
            try:
                connection = free.pop()
            except IndexError:  # another thread was quicker
                return None
            if now - connection.used_at < UNUSED_S or not connection.is_closed_by_peer():
                return connection
            self._drop(connection)
        return None

    def _connected(self, address: str, timeout_s: float) -> DirectConnection | None:
        """One connection more; None when there are enough, or the loop has none: it finds out why, and says so."""
        if self._session.remoting.connected(address) is None:
            return None
        self._close_old(monotonic() - OLD_S)
        with self._lock:
            if self._closed or self._counts[address] >= self._max_connections:
                return None
            self._counts[address] += 1
            self._free.setdefault(address, [])
        try:
            connection = DirectConnection(address, min(timeout_s, CONNECT_S))
        except TransportError:
            with self._lock:
                self._counts[address] -= 1
            return None
        with self._lock:
            self._all.add(connection)
            is_open = not self._closed
        if not is_open:
            self._drop(connection)
        return connection if is_open else None

    def _close_free(self) -> None:
        """Close those that nobody uses."""
        for free in list(self._free.values()):
            while free:
                with suppress(IndexError):  # another thread was quicker
                    self._drop(free.pop())

    def _close_old(self, before: float) -> None:
        """Close those that nobody has used since, to brokers that are gone say; the oldest are the first."""
        for free in list(self._free.values()):
            with suppress(IndexError):
                while free[0].used_at < before:
                    connection = free.pop(0)
                    if connection.used_at >= before:  # another thread has taken the oldest
                        free.append(connection)
                    else:
                        self._drop(connection)

    def _drop(self, connection: DirectConnection) -> None:
        with self._lock:
            self._all.discard(connection)
            self._counts[connection.address] -= 1
        connection.close()

    def close(self) -> None:
        """Close what is free; a thread that waits for an answer is told that there will be none."""
        with self._lock:
            self._closed = True
            connections = list(self._all)
        self._close_free()
        for connection in connections:
            connection.end()

    def disown(self) -> None:
        """In a forked child: the connections are the parent's, and one of its threads may have held the lock."""
        self._lock = threading.Lock()
        self._closed = True
        self._free = {}
        for connection in self._all:
            connection.close()


_opened: WeakSet[DirectSends] = WeakSet()
_sending: set[DirectConnection] = set()
"""The connections with a request in flight, of all producers."""


def _disown() -> None:
    _sending.clear()
    for direct in list(_opened):
        direct.disown()


in_forked_child(_disown)
