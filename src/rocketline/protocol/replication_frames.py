"""The bytes on the HA port: a replica reports how far its log reaches, its master sends what follows.

Brokers with fixed roles (`CLASSIC`):

    replica   8          int64 end of my log
    master   12 + size   int64 offset, int32 size, bytes of the log; size 0: still here

Brokers whose roles change speak of epochs (`EPOCHS`): spans of the log, each written by one master.

    replica  16          int32 1, int16 from the last file, int16 never in sync, int64 member id
    master   20 + size   int32 1, int32 size, int64 end of my log, int32 my epoch; 12 each: int32 epoch, int64 start
    replica  12          int32 2, int64 end of my log
    master   36 + size   int32 2, int32 size, int64 offset, int32 epoch, int64 start of it, int64 confirmed, bytes of the log

Replicas of rocketline say first who they are, in both cases. No offset begins with the byte FF, and no state.

    replica  48          FF "RLHELO" 01, int64 member id, 32 bytes of proof
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from rocketline.errors import RemoteProtocolError

HELLO_MAGIC = b"\xffRLHELO\x01"
PROOF_BYTES = 32
MAX_EPOCHS = 1000
"""Of a handshake, as with Apache."""
MAX_FRAME_BYTES = 64 << 20

_HELLO = struct.Struct(f">8sq{PROOF_BYTES}s")
_CLASSIC_REPORT = struct.Struct(">q")
_CLASSIC_DATA = struct.Struct(">qi")
_REPLICA_HANDSHAKE = struct.Struct(">ihhq")
_EPOCH_REPORT = struct.Struct(">iq")
_MASTER_HANDSHAKE = struct.Struct(">iiqi")
_EPOCH = struct.Struct(">iq")
_EPOCH_DATA = struct.Struct(">iiqiqq")

_HANDSHAKE, _TRANSFER = 1, 2


class Dialect(Enum):
    CLASSIC = "fixed roles"
    EPOCHS = "roles that change"


class Hello(NamedTuple):
    """A replica of rocketline says who it is."""

    member: int
    proof: bytes

    def __repr__(self) -> str:
        return f"Hello(member={self.member})"


class ReplicaHandshake(NamedTuple):
    from_last_file: bool
    never_in_sync: bool
    member: int


class Report(NamedTuple):
    """How far the log of a replica reaches."""

    end: int


class Epoch(NamedTuple):
    """A span of the log that one master wrote, up to where the next one begins."""

    number: int
    start: int


class MasterHandshake(NamedTuple):
    end: int
    epoch: int
    epochs: tuple[Epoch, ...]


class DataHeader(NamedTuple):
    """What comes before bytes of the log."""

    offset: int
    size: int
    epoch: Epoch | None = None
    confirmed: int | None = None


class Data(NamedTuple):
    """Bytes of the log; a frame may come in several of these."""

    offset: int
    data: memoryview


FromReplica = Hello | ReplicaHandshake | Report
FromMaster = MasterHandshake | DataHeader | Data


def encode_hello(member: int, proof: bytes) -> bytes:
    return _HELLO.pack(HELLO_MAGIC, member, proof)


def encode_replica_handshake(member: int, from_last_file: bool = False, never_in_sync: bool = False) -> bytes:
    return _REPLICA_HANDSHAKE.pack(_HANDSHAKE, from_last_file, never_in_sync, member)


def encode_report(dialect: Dialect, end: int) -> bytes:
    return _CLASSIC_REPORT.pack(end) if dialect is Dialect.CLASSIC else _EPOCH_REPORT.pack(_TRANSFER, end)


def encode_master_handshake(end: int, epochs: Sequence[Epoch]) -> bytes:
    body = b"".join(_EPOCH.pack(*epoch) for epoch in epochs[-MAX_EPOCHS:])
    return _MASTER_HANDSHAKE.pack(_HANDSHAKE, len(body), end, epochs[-1].number if epochs else 0) + body


def encode_data_header(header: DataHeader) -> bytes:
    if header.epoch is None:
        return _CLASSIC_DATA.pack(header.offset, header.size)
    confirmed = header.offset if header.confirmed is None else header.confirmed
    return _EPOCH_DATA.pack(_TRANSFER, header.size, header.offset, *header.epoch, confirmed)


class ReplicaBytes:
    """What a replica sends: bytes in, messages out. RemoteProtocolError for what cannot be."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._buffer = bytearray()
        self._is_new = True
        self._is_shaken = dialect is Dialect.CLASSIC

    def receive(self, data: bytes) -> Iterator[FromReplica]:
        buffer = self._buffer
        buffer += data
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> FromReplica | None:
        buffer = self._buffer
        if not buffer:
            return None
        if self._is_new and buffer[0] == HELLO_MAGIC[0]:
            fields = self._take(_HELLO)
            if fields is None:
                return None
            self._is_new = False
            if fields[0] != HELLO_MAGIC:
                raise RemoteProtocolError("it begins with bytes that are no greeting of a replica")
            return Hello(fields[1], fields[2])
        self._is_new = False
        if self._dialect is Dialect.CLASSIC:
            fields = self._take(_CLASSIC_REPORT)
            return None if fields is None else Report(_not_negative(fields[0], "offset"))
        if not self._is_shaken:
            fields = self._take(_REPLICA_HANDSHAKE)
            if fields is None:
                return None
            _require_state(fields[0], _HANDSHAKE)
            self._is_shaken = True
            return ReplicaHandshake(bool(fields[1]), bool(fields[2]), fields[3])
        if len(buffer) >= 4 and int.from_bytes(buffer[:4], "big") == _HANDSHAKE:
            # Apache's replicas say it again when the answer takes long.
            return None if self._take(_REPLICA_HANDSHAKE) is None else self._next()
        fields = self._take(_EPOCH_REPORT)
        if fields is None:
            return None
        _require_state(fields[0], _TRANSFER)
        return Report(_not_negative(fields[1], "offset"))

    def _take(self, layout: struct.Struct) -> tuple[Any, ...] | None:
        if len(self._buffer) < layout.size:
            return None
        fields = layout.unpack_from(self._buffer)
        del self._buffer[: layout.size]
        return fields


