"""Compression of message bodies: zlib, LZ4 frames and zstd; three bits of the system flag name the type.

The *output* of decompression is limited: a few kilobytes of a hostile body must not become gigabytes in memory.
"""

from __future__ import annotations

import sys
import zlib

import lz4.frame

from rocketline.errors import RemoteProtocolError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LZ4 = 0x100
ZSTD = 0x200
ZLIB = 0x300
TYPE_MASK = 0x700

TYPES = {"zlib": ZLIB, "lz4": LZ4, "zstd": ZSTD}

MAX_INFLATED_BYTES = 64 * 1024 * 1024
"""Default limit of the output; far above the 4 MiB that a broker accepts."""

_ZSTD_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}
"""A frame says how much memory its reader needs: at most 128 MiB, zstd's own limit."""


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
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: level,
            zstd.CompressionParameter.content_size_flag: 0,
        }
        return zstd.compress(body, options=options)
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
    except (zlib.error, zstd.ZstdError, RuntimeError, EOFError) as error:
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
    # Java writes no content size: only the end of the frame shows that nothing is missing.
    inflater = zstd.ZstdDecompressor(options=_ZSTD_WINDOW)
    data = inflater.decompress(body, limit + 1)
    _check(len(data), limit)
    if not inflater.eof:
        raise RemoteProtocolError("compressed body ends early")
    return data


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise RemoteProtocolError(f"compressed body inflates to more than {limit} bytes")
