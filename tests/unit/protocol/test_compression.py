from __future__ import annotations

import zlib
from random import Random

import lz4.frame
import pytest
from tests.golden.wire.load import ids

from rocketline.errors import RemoteProtocolError
from rocketline.protocol.compression import LZ4, MAX_INFLATED_BYTES, TYPES, ZLIB, ZSTD, compress, decompress, zstd

KINDS = pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
MIXED = Random(2).randbytes(3000) + b"a" * 5000


def test_bodies_compressed_by_apache() -> None:
    kinds = {"LZ4": LZ4, "ZSTD": ZSTD, "ZLIB": ZLIB}
    seen = set()
    for vector in ids()["compress"]:
        seen.add(vector["type"])
        plain = decompress(bytes.fromhex(vector["compressed"]), kinds[vector["type"]])
        assert plain == b"The quick brown fox jumps over the lazy dog. " * 20
    assert seen == set(kinds)


def test_no_type_means_zlib() -> None:
    assert decompress(zlib.compress(b"old client"), 0x1) == b"old client"


@KINDS
@pytest.mark.parametrize("body", [b"", b"x", MIXED, bytes(1_000_000)], ids=["empty", "one", "mixed", "zeros"])
def test_round_trip(kind: int, body: bytes) -> None:
    assert decompress(compress(body, kind), kind) == body


def test_frames_look_like_apaches() -> None:
    body = b"body" * 100
    assert compress(body, ZLIB)[:2] == b"\x78\x5e"
    assert compress(body, LZ4)[:5] == bytes.fromhex("04224d1860")
    assert compress(body, ZSTD)[:4] == bytes.fromhex("28b52ffd")
    assert zstd.get_frame_info(compress(body, ZSTD)).decompressed_size is None


@KINDS
def test_cut_anywhere_is_refused(kind: int) -> None:
    packed = compress(MIXED, kind)
    for size in [*range(200), *range(200, len(packed) - 200, 37), *range(len(packed) - 200, len(packed))]:
        with pytest.raises(RemoteProtocolError):
            decompress(packed[:size], kind)


@KINDS
def test_cap(kind: int) -> None:
    packed = compress(MIXED, kind)
    assert decompress(packed, kind, len(MIXED)) == MIXED
    with pytest.raises(RemoteProtocolError, match=f"more than {len(MIXED) - 1} bytes"):
        decompress(packed, kind, len(MIXED) - 1)


@KINDS
def test_bombs_are_refused(kind: int) -> None:
    bomb = compress(bytes(MAX_INFLATED_BYTES + 1), kind)
    assert len(bomb) < MAX_INFLATED_BYTES // 100
    with pytest.raises(RemoteProtocolError, match=f"more than {MAX_INFLATED_BYTES} bytes"):
        decompress(bomb, kind)
    with pytest.raises(RemoteProtocolError, match="more than 10 bytes"):
        decompress(bomb, kind, 10)


def test_content_sizes_that_lie_are_refused() -> None:
    body = bytes(1000)
    frame = zstd.compress(body)
    size_at = frame.index((1000 - 256).to_bytes(2, "little"))
    with pytest.raises(RemoteProtocolError):
        decompress(frame[:size_at] + b"\xff\xff" + frame[size_at + 2 :], ZSTD)
    packed = bytearray(lz4.frame.compress(body, store_size=True))
    packed[6:14] = (1 << 40).to_bytes(8, "little")
    with pytest.raises(RemoteProtocolError):
        decompress(bytes(packed), LZ4)


def test_a_window_of_gigabytes_is_refused() -> None:
    frame = bytes.fromhex("28b52ffd") + bytes((0x00, 31 - 10 << 3)) + bytes((0x01, 0x00, 0x00))
    with pytest.raises(RemoteProtocolError, match="inflated"):
        decompress(frame, ZSTD)


@KINDS
@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"plain text", Random(1).randbytes(100), bytes(100)],
    ids=["nothing", "one-byte", "text", "noise", "zeros"],
)
def test_garbage_is_refused(kind: int, data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decompress(data, kind)


@pytest.mark.parametrize("kind", [0x400, 0x500, 0x600, 0x700])
def test_unknown_type(kind: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"{kind:#x}"):
        decompress(b"x", kind)
    with pytest.raises(ValueError, match="zlib, lz4, zstd"):
        compress(b"x", kind)
