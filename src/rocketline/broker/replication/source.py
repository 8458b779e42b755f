"""The HA port of a broker: replicas connect and are sent the log, as far as it reaches and from then on.

A connection is a protocol without a task. What it may send it sends when something was appended (`wake`), when its socket
takes more, or when its time has come. Reports are handled as they come.

A replica of rocketline says who it is, and is checked (`tickets.py`). One that does not is served or refused, by the
settings; what it acknowledges does not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, cast

from rocketline.broker.replication.acks import Acks, MemberKey, Replica
from rocketline.broker.replication.config import ReplicationConfig
from rocketline.broker.replication.epochs import Epochs
from rocketline.broker.replication.meter import ByteMeter
from rocketline.broker.replication.tickets import Tickets
from rocketline.broker.wiring import wired
from rocketline.errors import RemoteProtocolError
from rocketline.protocol.replication_frames import (
    DataHeader,
    Dialect,
    FromReplica,
    Hello,
    ReplicaBytes,
    ReplicaHandshake,
    Report,
    encode_data_header,
    encode_master_handshake,
)
from rocketline.store.message_store import MessageStore
from rocketline.system.networks import has_address, networks_of
from rocketline.transport.accepting import TlsPort
from rocketline.transport.listening_sockets import ListeningSockets
from rocketline.transport.server_tls import ServerTls

log = logging.getLogger(__name__)

OWN_FRAME_BYTES = 512 << 10
OWN_HEARTBEAT_S = 1.0
TURN_BYTES = 4 << 20
"""Sent to one replica before others get their turn."""
JOINED_BYTES = 64 << 10
"""Up to this size, header and bytes leave in one write."""
MAX_CONNECTIONS = 100
"""Of replicas that proved who they are, and as many of strangers that are served."""
MAX_UNPROVED = 50
"""Connections that have not said who they are. The oldest makes room for a new one: nobody can keep replicas out."""
HELLO_S = 10.0
"""In which a connection must say who it is, or that it is a stranger."""
BUFFER_BYTES = 1 << 20


@wired
class SourceParts:
    """What sending the log needs of a broker."""

    store: MessageStore
    config: ReplicationConfig
    dialect: Dialect
    epochs: Epochs
    acks: Acks
    tickets: Tickets
    serves_stranger: Callable[[str], bool]
    """Whether a replica at this address is served though it does not say who it is."""
    confirmed: Callable[[], int]
    """What replicas may let be read."""
    reported: Callable[[], None]
    """Called after the report of a replica that counts."""
    changed: Callable[[], None]
    """Called when such a replica came, went, or caught up for the first time."""
    monotonic: Callable[[], float]


class ReplicationSource:
    """The listening port and its connections."""

    def __init__(self, parts: SourceParts, listening: ListeningSockets, tls: ServerTls | None) -> None:
        self.parts = parts
        self.on_stranger: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Called when the first replica comes that does not say who it is."""
        self.connections: set[ReplicaConnection] = set()
        self._unproved: dict[ReplicaConnection, None] = {}
        self.refused = 0
        """Connections that were refused or closed because of what they sent."""
        self.is_serving = False
        self.trusted = networks_of(parts.config.trusted)
        """Where Apache's slaves are whose reports count."""
        self._listening = listening
        self._arrivals = TlsPort(tls, self._new_connection) if tls is not None else None
        self._stranger_work: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._listening.start(self._new_connection if self._arrivals is None else self._arrivals.accept)

    def _new_connection(self) -> ReplicaConnection:
        return ReplicaConnection(self)

    def serve(self) -> None:
        """Send the log from now on: this broker is the master."""
        self.is_serving = True

    def stop_serving(self) -> None:
        """Close all connections and take none."""
        self.is_serving = False
        for connection in list(self.connections):
            connection.close("this broker is not the master")
        self.parts.acks.start_over()

    def came(self, connection: ReplicaConnection) -> None:
        """Nobody knows yet who it is."""
        if len(self._unproved) >= MAX_UNPROVED:
            next(iter(self._unproved)).refuse(f"{MAX_UNPROVED} newer connections have not said who they are either")
        self.connections.add(connection)
        self._unproved[connection] = None

    def is_unproved(self, connection: ReplicaConnection) -> bool:
        return connection in self._unproved

    def admit(self, connection: ReplicaConnection) -> bool:
        """A replica of ours proved who it is, or a stranger is to be served; False when there are too many of its kind."""
        if connection in self._unproved:
            del self._unproved[connection]
            others = (other for other in self.connections if other is not connection and other not in self._unproved)
            if sum(other.is_ours == connection.is_ours for other in others) >= MAX_CONNECTIONS:
                connection.refuse(f"{MAX_CONNECTIONS} replicas are connected, the limit")
                return False
        return True

    def gone(self, connection: ReplicaConnection) -> None:
        self.connections.discard(connection)
        self._unproved.pop(connection, None)

    def stranger_came(self) -> None:
        if self.on_stranger is not None and self._stranger_work is None:
            self._stranger_work = asyncio.get_running_loop().create_task(self.on_stranger())

    def wake(self) -> None:
        """Something was appended, or confirmed."""
        for connection in list(self.connections):
            connection.pump()

    async def close(self) -> None:
        self.stop_serving()
        if self._arrivals is not None:
            self._arrivals.abort_all()
        if self._stranger_work is not None:
            await asyncio.wait([self._stranger_work])
        await self._listening.close()


