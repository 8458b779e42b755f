"""Checking records of one size that lie back to back, all at once.

Records of a queue that were sent alike differ in where they are, their checksum, their times and hosts, their body and the
text of their properties. So the bytes that are to be equal, or to be known from the place of a record, are taken out of all
of them and compared with what they have to be: the first row again and again, with other places and checksums. Python does
each of these steps in one call, however many records there are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from rocketline.protocol.records import BORN_IPV6, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES, STORE_IPV6, Buffer

FEW = 8
"""With fewer records, looking at one after the other is as quick."""
MAX_BYTES = 16 << 10
"""The checksum of longer records is what takes time, and a copy of the body would only add to it."""

_FIRST = struct.Struct(">ii4xi4xqqi44xi")
"""Size, magic, queue, number, log offset, flags, body's length; the body follows."""
_HEAD_BYTES = _FIRST.size
_KEPT_BYTES = 40
"""From a record's size to its flags."""
_CRC_AT, _NUMBER_AT, _OFFSET_AT = 8, 20, 28
_WORD = 4
_COUNTING = bytes(range(256))
_WITHOUT_SIGN = bytes(range(128)) * 2


class _Layout(NamedTuple):
    rows: Callable[[Buffer], tuple[bytes, ...]]
    """What is compared of each record, in three pieces."""
    bodies: Callable[[Buffer], tuple[bytes, ...]]
    words: Callable[..., bytes]
    """So many numbers of four bytes, packed."""
    row_bytes: int


def is_sound_table(records: Buffer, size: int, log_offset: int, halves: memoryview, queue_id: int, number: int) -> bool:
    """Whether `is_sound_record` holds for records of `size` bytes with the numbers from `number` on in a queue. The first is
    at `log_offset`; `halves` has the lower four bytes of each log offset, the upper ones are the same. False says that one
    is not sound, or is not like the first."""
    if not MIN_RECORD_BYTES <= size <= MAX_BYTES:
        return False
    own_size, magic, own_queue, own_number, own_offset, flags, body_bytes = _FIRST.unpack_from(records)
    if own_size != size or own_queue != queue_id or own_number != number or own_offset != log_offset:
        return False
    if flags & (BORN_IPV6 | STORE_IPV6) or not 0 <= body_bytes <= size - _HEAD_BYTES - 4:
        return False
    names_at = _HEAD_BYTES + body_bytes
    if magic == MAGIC_V1:
        names_bytes = 3 + records[names_at]
    elif magic == MAGIC_V2:
        names_bytes = 4 + (records[names_at] << 8 | records[names_at + 1])
    else:
        return False
    properties_bytes = size - _HEAD_BYTES - body_bytes - names_bytes
    properties_at = names_at + names_bytes
    if properties_bytes < 0 or properties_bytes != records[properties_at - 2] << 8 | records[properties_at - 1]:
        return False
    layout = _layout(size, body_bytes, names_bytes, len(halves))
    rows = b"".join(layout.rows(records))
    return rows == _expected(layout, rows, number, halves, map(crc32, layout.bodies(records)))


def _expected(layout: _Layout, rows: bytes, number: int, halves: memoryview, checksums: Iterable[int]) -> bytearray:
    """What sound records have, the first of which is known to be one but for its checksum."""
    count, row_bytes = len(halves), layout.row_bytes
    expected = bytearray(rows[:row_bytes] * count)
    words = memoryview(expected).cast("I")
    step = row_bytes // _WORD
    words[_CRC_AT // _WORD :: step] = memoryview(layout.words(*checksums)).cast("I")
    expected[_CRC_AT::row_bytes] = expected[_CRC_AT::row_bytes].translate(_WITHOUT_SIGN)
    words[_OFFSET_AT // _WORD + 1 :: step] = halves
    low = number & 0xFF
    if low + count <= len(_COUNTING):
        expected[_NUMBER_AT + 7 :: row_bytes] = _COUNTING[low : low + count]
    elif (low := number & 0xFFFFFFFF) + count <= 1 << 32:
        words[_NUMBER_AT // _WORD + 1 :: step] = memoryview(layout.words(*range(low, low + count))).cast("I")
    return expected


@lru_cache(maxsize=256)
def _layout(size: int, body_bytes: int, names_bytes: int, count: int) -> _Layout:
    # Rows have whole words: what is missing is made up with the upper bytes of the time behind the flags, which nobody sees
    # change.
    kept = _KEPT_BYTES + -names_bytes % _WORD
    end = size - _HEAD_BYTES - body_bytes
    row = f"{kept}s{_HEAD_BYTES - _WORD - kept}x{_WORD}s{body_bytes}x{names_bytes}s{end - names_bytes}x"
    return _Layout(
        struct.Struct(">" + row * count).unpack,
        struct.Struct(">" + f"{_HEAD_BYTES}x{body_bytes}s{end}x" * count).unpack,
        struct.Struct(f">{count}I").pack,
        kept + _WORD + names_bytes,
    )
