"""New connections of a server, until their channels serve them.

A connection may be silent for as long as an idle one. But what it has begun it must finish within `FIRST_FRAME_S` or
`HANDSHAKE_S`: its first frame, its PROXY header, its TLS handshake. So nobody can hold a connection by sending it slowly.

Where TLS and PROXY headers are off, `FirstFrame` stands before the channel until its first frame is complete. Otherwise
`Arrival` looks at the first bytes: a PROXY header, where load balancers are configured, then TLS or a frame.

Handshakes cost about a thousand times as much as a request. They begin in the order in which they came, one in each turn
of the loop, so that connections that are established are served meanwhile. Unfinished ones are limited too: one more closes
the oldest, which is then older than a second, because so many take that long to begin.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import cast

from rocketline.errors import RemoteProtocolError
from rocketline.metrics.page import PageFront
from rocketline.system.networks import has_address
from rocketline.system.sockets import is_loopback
from rocketline.transport.proxy_header import Peer, read_proxy_header
from rocketline.transport.served import Served
from rocketline.transport.server_config import ConnectionsConfig, TlsMode
from rocketline.transport.server_tls import ServerTls
from rocketline.transport.tls_layer import TlsLayer

log = logging.getLogger(__name__)

FIRST_FRAME_S = 10.0
HANDSHAKE_S = 10.0
MAX_HANDSHAKES = 1024
TLS_RECORD = 0x16


class Admission:
    """How many connections there may be, in all and of one address; those of this machine are not counted by address."""

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._count = 0
        self._by_address: Counter[str] = Counter()

    def admit(self, ip: str) -> str:
        """Count a connection, or say why there may not be one more."""
        if self._count >= self._most:
            return f"{self._count} connections are open, the limit (rocketline.maxConnections)"
        if self._counts(ip):
            if self._by_address[ip] >= self._most_per_address:
                return (
                    f"{ip} has {self._most_per_address} connections already, the limit "
                    "(rocketline.maxConnectionsPerAddress)"
                )
            self._by_address[ip] += 1
        self._count += 1
        return ""

    def release(self, ip: str) -> None:
        self._count -= 1
        if self._counts(ip):
            self._by_address[ip] -= 1
            if not self._by_address[ip]:
                del self._by_address[ip]

    def _counts(self, ip: str) -> bool:
        return bool(self._most_per_address) and not is_loopback(ip)


class FirstFrame(asyncio.Protocol):
    """Stands before a channel until its first frame is complete, and closes it if that takes too long."""

    __slots__ = ("_channel", "_limit", "_received", "_transport")

    def __init__(self, channel: Served) -> None:
        self._channel = channel
        self._received = 0
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._channel.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        self._channel.data_received(data)
        if self._channel.unfinished_bytes < self._received:
            self._end_limit()
            self._transport.set_protocol(cast(asyncio.Protocol, self._channel))
        elif self._limit is None:
            self._limit = asyncio.get_running_loop().call_later(FIRST_FRAME_S, self._give_up)

    def _give_up(self) -> None:
        log.warning("closing %s: its first frame is not complete after %g s", self._channel.remote, FIRST_FRAME_S)
        self._channel.abort()

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def eof_received(self) -> bool:
        return self._channel.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limit()
        self._channel.connection_lost(exc)

    def pause_writing(self) -> None:
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        self._channel.resume_writing()


class Acceptor:
    """Makes the first protocol of every connection of a server."""

    def __init__(
        self,
        new_channel: Callable[[], Served],
        refuse_plain: Callable[[int], Served | None],
        admission: Admission,
        connections: ConnectionsConfig,
        tls: ServerTls | None,
        idle_s: float,
    ) -> None:
        """`refuse_plain` makes a channel that tells the peer why, where only TLS is taken; it is given the first byte, and
        None closes the connection."""
        self.new_channel = new_channel
        self.refuse_plain = refuse_plain
        self.admission = admission
        self.networks = connections.proxy_networks
        self.tls = tls
        self.idle_s = idle_s
        self.arrivals: set[Arrival] = set()
        self.handshakes = Handshakes()

    def accept(self) -> asyncio.Protocol:
        if self.tls is None and not self.networks:
            return FirstFrame(self.new_channel())
        return Arrival(self)

    def is_proxy(self, ip: str) -> bool:
        """Whether a connection from this address begins with a PROXY header."""
        return bool(self.networks) and has_address(self.networks, ip)

    def abort_arrivals(self) -> None:
        for arrival in list(self.arrivals):
            arrival.abort()


class Arrival(asyncio.Protocol):
    """A connection whose first bytes are not known yet, or whose TLS handshake is not complete."""

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._head = bytearray()
        self._peer: Peer = ("", 0)
        self._awaits_header = False
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self._peer = (name[0], name[1]) if isinstance(name, tuple) else ("", 0)
        self._real_ip = self._peer[0]
        if problem := self._acceptor.admission.admit(self._real_ip):
            log.warning("refusing %s: %s", self._real_ip, problem)
            self._transport.abort()
            return
        self._acceptor.arrivals.add(self)
        self._awaits_header = self._acceptor.is_proxy(self._real_ip)
        self._limit_to(self._acceptor.idle_s, "it was silent")

    def _limit_to(self, seconds: float, problem: str) -> None:
        self._end_limit()
        self._limit = asyncio.get_running_loop().call_later(seconds, self._refuse, f"{problem} for {seconds:g} s")

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def _refuse(self, problem: str) -> None:
        log.info("closing %s: %s", self._real_ip, problem)
        self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._head:
            self._limit_to(FIRST_FRAME_S, "its beginning was not complete")
        self._head += data
        try:
            if self._awaits_header and not self._take_header():
                return
        except RemoteProtocolError as error:
            log.warning("closing %s: %s", self._real_ip, error)
            self._transport.abort()
            return
        if self._head:
            self._choose()

    def _take_header(self) -> bool:
        """Take the PROXY header away, once it is complete."""
        header = read_proxy_header(self._head)
        if header is None:
            return False
        del self._head[: header.length]
        self._peer = header.peer or self._peer
        self._awaits_header = False
        return True

    def _choose(self) -> None:
        tls, first = self._acceptor.tls, self._head[0]
        self._end_limit()
        if tls is not None and first == TLS_RECORD:
            layer = TlsLayer(tls.context, self._transport, self._shaken)
            self._transport.set_protocol(layer)
            self._transport.pause_reading()
            self._acceptor.handshakes.add(layer, bytes(self._head))
        elif tls is not None and tls.mode is TlsMode.ENFORCING:
            self._refuse_plain(first)
        else:
            self._hand_over(self._transport, self._acceptor.new_channel())

    def _refuse_plain(self, first: int) -> None:
        channel = self._acceptor.refuse_plain(first)
        if channel is None:
            self._refuse("it does not speak TLS")
            return
        self._hand_over(self._transport, channel)

    def _shaken(self, layer: TlsLayer, problem: str) -> None:
        """The TLS handshake ended."""
        tls = self._acceptor.tls
        assert tls is not None
        self._acceptor.handshakes.ended(layer)
        if problem:
            tls.handshake_failures += 1
            log.info("%s: TLS handshake failed: %s", self._real_ip, problem)
            self._leave()
            return
        channel = self._acceptor.new_channel()
        channel.identity = tls.identity_of(layer.get_extra_info("peercert"))
        self._head.clear()
        self._hand_over(layer, channel)

    def _hand_over(self, transport: asyncio.Transport, channel: Served) -> None:
        self._leave()
        channel.peer = self._peer
        following = FirstFrame(channel)
        transport.set_protocol(following)
        following.connection_made(transport)
        if self._head and not transport.is_closing():
            following.data_received(bytes(self._head))

    def _leave(self) -> None:
        self._end_limit()
        if self in self._acceptor.arrivals:
            self._acceptor.arrivals.discard(self)
            self._acceptor.admission.release(self._real_ip)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()


class Handshakes:
    """TLS handshakes that wait for their turn, and those that were begun."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[TlsLayer, bytes]] = deque()
        self._begun: dict[TlsLayer, None] = {}

    def add(self, layer: TlsLayer, data: bytes) -> None:
        self._waiting.append((layer, data))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._begin_next)

    def _begin_next(self) -> None:
        layer, data = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._begin_next)
        if layer.is_closing():
            return
        if len(self._begun) >= MAX_HANDSHAKES:
            oldest = next(iter(self._begun))
            self.ended(oldest)
            oldest.abort()
        self._begun[layer] = None
        layer.resume_reading()
        layer.begin(data, HANDSHAKE_S)

    def ended(self, layer: TlsLayer) -> None:
        self._begun.pop(layer, None)