class ReplicaConnection(asyncio.Protocol):
    """One replica."""

    def __init__(self, source: ReplicationSource) -> None:
        self.remote = ""
        self.key: MemberKey | None = None
        """Whom its reports count for; None: nobody."""
        self.is_ours = False
        self.end = 0
        """Of its log, as it reported."""
        self.next_offset: int | None = None
        """Where the next bytes for it begin; None: it has not reported yet."""
        self.sent = ByteMeter(source.parts.monotonic)
        self._source = source
        self._parts = source.parts
        self._bytes = ReplicaBytes(self._parts.dialect)
        self._paused = False
        self._is_open = False
        self._continues = False
        self._confirmed_sent = -1
        self._replica: Replica | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._came = self._last_read = self._last_write = 0.0
        self._allowed, self._allowed_again = 0, 0.0

    @property
    def name(self) -> str:
        """The same after each new connection: the address where clients find the replica; of one that does not say that,
        its host, and its number if it has one."""
        host = f"{self._ip}#{self.key}" if self.is_ours else self._ip
        return self._parts.tickets.address_of(self.key) or host or self.remote

    @property
    def bytes_per_s(self) -> int:
        return self.sent.per_second

    @property
    def caught_up_at(self) -> float | None:
        """The last monotonic time of which it has everything; None: not yet, or it does not count."""
        return None if self._replica is None else self._replica.caught_up_at

    # Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self._ip = str(name[0]) if isinstance(name, tuple) else ""
        self.remote = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
        self._is_open = True
        self._source.came(self)
        if not self._source.is_serving:
            self.close("this broker is not the master")
        else:
            self._transport.set_write_buffer_limits(high=BUFFER_BYTES)
            self._came = self._last_read = self._last_write = self._parts.monotonic()
            self._tick()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_open = False
        self._source.gone(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._replica is not None and self._parts.acks.replicas.get(self.key) is self._replica:
            del self._parts.acks.replicas[self.key]
            log.info("replica %s at %s is gone", self.key, self.remote)
            self._parts.changed()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    def close(self, why: str) -> None:
        if self._is_open:
            log.info("closing the connection of replica %s: %s", self.remote, why)
            self._transport.abort()

    def refuse(self, why: str) -> None:
        self._source.refused += 1
        self._source.gone(self)
        log.warning("closing the connection of %s to the HA port: %s", self.remote, why)
        self._transport.abort()
        self._is_open = False

    # What the replica says

    def data_received(self, data: bytes) -> None:
        self._last_read = self._parts.monotonic()
        try:
            for found in self._bytes.receive(data):
                if not self._is_open:
                    return
                self._take(found)
        except RemoteProtocolError as error:
            self.refuse(str(error))
            return
        if self._is_open:
            self.pump()

    def _take(self, found: FromReplica) -> None:
        if isinstance(found, Hello):
            self._greeted(found)
        elif isinstance(found, ReplicaHandshake):
            self._shake_hands(found)
        else:
            self._reported(found)

    def _greeted(self, hello: Hello) -> None:
        if not self._parts.tickets.is_proved(hello):
            self.refuse(f"it does not prove to be member {hello.member}")
            return
        self.is_ours = True
        if self._source.admit(self):
            self._count_as(hello.member)

    def _count_as(self, key: MemberKey) -> None:
        for other in list(self._source.connections):
            if other is not self and other.key == key:
                other.close("the replica has a newer connection")
        self.key = key
        self._replica = self._parts.acks.replicas[key] = Replica()

    def _shake_hands(self, handshake: ReplicaHandshake) -> None:
        if self._is_stranger():
            return
        if self.is_ours and handshake.member != self.key:
            self.refuse(f"member {self.key} says that it is member {handshake.member}")
            return
        store = self._parts.store
        self._write(encode_master_handshake(store.log_next_offset, self._parts.epochs.entries))

    def _is_stranger(self) -> bool:
        """Whether it was refused, because it did not say who it is."""
        if self.is_ours:
            return False
        if not self._parts.serves_stranger(self._ip):
            self.refuse(
                "it does not say who it is, as Apache's slaves do not; to have it served, set rocketline.haStrangers=serve"
            )
            return True
        return False

    def _reported(self, report: Report) -> None:
        if self._is_stranger() or not self._source.admit(self):
            return
        store = self._parts.store
        if report.end > store.log_next_offset:
            self.refuse(
                f"its log reaches to {report.end}, this one to {store.log_next_offset}: it has what this broker never had. "
                "Its data folder has to be emptied"
            )
            return
        if self.next_offset is None:
            self._begin(report.end)
        self.end = report.end
        if self._replica is not None and self._is_open:
            self._count(self._replica, report.end)

    def _begin(self, end: int) -> None:
        store = self._parts.store
        self.next_offset = end or self._first_offset()
        if self.next_offset < store.log_min_offset:
            self.refuse(
                f"its log ends at {end}, this one begins at {store.log_min_offset}: it was away for too long. Its data "
                "folder has to be emptied"
            )
            return
        if not self.is_ours:
            self._source.stranger_came()
            if self._is_trusted():
                self._count_as(self._ip)
        log.info("replica %s at %s follows from %d on", self.key or "of nobody", self.remote, self.next_offset)

    def _first_offset(self) -> int:
        """Where a log begins that has nothing: Apache's slaves of fixed roles get the last file only."""
        if self.is_ours or self._parts.dialect is Dialect.EPOCHS:
            return self._parts.store.log_min_offset
        return self._parts.store.copies.last_file_offset()

    def _is_trusted(self) -> bool:
        return has_address(self._source.trusted, self._ip)

    def _count(self, replica: Replica, end: int) -> None:
        parts = self._parts
        is_first = replica.caught_up_at is None
        replica.end = end
        parts.acks.reported(self.key, end)
        replica.look(parts.monotonic(), parts.store.log_next_offset)
        parts.reported()
        if is_first and replica.caught_up_at is not None:
            parts.changed()

    # What it is sent

    def pump(self) -> None:
        """Send what there is, as long as the socket takes it."""
        if self.next_offset is None or not self._is_open or self._paused or self._continues:
            return
        sent = 0
        while not self._paused and self._is_open and (size := self._send_piece()):
            sent += size
            if sent >= TURN_BYTES:
                self._continues = True
                asyncio.get_running_loop().call_soon(self._continue)
                return
        if self._parts.dialect is Dialect.EPOCHS and self._is_open and self._parts.confirmed() > self._confirmed_sent:
            self._send(memoryview(b""))  # tells what may be read now

    def _continue(self) -> None:
        self._continues = False
        self.pump()

    def _send_piece(self) -> int:
        """Send the next bytes; returns how many."""
        assert self.next_offset is not None
        start = self.next_offset
        limit = OWN_FRAME_BYTES if self.is_ours else self._parts.config.frame_bytes
        store = self._parts.store
        end = min(start + limit, store.committed_offset)
        if self._parts.dialect is Dialect.EPOCHS:
            epochs = self._parts.epochs
            end = min(end, epochs.end_of(epochs.at(start), end))
        if self._parts.config.limits_flow:
            end = min(end, start + self._take_allowance(end - start))
        piece = store.copies.slice(start, end)
        if not piece:
            if start < store.log_min_offset:
                self.refuse(f"it is so slow that the file with {start}, which it needs next, was removed meanwhile")
            return 0
        self._send(piece)
        return len(piece)

    def _take_allowance(self, wanted: int) -> int:
        """How much of it may be sent now; the rest waits for the next tenth of a second."""
        now = self._parts.monotonic()
        if now >= self._allowed_again:
            self._allowed, self._allowed_again = max(1, self._parts.config.max_bytes_per_s // 10), now + 0.1
        granted = min(max(wanted, 0), self._allowed)
        self._allowed -= granted
        if granted < wanted and not self._continues:
            self._continues = True
            asyncio.get_running_loop().call_later(self._allowed_again - now, self._go_on)
        return granted

    def _go_on(self) -> None:
        self._allowed_again = 0.0  # a timer may come a moment early: that is no reason to wait again
        self._continue()

    def _send(self, piece: memoryview) -> None:
        assert self.next_offset is not None
        header = DataHeader(self.next_offset, len(piece))
        if self._parts.dialect is Dialect.EPOCHS:
            self._confirmed_sent = self._parts.confirmed()
            epoch = self._parts.epochs.at(self.next_offset)
            header = DataHeader(self.next_offset, len(piece), epoch, self._confirmed_sent)
        raw = encode_data_header(header)
        if len(piece) <= JOINED_BYTES:
            self._write(raw + piece)
        else:
            self._write(raw)
            self._write(piece)
        self.next_offset += len(piece)
        self.sent.add(len(piece))

    def _write(self, data: bytes | memoryview) -> None:
        self._last_write = self._parts.monotonic()
        self._transport.write(data)

    def _tick(self) -> None:
        """Say that we are still here, and end a connection whose replica does not."""
        now, config = self._parts.monotonic(), self._parts.config
        if self._source.is_unproved(self) and now - self._came > HELLO_S:
            self.refuse(f"it did not say who it is within {HELLO_S:g} s")
            return
        if now - self._last_read > config.silence_ms / 1000:
            self.close(f"it was silent for {config.silence_ms} ms")
            return
        pause_s = OWN_HEARTBEAT_S if self.is_ours else config.heartbeat_ms / 1000
        if self.next_offset is not None and not self._paused and now - self._last_write >= pause_s:
            self._send(memoryview(b""))
        self._timer = asyncio.get_running_loop().call_later(min(pause_s, 1.0) / 2, self._tick)
