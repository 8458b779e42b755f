"""Bytes on the HA port: recorded ones of Apache's, cut anywhere; and what cannot be."""

import pytest

from rocketline.errors import RemoteProtocolError
from rocketline.protocol.replication_frames import (
    Data,
    DataHeader,
    Dialect,
    Epoch,
    Hello,
    MasterBytes,
    MasterHandshake,
    ReplicaBytes,
    ReplicaHandshake,
    Report,
    encode_data_header,
    encode_hello,
    encode_master_handshake,
    encode_replica_handshake,
    encode_report,
)

# Recorded between brokers of Apache 5.4.0.
CLASSIC_DATA = bytes.fromhex("00000000000003ba0000013e")
REPLICA = bytes.fromhex("00000001000000000000000000000001")
MASTER = bytes.fromhex("00000001000000180000000000000c6c000000020000000100000000000000000000000200000000000004f8")
TRANSFER = bytes.fromhex("000000020000077400000000000004f80000000200000000000004f80000000000000c6c")


def test_recorded_bytes_are_read_and_written() -> None:
    epochs = Epoch(1, 0), Epoch(2, 0x4F8)
    header = DataHeader(0x4F8, 0x774, epochs[1], 0xC6C)
    assert encode_data_header(DataHeader(954, 318)) == CLASSIC_DATA
    assert encode_replica_handshake(1) == REPLICA
    assert encode_master_handshake(0xC6C, epochs) == MASTER
    assert encode_data_header(header) == TRANSFER
    assert list(MasterBytes(Dialect.CLASSIC).receive(CLASSIC_DATA)) == [DataHeader(954, 318)]
    assert list(MasterBytes(Dialect.EPOCHS).receive(MASTER + TRANSFER)) == [MasterHandshake(0xC6C, 2, epochs), header]
    assert list(ReplicaBytes(Dialect.EPOCHS).receive(REPLICA)) == [ReplicaHandshake(False, False, 1)]


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_pieces_give_the_same_as_the_whole(dialect: Dialect, step: int) -> None:
    sent = encode_hello(7, b"p" * 32)
    expected: list[object] = [Hello(7, b"p" * 32)]
    if dialect is Dialect.EPOCHS:
        sent += encode_replica_handshake(7)
        expected.append(ReplicaHandshake(False, False, 7))
    sent += encode_report(dialect, 0) + encode_report(dialect, 1 << 40)
    expected += [Report(0), Report(1 << 40)]
    reader = ReplicaBytes(dialect)
    assert [found for at in range(0, len(sent), step) for found in reader.receive(sent[at : at + step])] == expected

    epoch = Epoch(1, 0) if dialect is Dialect.EPOCHS else None
    confirmed = 5 if dialect is Dialect.EPOCHS else None
    sent = encode_data_header(DataHeader(10, 20, epoch, confirmed)) + b"x" * 20
    sent += encode_data_header(DataHeader(30, 0, epoch, confirmed))
    master = MasterBytes(dialect)
    found = [item for at in range(0, len(sent), step) for item in master.receive(sent[at : at + step])]
    pieces = [item for item in found if isinstance(item, Data)]
    assert b"".join(piece.data for piece in pieces) == b"x" * 20
    assert [piece.offset for piece in pieces] == [10 + sum(len(p.data) for p in pieces[:n]) for n in range(len(pieces))]
    assert [item for item in found if isinstance(item, DataHeader)] == [
        DataHeader(10, 20, epoch, confirmed),
        DataHeader(30, 0, epoch, confirmed),
    ]


@pytest.mark.parametrize(
    ("dialect", "data"),
    [
        (Dialect.CLASSIC, b"\xff" * 48),
        (Dialect.CLASSIC, b"\x80" + b"\0" * 7),
        (Dialect.EPOCHS, b"GET / HTTP/1.1\r\n\r\n"),
        (Dialect.EPOCHS, REPLICA + b"\0\0\0\x09" + b"\0" * 8),
    ],
)
def test_what_no_replica_sends_is_refused(dialect: Dialect, data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(ReplicaBytes(dialect).receive(data))


@pytest.mark.parametrize(
    ("dialect", "data"),
    [
        (Dialect.CLASSIC, encode_data_header(DataHeader(0, -1))),
        (Dialect.CLASSIC, encode_data_header(DataHeader(0, (1 << 31) - 1))),
        (Dialect.CLASSIC, encode_data_header(DataHeader(-5, 0))),
        (Dialect.EPOCHS, b"\0\0\0\x01\x7f\xff\xff\xff" + b"\0" * 12),
        (Dialect.EPOCHS, b"\0\0\0\x05" + b"\0" * 40),
    ],
)
def test_what_no_master_sends_is_refused(dialect: Dialect, data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(MasterBytes(dialect).receive(data))