class MasterBytes:
    """What a master sends: bytes in, messages out. Bytes of the log are handed on as they come."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._head = bytearray()
        self._offset = 0
        self._left = 0
        """Bytes of the log that belong to the last header."""

    def receive(self, data: bytes) -> Iterator[FromMaster]:
        rest = memoryview(data)
        while rest:
            if self._left:
                piece = rest[: self._left]
                rest = rest[len(piece) :]
                offset = self._offset
                self._offset += len(piece)
                self._left -= len(piece)
                yield Data(offset, piece)
                continue
            missing = self._head_bytes() - len(self._head)
            self._head += rest[:missing]
            rest = rest[missing:]
            if len(self._head) == self._head_bytes():
                yield self._take_head()

    def _head_bytes(self) -> int:
        """How long the header is that begins here, as far as is known."""
        if self._dialect is Dialect.CLASSIC:
            return _CLASSIC_DATA.size
        if len(self._head) < 8:
            return 8
        state, size = struct.unpack_from(">ii", self._head)
        if state == _HANDSHAKE:
            if not 0 <= size <= MAX_EPOCHS * _EPOCH.size or size % _EPOCH.size:
                raise RemoteProtocolError(f"a handshake with {size} bytes of epochs")
            return _MASTER_HANDSHAKE.size + int(size)
        _require_state(state, _TRANSFER)
        return _EPOCH_DATA.size

    def _take_head(self) -> MasterHandshake | DataHeader:
        head, self._head = bytes(self._head), bytearray()
        if self._dialect is Dialect.CLASSIC:
            return self._begin(DataHeader(*_CLASSIC_DATA.unpack(head)))
        if int.from_bytes(head[:4], "big") == _HANDSHAKE:
            _, _, end, epoch = _MASTER_HANDSHAKE.unpack_from(head)
            epochs = tuple(map(Epoch._make, _EPOCH.iter_unpack(head[_MASTER_HANDSHAKE.size :])))
            return MasterHandshake(_not_negative(end, "end"), epoch, epochs)
        _, size, offset, epoch, start, confirmed = _EPOCH_DATA.unpack(head)
        return self._begin(DataHeader(offset, size, Epoch(epoch, start), confirmed))

    def _begin(self, header: DataHeader) -> DataHeader:
        if not 0 <= header.size <= MAX_FRAME_BYTES:
            raise RemoteProtocolError(f"a frame of {header.size} bytes")
        self._offset, self._left = _not_negative(header.offset, "offset"), header.size
        return header


def _require_state(state: int, wanted: int) -> None:
    if state != wanted:
        raise RemoteProtocolError(
            f"state {state} where {wanted} was expected: is the other broker in a group of that kind?"
        )


def _not_negative(number: int, what: str) -> int:
    if number < 0:
        raise RemoteProtocolError(f"a negative {what}: {number}")
    return number
