"""A network in memory: connections with seeded latency and faults.

Bytes written at one end arrive at the other in order, a little later, sometimes in two pieces. Faults:

* The path from one host to another is blocked: nothing arrives until it is open again, then everything does, as with packets
  that are lost and sent again. Connecting needs both directions.
* A connection is cut: both ends lose it, with bytes still on the way.
* A process dies: its peers see their connections closed after the bytes on the way or, if its machine lost power,
nothing. Then
  who writes to it gets a connection reset once the machine is up again.
* A peer does not read: written bytes wait, and the writer is told to pause, as by asyncio.

Times, order and lengths of all arrivals go into the checksum `trace`: equal runs have equal traces.
"""

from __future__ import annotations

import asyncio
import errno
import os
import struct
import zlib
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from itertools import count
from random import Random
from typing import Any

LONG_S = 365 * 24 * 3600.0
BACKLOG_POLL_S = 0.05
Address = tuple[str, int]

_EVENT = struct.Struct(">dIIb")


class _EndMark:
    """An event sent in line with the bytes."""


EOF = _EndMark()
RESET = _EndMark()


def host_of(process: str) -> str:
    """
    >>> host_of("broker-a#3")
    'broker-a'
    """
    return process.partition("#")[0]


class SimListener:
    """A listening port; stands for a server's `socket.socket`."""

    def __init__(self, network: Network, process: str, address: Address) -> None:
        self.network, self.process, self.address = network, process, address
        self.factory: Callable[[], Any] | None = None
        """None until connections are accepted; earlier clients wait in the backlog."""
        self.context: Context = copy_context()

    def getsockname(self) -> Address:
        return self.address

    def close(self) -> None:
        self.network.forget(self)


class SimServer:
    """Stands for `asyncio.Server`."""

    def __init__(self, listener: SimListener, factory: Callable[[], Any]) -> None:
        listener.factory = factory
        listener.context = copy_context()
        self._listener = listener
        self.sockets = (listener,)

    def close(self) -> None:
        self._listener.close()

    async def wait_closed(self) -> None:
        """Returns at once: closing takes no time."""


