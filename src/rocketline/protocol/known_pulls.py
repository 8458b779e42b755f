"""Pulls that were asked before with other numbers, found again by the bytes that stay.

A consumer's pulls differ in three numbers: where to read, what it has done with, and the request's own. What is left of a
header without them is its key, under which a caller keeps what it knows about the request. Only headers as clients write
them have one. A key that is not known is told only when the general decoder, shown the header with other numbers in these
places, finds those numbers and no other difference: what looks like one of the three, and is none, is never taken for it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
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
_DIGITS = rb"(0|-?[1-9][0-9]{0,17})"
# Patterns that begin with a text which is rare are looked for very quickly.
_OPAQUE, _OFFSET, _FIELD = b'"opaque":', b'Offset":"', b"Offset\0\0\0"
_split_opaque = re.compile(_OPAQUE + _DIGITS).split
_split_offsets = re.compile(_OFFSET + _DIGITS).split
_split_fields = re.compile(_FIELD + rb"([\x01-\x13])" + _DIGITS).split
_QUEUE, _QUEUE_FIELD = b'"queue', b"\0\x0bqueue"
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
    """Which number is which is told by the text before it; that none is missing or there twice, by `_is_certain`."""
    parts = _split_offsets(header)
    if len(parts) != 5:
        return None
    first, digits_1, second, digits_2, third = parts
    around = _split_opaque(third)
    if len(around) == 3:
        key: tuple[bytes, ...] = first, second, around[0], around[2]
    else:  # a client that writes the request's number before the fields
        around = _split_opaque(first)
        if len(around) != 3:
            return None
        key = around[0], around[2], second, third, _OPAQUE
    opaque = int(around[1])
    if not -_MAX_INT <= opaque <= _MAX_INT:
        return None
    if first.endswith(_QUEUE):
        return key, opaque, int(digits_1), int(digits_2)
    return key, opaque, int(digits_2), int(digits_1)


def _cut_binary(header: bytes) -> _Cut | None:
    """code 2, language 1, version 2, request id 4, flag 4, remark 4 + n, fields 4 + n"""
    parts = _split_fields(header[21:])
    if len(parts) != 7 or header[13:17] != b"\0\0\0\0" or _INT.unpack_from(header, 17)[0] != len(header) - 21:
        return None
    first, length_1, digits_1, second, length_2, digits_2, last = parts
    if len(digits_1) != length_1[0] or len(digits_2) != length_2[0]:
        return None
    key, opaque = (header[:5], header[9:17], first, second, last), _INT.unpack_from(header, 5)[0]
    if first.endswith(_QUEUE_FIELD):
        return key, opaque, int(digits_1), int(digits_2)
    return key, opaque, int(digits_2), int(digits_1)


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
    if encoding == JSON:
        return _written_json(key, b"%d" % opaque, b"%d" % queue_offset, b"%d" % commit_offset)
    start, flags, first, second, last = key
    one, other = (_INT.pack(len(text)) + text for text in (b"%d" % queue_offset, b"%d" % commit_offset))
    if not first.endswith(_QUEUE_FIELD):
        one, other = other, one
    fields = b"".join((first, b"Offset", one, second, b"Offset", other, last))
    return b"".join((start, _INT.pack(opaque), flags, _INT.pack(len(fields)), fields))


def _written_json(key: tuple[bytes, ...], opaque: bytes, queue_offset: bytes, commit_offset: bytes) -> bytes:
    is_behind = len(key) == 4
    one, other = queue_offset, commit_offset
    if not key[0 if is_behind else 1].endswith(_QUEUE):
        one, other = other, one
    if is_behind:
        return b"".join((key[0], _OFFSET, one, key[1], _OFFSET, other, key[2], _OPAQUE, opaque, key[3]))
    return b"".join((key[0], _OPAQUE, opaque, key[1], _OFFSET, one, key[2], _OFFSET, other, key[3]))