class TlsPort:
    """Makes the first protocol of every connection of a port that has rules of its own for what follows the TLS handshake,
    and in permissive mode for what is plain, as the first byte says.

    Whoever connects counts as a handshake that is not finished, silent or not: here the oldest makes room too."""

    def __init__(
        self, tls: ServerTls, new_protocol: Callable[[], asyncio.Protocol], *, takes_plain: bool = False
    ) -> None:
        self._tls = tls
        self._new_protocol = new_protocol
        self._takes_plain = takes_plain
        self._handshakes = Handshakes()
        self._unfinished: dict[asyncio.Transport, None] = {}

    def accept(self) -> asyncio.Protocol:
        return _Connected(self)

    def abort_all(self) -> None:
        for transport in list(self._unfinished):
            transport.abort()

    def came(self, connection: _Connected, transport: asyncio.Transport) -> None:
        """Somebody connected."""
        if len(self._unfinished) >= MAX_HANDSHAKES:
            oldest = next(iter(self._unfinished))
            self.left(oldest)
            oldest.abort()
        self._unfinished[transport] = None
        if self._takes_plain:
            connection.give_up_after(FIRST_FRAME_S)
        else:
            self._begin(transport, b"")

    def left(self, transport: asyncio.Transport) -> None:
        self._unfinished.pop(transport, None)

    def begun(self, transport: asyncio.Transport, data: bytes) -> None:
        """The first bytes are there."""
        if data[0] == TLS_RECORD:
            self._begin(transport, data)
            return
        self.left(transport)
        protocol = self._new_protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    def _begin(self, transport: asyncio.Transport, data: bytes) -> None:
        layer = TlsLayer(self._tls.context, transport, partial(self._shaken, transport))
        transport.set_protocol(layer)
        transport.pause_reading()
        self._handshakes.add(layer, data)

    def _shaken(self, transport: asyncio.Transport, layer: TlsLayer, problem: str) -> None:
        self.left(transport)
        self._handshakes.ended(layer)
        if problem:
            self._tls.handshake_failures += 1
            log.info("%s: TLS handshake failed: %s", layer.get_extra_info("peername"), problem)
            return
        protocol = self._new_protocol()
        layer.set_protocol(protocol)
        protocol.connection_made(layer)


def page_front(tls: ServerTls | None) -> PageFront | None:
    """What decides how connections to the page of a server begin; None: all are plain."""
    if tls is None:
        return None
    takes_plain = tls.mode is not TlsMode.ENFORCING
    return lambda new_protocol: TlsPort(tls, new_protocol, takes_plain=takes_plain)


class _Connected(asyncio.Protocol):
    """Tells that a connection is there, and its first bytes."""

    def __init__(self, port: TlsPort) -> None:
        self._port = port
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._port.came(self, self._transport)

    def give_up_after(self, seconds: float) -> None:
        self._limit = asyncio.get_running_loop().call_later(seconds, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._end_limit()
        self._port.begun(self._transport, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limit()
        self._port.left(self._transport)

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