class Network:
    """All hosts, ports and connections of a simulation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int = 0) -> None:
        self.loop = loop
        self.latency_s = (0.0005, 0.004)
        self.split_share = 0.05
        """Share of writes that arrive in two pieces."""
        self.trace = 0
        self.delivered = 0
        self.connections: dict[int, SimConnection] = {}
        """Connections with at least one open end, by number."""
        self._seed = seed
        self._numbers = count(1)
        self._ports = count(40_000)
        self._addresses: dict[str, str] = {}
        self._listeners: dict[Address, SimListener] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._dead: set[str] = set()
        self._dark: set[str] = set()

    def address_of(self, host: str) -> str:
        """The IP address of a host, assigned when it is first asked for."""
        number = len(self._addresses) + 1
        return self._addresses.setdefault(host, f"10.0.{number >> 8}.{number & 255}")

    # Servers

    def listen(self, process: str, address: Address) -> SimListener:
        if address[1] == 0:
            address = (address[0], next(self._ports))
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[address] = SimListener(self, process, address)
        self._dark.discard(host_of(process))
        return listener

    def forget(self, listener: SimListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def listener_at(self, address: Address) -> SimListener | None:
        return self._listeners.get(address)

    # Clients

    async def connect(self, process: str, factory: Callable[[], Any], address: Address) -> tuple[Any, Any]:
        own = host_of(process)
        chance = self._chance(next(self._numbers))
        await asyncio.sleep(chance.uniform(*self.latency_s))
        while self._is_unreachable(own, address):  # noqa: ASYNC110 (virtual time: it costs nothing)
            # As with a real network: retried until the caller gives up.
            await asyncio.sleep(LONG_S if self.is_dead(process) else 1.0)
        while (listener := self.listener_at(address)) is not None and listener.factory is None:  # noqa: ASYNC110
            await asyncio.sleep(BACKLOG_POLL_S)
        if listener is None or self.is_dead(listener.process):
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {address[0]}:{address[1]}")
        connection = SimConnection(self, next(self._numbers), process, listener, factory, self.address_of(own))
        return connection.ends[0], connection.ends[0].protocol

    def _is_unreachable(self, own: str, address: Address) -> bool:
        other = next((host for host, ip in self._addresses.items() if ip == address[0]), "")
        return bool(self._blocked and self.is_blocked(own, other)) or other in self._dark

    def _chance(self, number: int) -> Random:
        """Random numbers of one connection: what others do does not change what happens to it."""
        return Random(self._seed << 32 | number)

    def client_port(self) -> int:
        return next(self._ports)

    # Faults

    def block(self, source: str, target: str, *, both: bool = True) -> None:
        """Block the path from one host to another, by default in both directions."""
        self._blocked.add((source, target))
        if both:
            self._blocked.add((target, source))

    def unblock(self, source: str | None = None, target: str | None = None) -> None:
        """Open the paths between two hosts again, or all paths of one host, or all."""
        given = {host for host in (source, target) if host is not None}
        self._blocked = {way for way in self._blocked if not given <= set(way)}
        for connection in list(self.connections.values()):
            connection.deliver_arrived()

    def is_blocked(self, one: str, other: str) -> bool:
        return (one, other) in self._blocked or (other, one) in self._blocked

    def lets_through(self, source: str, target: str) -> bool:
        return not self._blocked or (source, target) not in self._blocked

    def cut(self, connection: SimConnection) -> None:
        """Cut a connection: both ends lose it; some of the bytes on the way still arrive."""
        connection.cut()

    def died(self, process: str, silently: bool = False) -> None:
        """Close the ports and connections of a dead process; with `silently` its peers are not told."""
        self._dead.add(process)
        if silently:
            self._dark.add(host_of(process))
        for listener in list(self._listeners.values()):
            if listener.process == process:
                self.forget(listener)
        for connection in list(self.connections.values()):
            for end in connection.ends:
                if end.process == process:
                    end.die(silently)

    def is_dead(self, process: str) -> bool:
        return process in self._dead

    def is_dark(self, host: str) -> bool:
        """Whether a host lost power and nothing listens there yet."""
        return host in self._dark

    def note(self, number: int, size: int, side: int) -> None:
        self.delivered += 1
        self.trace = zlib.crc32(_EVENT.pack(self.loop.time(), number, size, side), self.trace)


class SimConnection:
    """A connection with its two ends."""

    def __init__(
        self,
        network: Network,
        number: int,
        process: str,
        listener: SimListener,
        factory: Callable[[], Any],
        own_ip: str,
    ) -> None:
        self.network, self.number = network, number
        self.chance = network._chance(number)
        client = (own_ip, network.client_port())
        mine, theirs = copy_context(), listener.context.copy()
        assert listener.factory is not None
        self.ends = (
            SimTransport(self, 0, process, mine, client, listener.address),
            SimTransport(self, 1, listener.process, theirs, listener.address, client),
        )
        network.connections[number] = self
        theirs.run(self.ends[1].begin, listener.factory)
        self.ends[0].begin(factory)

    def deliver_arrived(self) -> None:
        for end in self.ends:
            self.network.loop.call_soon(end.deliver_arrived, context=end.context)

    def cut(self) -> None:
        lost = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        for end in self.ends:
            end.deliver_part()
            end.lose(lost)

    def ended(self) -> None:
        if all(end.is_lost for end in self.ends):
            self.network.connections.pop(self.number, None)


class SimTransport(asyncio.Transport):
    """One end of a connection; bytes on their way to it wait in `incoming`."""

    def __init__(
        self, connection: SimConnection, side: int, process: str, context: Context, own: Address, peer: Address
    ) -> None:
        super().__init__({"sockname": own, "peername": peer})
        self.connection, self.side, self.process, self.context = connection, side, process, context
        self.protocol: Any = None
        self.incoming: deque[bytes | _EndMark] = deque()
        self.incoming_bytes = 0
        self.is_lost = False
        """Whether this end is closed: its protocol was told, or its process died."""
        self._loop = connection.network.loop
        self._last_arrival = 0.0
        self._due = 0
        """How many items of `incoming` have arrived by now."""
        self._is_closing = False
        self._is_reading = True
        self._high, self._low = 64 * 1024, 16 * 1024
        self._peer_pauses = False

    def begin(self, factory: Callable[[], Any]) -> None:
        self.protocol = factory()
        self.protocol.connection_made(self)

    @property
    def other(self) -> SimTransport:
        return self.connection.ends[1 - self.side]

    # The interface for protocols

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self.protocol
        return protocol

    def write(self, data: Any) -> None:
        if self._is_closing or self.is_lost or not data:
            return
        network, chance, data = self.connection.network, self.connection.chance, bytes(data)
        if len(data) > 1 and chance.random() < network.split_share:
            middle = chance.randrange(1, len(data))
            self.other.expect(data[:middle])
            self.other.expect(data[middle:])
        else:
            self.other.expect(data)
        if self.other.incoming_bytes > self._high and not self._peer_pauses:
            self._peer_pauses = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self.other.incoming_bytes

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._loop.call_soon(self.deliver_arrived, context=self.context)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._end(EOF)

    def abort(self) -> None:
        self._end(RESET)

    def _end(self, mark: _EndMark) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.other.expect(mark)
            self._loop.call_soon(self.lose, None, context=self.context)

    # The interface for the network

    def expect(self, data: bytes | _EndMark) -> None:
        """Schedule the arrival of something that was sent here."""
        network = self.connection.network
        if network.is_dead(self.other.process) and data is not RESET:
            return
        self.incoming.append(data)
        if isinstance(data, bytes):
            self.incoming_bytes += len(data)
        latency_s = self.connection.chance.uniform(*network.latency_s)
        self._last_arrival = max(self._last_arrival, self._loop.time() + latency_s)
        self._loop.call_at(self._last_arrival, self._arrive, context=self.context)

    def _arrive(self) -> None:
        self._due += 1
        self.deliver_arrived()

    def deliver_arrived(self) -> None:
        """Deliver what has arrived, if the path is open and the protocol reads."""
        network = self.connection.network
        own, peer = host_of(self.process), host_of(self.other.process)
        while self._due and self.incoming and network.lets_through(peer, own):
            if self.is_lost:
                self._refuse()
                return
            if not self._is_reading:
                return
            self._due -= 1
            data = self.incoming.popleft()
            if isinstance(data, _EndMark):
                self._finish(data)
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        self.incoming_bytes -= len(data)
        self.connection.network.note(self.connection.number, len(data), self.side)
        self.protocol.data_received(data)
        peer = self.other
        if peer._peer_pauses and self.incoming_bytes <= peer._low:
            peer._peer_pauses = False
            if not peer.is_lost:
                self._loop.call_soon(peer.protocol.resume_writing, context=peer.context)

    def _finish(self, mark: _EndMark) -> None:
        if mark is EOF:
            self.protocol.eof_received()
            self.lose(None)
        else:
            self.lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _refuse(self) -> None:
        """Drop bytes for a closed end; its machine answers with a reset, if it has power."""
        had_bytes = any(isinstance(item, bytes) for item in self.incoming)
        self.incoming.clear()
        self.incoming_bytes = self._due = 0
        if had_bytes and not self.connection.network.is_dark(host_of(self.process)) and not self.other.is_lost:
            self.other.expect(RESET)

    def deliver_part(self) -> None:
        """Deliver a part of the first bytes on the way, sometimes; drop the rest."""
        chance = self.connection.chance
        if not self.incoming or self.is_lost or not self._is_reading:
            return
        first = self.incoming[0]
        if isinstance(first, bytes) and len(first) > 1 and chance.random() < 0.5:
            self.incoming_bytes -= len(first)
            self.incoming.clear()
            part = first[: chance.randrange(1, len(first))]
            self.context.run(self.protocol.data_received, part)

    def lose(self, error: Exception | None) -> None:
        """Close this end, and tell its protocol."""
        if self.is_lost:
            return
        self.is_lost = self._is_closing = True
        self._loop.call_soon(self.protocol.connection_lost, error, context=self.context)
        if self.incoming:
            self._refuse()
        self.connection.ended()

    def die(self, silently: bool) -> None:
        """Close this end because its process died."""
        if self.is_lost:
            return
        self.is_lost = self._is_closing = True
        self.incoming.clear()
        self.incoming_bytes = self._due = 0
        if not silently:
            self.other.expect(RESET)
        # The dead process's own protocol is told too, so that its coroutines end.
        self._loop.call_soon(self.protocol.connection_lost, None, context=self.context)
        self.connection.ended()


__all__ = ["Network", "SimConnection", "SimListener", "SimServer", "host_of"]
