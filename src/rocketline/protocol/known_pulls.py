"""Pulls that were asked before with other numbers, found again by the bytes that stay.

A consumer's pulls differ in three numbers: where to read, what it has done with, and the request's own. What is left of a
header without them is its key, under which a caller keeps what it knows about the request. Only headers as clients write
them have one. A key that is not known is told only when the general decoder, shown the header with other numbers in these
places, finds those numbers and no other difference: what looks like one of the three, and is none, is never taken for it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rocketline._impl import twin
from rocketline.errors import RemoteProtocolError
from rocketline.protocol.command import JSON, ROCKETMQ
from rocketline.protocol.header_codec import decode_header

_P = TypeVar("_P")
_Cut = tuple[tuple[bytes, ...], int, int, int]
"""What stays of a header; number of the request, queue offset, commit offset."""

_PREFIX = struct.Struct(">II")
_INT = struct.Struct(">i")
_MAX_INT = 0x7FFFFFFF
_OPAQUE, _QUEUE_OFFSET, _COMMIT_OFFSET = b'"opaque":', b'"queueOffset":"', b'"commitOffset":"'
_QUEUE_OFFSET_FIELD, _COMMIT_OFFSET_FIELD = b"\0\x0bqueueOffset", b"\0\x0ccommitOffset"
_DIGITS = rb"(0|-?[1-9][0-9]{0,17})"
_split_json = re.compile(rb"(%b|%b|%b)" % (_OPAQUE, _QUEUE_OFFSET, _COMMIT_OFFSET) + _DIGITS).split
_split_fields = re.compile(
    rb"(%b|%b)\0\0\0([\x01-\x13])" % (_QUEUE_OFFSET_FIELD, _COMMIT_OFFSET_FIELD) + _DIGITS, re.DOTALL
).split
_PROBES = ((1, 22, 333), (_MAX_INT, 10**17 + 1, -(10**17) - 22))


@twin
def take_pulls(
    data: bytes, max_frame_bytes: int, max_header_bytes: int, plans: Mapping[Any, _P]
) -> tuple[list[tuple[_P, int, int, int, int]], Any]:
    """Of the pulls that a read begins with, those that are among the plans, as (plan, number of the request, queue offset,
    commit offset, where the frame ends); and the key of the first one that is not: None when what follows is no plain pull,
    or no whole one."""
    pulls: list[tuple[_P, int, int, int, int]] = []
    position, available = 0, len(data)
    while available - position >= _PREFIX.size:
        length, word = _PREFIX.unpack_from(data, position)
        header_bytes, end = word & 0xFFFFFF, position + 4 + length
        if (
            header_bytes + 4 != length
            or end > available
            or length + 4 > max_frame_bytes
            or header_bytes > max_header_bytes
        ):
            break
        encoding = word >> 24
        header = data[position + 8 : end]
        cut = _cut_json(header) if encoding == JSON else _cut_binary(header) if encoding == ROCKETMQ else None
        if cut is None:
            break
        key, opaque, queue_offset, commit_offset = cut
        plan = plans.get(key)
        if plan is None:
            return pulls, key if _is_certain(encoding, key) else None
        pulls.append((plan, opaque, queue_offset, commit_offset, end))
        position = end
    return pulls, None


def _cut_json(header: bytes) -> _Cut | None:
    parts = _split_json(header)
    if len(parts) != 10:
        return None
    first, name_1, digits_1, second, name_2, digits_2, third, name_3, digits_3, last = parts
    numbers = {name_1: int(digits_1), name_2: int(digits_2), name_3: int(digits_3)}
    if len(numbers) != 3 or not -_MAX_INT <= numbers[_OPAQUE] <= _MAX_INT:
        return None
    key = first, name_1, second, name_2, third, name_3, last
    return key, numbers[_OPAQUE], numbers[_QUEUE_OFFSET], numbers[_COMMIT_OFFSET]


def _cut_binary(header: bytes) -> _Cut | None:
    """code 2, language 1, version 2, request id 4, flag 4, remark 4 + n, fields 4 + n"""
    parts = _split_fields(header[21:])
    if len(parts) != 9 or header[13:17] != b"\0\0\0\0" or _INT.unpack_from(header, 17)[0] != len(header) - 21:
        return None
    first, name_1, length_1, digits_1, second, name_2, length_2, digits_2, last = parts
    numbers = {name_1: int(digits_1), name_2: int(digits_2)}
    if len(numbers) != 2 or len(digits_1) != length_1[0] or len(digits_2) != length_2[0]:
        return None
    key = header[:5], header[9:17], first, name_1, second, name_2, last
    return key, _INT.unpack_from(header, 5)[0], numbers[_QUEUE_OFFSET_FIELD], numbers[_COMMIT_OFFSET_FIELD]


def _is_certain(encoding: int, key: tuple[bytes, ...]) -> bool:
    """Whether requests with this key differ in the three numbers only, and have them where they were cut out."""
    try:
        found = [decode_header(encoding, _written(encoding, key, *numbers), b"") for numbers in _PROBES]
    except RemoteProtocolError:
        return False
    for command, (opaque, queue_offset, commit_offset) in zip(found, _PROBES):
        ext = command.ext or {}
        told = command.opaque, ext.pop("queueOffset", None), ext.pop("commitOffset", None)
        if told != (opaque, str(queue_offset), str(commit_offset)):
            return False
        command.opaque = 0
    return found[0] == found[1]


def _written(encoding: int, key: tuple[bytes, ...], opaque: int, queue_offset: int, commit_offset: int) -> bytes:
    """The header with these numbers."""
    texts = [b"%d" % number for number in (opaque, queue_offset, commit_offset)]
    if encoding == JSON:
        return _filled(key, dict(zip((_OPAQUE, _QUEUE_OFFSET, _COMMIT_OFFSET), texts)))
    start, flags, *parts = key
    values = [_INT.pack(len(text)) + text for text in texts[1:]]
    fields = _filled(parts, dict(zip((_QUEUE_OFFSET_FIELD, _COMMIT_OFFSET_FIELD), values)))
    return b"".join((start, _INT.pack(opaque), flags, _INT.pack(len(fields)), fields))


def _filled(parts: Sequence[bytes], values: dict[bytes, bytes]) -> bytes:
    """The parts, and behind every second one, which names it, a value."""
    return b"".join(part + values[part] if number % 2 else part for number, part in enumerate(parts))
