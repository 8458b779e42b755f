"""Checking many records of one size: those of a queue mostly differ in numbers and body only.

The first is looked at with care. What is laid out as it is needs one unpack, a few comparisons and its checksum; about any
other `is_sound_record` decides.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any
from zlib import crc32

from rocketline.protocol.records import BORN_IPV6, MAGIC_V1, STORE_IPV6, is_sound_record

MAX_BYTES = 16 << 10
"""The checksum of longer records is what takes time, and a copy of the body would only add to it."""

_SHAPE = struct.Struct(">4xi28xi44xi")
_HEAD_BYTES = _SHAPE.size


def are_sound_records(
    buffer: memoryview, base: int, offsets: Sequence[int], size: int, queue_id: int, numbers: Sequence[int]
) -> bool:
    """Whether `is_sound_record` holds for all records of `size` bytes at these log offsets, with these numbers in a queue;
    the buffer begins at log offset `base` and has them all."""
    first = offsets[0] - base
    if not is_sound_record(buffer, first, size, offsets[0], queue_id, numbers[0]):
        return False
    if len(offsets) == 1:
        return True
    layout = _layout_of(buffer, first, size)
    if layout is None:
        places = [offset - base for offset in offsets]
        return all(map(is_sound_record, repeat(buffer), places, repeat(size), offsets, repeat(queue_id), numbers))
    start, _, _, _, _, flags, body_bytes, _, names = layout.unpack_from(buffer, first)
    for offset, number, row in zip(offsets, numbers, _rows(layout, buffer, base, offsets)):
        own_start, crc, own_queue, own_number, own_offset, own_flags, own_body_bytes, body, own_names = row
        if (
            own_offset != offset
            or own_number != number
            or own_queue != queue_id
            or own_start != start
            or own_flags != flags
            or own_body_bytes != body_bytes
            or own_names != names
            or crc32(body) & 0x7FFFFFFF != crc
        ) and not is_sound_record(buffer, offset - base, size, offset, queue_id, number):
            return False
    return True


def _layout_of(buffer: memoryview, place: int, size: int) -> struct.Struct | None:
    """How a sound record is laid out; None when it is long, or has addresses of another kind than most."""
    magic, flags, body_bytes = _SHAPE.unpack_from(buffer, place)
    if flags & (BORN_IPV6 | STORE_IPV6) or size > MAX_BYTES:
        return None
    end = place + _HEAD_BYTES + body_bytes
    names_bytes = 3 + buffer[end] if magic == MAGIC_V1 else 4 + (buffer[end] << 8 | buffer[end + 1])
    return _layout(body_bytes, names_bytes, size)


@lru_cache(maxsize=512)
def _layout(body_bytes: int, names_bytes: int, size: int) -> struct.Struct:
    """Size and magic, checksum, queue, number, log offset, flags, body's length, body, topic with properties' length."""
    rest = size - _HEAD_BYTES - body_bytes - names_bytes
    return struct.Struct(f">8sIi4xqqi44xi{body_bytes}s{names_bytes}s{rest}x")


def _rows(layout: struct.Struct, buffer: memoryview, base: int, offsets: Sequence[int]) -> Iterable[tuple[Any, ...]]:
    if isinstance(offsets, range):  # neighbours
        return layout.iter_unpack(buffer[offsets.start - base : offsets.stop - base])
    return map(layout.unpack_from, repeat(buffer), [offset - base for offset in offsets])
