"""Compression of message bodies: zlib, LZ4 frames and zstd; three bits of the system flag name the type.

The *output* of decompression is limited: a few kilobytes of a hostile body must not become gigabytes in memory.
"""

from __future__ import annotations

import zlib

import lz4.frame
import zstandard

from rocketline.errors import RemoteProtocolError

LZ4 = 0x100
ZSTD = 0x200
ZLIB = 0x300
TYPE_MASK = 0x700

TYPES = {"zlib": ZLIB, "lz4": LZ4, "zstd": ZSTD}

MAX_INFLATED_BYTES = 64 * 1024 * 1024
"""Default limit of the output; far above the 4 MiB that a broker accepts."""

_ZSTD_STEP_BYTES = 1024
"""Input of one step: 4 bytes can encode a block of 128 KiB, so a step yields at most 32 MiB."""


def compress(body: bytes, kind: int, level: int = 5) -> bytes:
    """Compress a body so that all RocketMQ clients can read it."""
    if kind == ZLIB:
        return zlib.compress(body, level)
    if kind == LZ4:
        # Apache's frames: independent 4 MiB blocks, no sizes and no checksums.
        packed: bytes = lz4.frame.compress(
            body, compression_level=0, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
        )
        return packed
    if kind == ZSTD:
        return zstandard.ZstdCompressor(level=level, write_content_size=False).compress(body)
    raise ValueError(f"unknown compression type {kind:#x}: one of {', '.join(TYPES)} expected")


def decompress(body: bytes, sys_flag: int, limit: int | None = None) -> bytes:
    """Inflate a body whose system flag names the type (no type means zlib, as old clients write it)."""
    limit = limit or MAX_INFLATED_BYTES
    kind = sys_flag & TYPE_MASK
    try:
        if kind in (ZLIB, 0):
            return _inflate(body, limit)
        if kind == LZ4:
            return _unlz4(body, limit)
        if kind == ZSTD:
            return _unzstd(body, limit)
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise RemoteProtocolError(f"compressed body cannot be inflated: {error}") from error
    raise RemoteProtocolError(f"body has unknown compression type {kind:#x}")


def _inflate(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, limit + 1)
    _check(len(data), limit)
    if not inflater.eof:
        raise RemoteProtocolError("compressed body ends early")
    return data


def _unlz4(body: bytes, limit: int) -> bytes:
    inflater = lz4.frame.LZ4FrameDecompressor()
    data: bytes = inflater.decompress(body, max_length=limit + 1)
    _check(len(data), limit)
    if not inflater.eof:
        raise RemoteProtocolError("compressed body ends early")
    return data


def _unzstd(body: bytes, limit: int) -> bytes:
    # Java writes no content size: only the end of the frame shows that nothing is missing, and only a decompressobj reports
    # it. It has no output limit, so it gets little input at once.
    inflater = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    pieces: list[bytes] = []
    size = 0
    for start in range(0, len(body), _ZSTD_STEP_BYTES):
        piece = inflater.decompress(body[start : start + _ZSTD_STEP_BYTES])
        pieces.append(piece)
        size += len(piece)
        _check(size, limit)
        if inflater.eof:
            return b"".join(pieces)
    raise RemoteProtocolError("compressed body ends early")


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise RemoteProtocolError(f"compressed body inflates to more than {limit} bytes")
