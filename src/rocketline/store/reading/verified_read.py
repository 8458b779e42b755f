"""Reading where nothing is wrong: the records that units of a consume queue point at, all of them or those with a tag.

As much as Python can is done at once: units are unpacked together, tags looked for as bytes, records of one size checked as
rows of a table, or as a whole where they are much like each other. Whatever is odd is left to the reader that looks at one
message after the other.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat

from rocketline._impl import twin
from rocketline.protocol.alike_records import are_sound_records
from rocketline.protocol.record_table import FEW, is_sound_table
from rocketline.protocol.records import is_sound_record
from rocketline.store.config import UNIT_BYTES
from rocketline.store.queue.consume_queue import UNIT
from rocketline.store.queue.ext_queue import ADDRESS_MAX

COPIED_BYTES = 64 << 10
"""Records that lie scattered become one copy, up to so many bytes."""

_MANY = 64
"""Units that are unpacked in one step; bulk readers ask for more."""
_PLACE = struct.Struct(">qi")
_CODE = struct.Struct(">12xq")
_SIGNS = bytes(128) + b"\xff" * 128

_WORDS = UNIT_BYTES // 4

_Picked = tuple[int, int, Sequence[int], tuple[int, ...], tuple[int, ...], bool]
"""Units looked at, records taken; numbers in the queue, log offsets and sizes, also of the record that was too much: it says
where to stop, so it is looked at like the others; whether they have one size."""

_Run = tuple[int, int, int, list[memoryview]]
"""Units looked at, records, their bytes, them in buffers."""


@twin
def sound_run(
    units: memoryview, max_messages: int, max_bytes: int, view: memoryview, base: int, end: int, queue_id: int,
    queue_offset: int, check_crc: bool, codes: bytes | None, oldest: int,
) -> _Run | None:  # fmt: skip
    """The records that units point at, as many as the limits allow; with `codes` (of a `TagTest`) those with one of them:
    units looked at, records, their bytes, them in buffers.

    None when one of them is not sound, or not between `base`, where the view of the log begins, and `end`; when the first
    unit points before `oldest`, or, with codes, a record or the last unit; and when a unit has an address instead of a code.
    """
    if not units:
        return None
    end = min(end, base + len(view))
    halves = None
    if codes is None:
        count = min(max_messages, len(units) // UNIT_BYTES)
        if FEW <= count <= _MANY and check_crc:
            halves = units[: count * UNIT_BYTES].cast("I")[1::_WORDS]
            run = _neighbours(units, halves, max_bytes, view, base, end, queue_id, queue_offset, oldest)
            if run is not None:
                return run
        picked = _first(units, count, max_bytes, queue_offset, oldest)
    else:
        picked = _tagged(bytes(units), max_messages, max_bytes, queue_offset, codes, oldest)
    if picked is None:
        return None
    looked, taken, numbers, offsets, sizes, is_one_size = picked
    if not taken:
        return looked, 0, 0, []
    if is_one_size:
        size = sizes[0]
        chunks = _alike(view, base, end, queue_id, numbers, offsets, size, taken, check_crc, halves)
        total = taken * size
    else:
        chunks = _each(view, base, end, queue_id, numbers, offsets, sizes, taken, check_crc)
        total = sum(sizes[:taken])
    return None if chunks is None else (looked, taken, total, chunks)


def _neighbours(
    units: memoryview, halves: memoryview, max_bytes: int, view: memoryview, base: int, end: int, queue_id: int,
    queue_offset: int, oldest: int,
) -> _Run | None:  # fmt: skip
    """As many records as there are `halves`, the lower ones of their offsets, when each lies behind the other, all fit and
    are much like each other: as batches are stored. None says nothing about them."""
    first, size = _PLACE.unpack_from(units)
    count = len(halves)
    total = size * count
    stop = first + total
    if (
        not 0 < total <= max_bytes
        or first < oldest
        or first < base
        or stop > end
        or first >> 32 != stop >> 32
        or _PLACE.unpack_from(units, (count - 1) * UNIT_BYTES) != (stop - size, size)
        or not _are_in_line(units[: count * UNIT_BYTES], size, count)
    ):
        return None
    records = view[first - base : stop - base]
    is_sound = is_sound_table(records, size, first, halves, queue_id, queue_offset)
    return (count, count, total, [records]) if is_sound else None


def _are_in_line(units: memoryview, size: int, count: int) -> bool:
    """Whether units are the first one again and again, with offsets that grow by `size`; their codes may be any. As sums of
    very long numbers this costs less than looking at the units."""
    places, growth = _growth(size, count)
    first = int.from_bytes(bytes(units[:UNIT_BYTES]) * count, "big") & places
    return int.from_bytes(units, "big") & places == first + growth


@lru_cache(maxsize=256)
def _growth(size: int, count: int) -> tuple[int, int]:
    """So many units with all bits of offset and size set, and with offsets that grow by `size` from zero on."""
    places = UNIT.pack(-1, -1, 0) * count
    growth = b"".join([UNIT.pack(size * number, 0, 0) for number in range(count)])
    return int.from_bytes(places, "big"), int.from_bytes(growth, "big")


def _first(units: memoryview, count: int, max_bytes: int, queue_offset: int, oldest: int) -> _Picked | None:
    """The first ones, `count` or as many as fit; one always does."""
    if count <= _MANY:
        found = _pairs(count).unpack_from(units)
        offsets, sizes = found[::2], found[1::2]
    else:
        offsets, sizes, _ = zip(*UNIT.iter_unpack(units[: count * UNIT_BYTES]))
    if offsets[0] < oldest:
        return None
    is_one_size = sizes.count(sizes[0]) == count
    if not is_one_size or sizes[0] * count > max_bytes:
        count = _fitting(sizes, max_bytes)
        offsets, sizes = offsets[:count], sizes[:count]
    return count, count, range(queue_offset, queue_offset + count), offsets, sizes, is_one_size


def _fitting(sizes: Sequence[int], max_bytes: int) -> int:
    """How many records fit; the first always does."""
    if min(sizes) > 0 and sum(sizes) <= max_bytes:
        return len(sizes)
    total = 0
    for number, size in enumerate(sizes):
        if total and total + size > max_bytes:
            return number
        total += size
    return len(sizes)


@lru_cache(maxsize=_MANY)
def _pairs(count: int) -> struct.Struct:
    """Log offset and size of so many units."""
    return struct.Struct(">" + "qi8x" * count)


def _tagged(
    units: bytes, max_messages: int, max_bytes: int, queue_offset: int, codes: bytes, oldest: int
) -> _Picked | None:
    """Those with one of the codes, until there are enough."""
    if _PLACE.unpack_from(units)[0] < oldest:
        return None
    wanted, ends = _wanted(codes)
    marks = units[UNIT_BYTES - 1 :: UNIT_BYTES].translate(ends)
    found: list[int] = []
    number = marks.find(1)
    while number >= 0 and len(found) <= max_messages:
        start = number * UNIT_BYTES
        if units[start + 16 : start + UNIT_BYTES] in wanted:  # the lower half of a code, as Java, which casts
            found.append(number)
        number = marks.find(1, number + 1)
    places = [_PLACE.unpack_from(units, number * UNIT_BYTES) for number in found]
    offsets, sizes = zip(*places) if places else ((), ())
    taken = _fitting(sizes[:max_messages], max_bytes) if sizes else 0
    offsets, sizes = offsets[: taken + 1], sizes[: taken + 1]
    looked = found[taken] if taken < len(found) else len(marks)
    last = min(looked, len(marks) - 1)
    if _has_address(units[: (last + 1) * UNIT_BYTES]) or _PLACE.unpack_from(units, last * UNIT_BYTES)[0] < oldest:
        return None
    if offsets and min(offsets) < oldest:
        return None
    numbers = [queue_offset + number for number in found[: taken + 1]]
    return looked, taken, numbers, offsets, sizes, not sizes or sizes.count(sizes[0]) == len(sizes)


@lru_cache(maxsize=64)
def _wanted(codes: bytes) -> tuple[frozenset[bytes], bytes]:
    """The codes as units have them, and a table that marks the bytes they end with."""
    wanted = frozenset(code.to_bytes(4, "big", signed=True) for code in array("i", codes))
    ends = {code[3] for code in wanted}
    return wanted, bytes(byte in ends for byte in range(256))


def _has_address(units: bytes) -> bool:
    """Whether a unit has an address, which is a number below all codes."""
    highest = units[12::UNIT_BYTES]
    if highest.isascii():
        return False
    signs = units[16::UNIT_BYTES].translate(_SIGNS)
    if highest == units[13::UNIT_BYTES] == units[14::UNIT_BYTES] == units[15::UNIT_BYTES] == signs:
        return False
    return any(code <= ADDRESS_MAX for (code,) in _CODE.iter_unpack(units))


def _alike(
    view: memoryview, base: int, end: int, queue_id: int, numbers: Sequence[int], offsets: tuple[int, ...], size: int,
    taken: int, check_crc: bool, halves: memoryview | None,
) -> list[memoryview] | None:  # fmt: skip
    """The first `taken` of records of one size; None when one of them all is not there or not sound. With the lower `halves`
    of the offsets all are taken and their numbers follow each other."""
    first = offsets[0]
    stop = first + size * len(offsets)
    if size > 0 and offsets[-1] == stop - size and offsets == tuple(range(first, stop, size)):
        where: Sequence[int] = range(first, stop, size)
        low, high = first, stop
    else:
        where, low, high = offsets, min(offsets), max(offsets) + size
    if size <= 0 or low < base or high > end:
        return None
    if isinstance(where, range):
        chunks = [view[first - base : first - base + taken * size]]
    elif taken * size <= COPIED_BYTES:
        chunks = [memoryview(b"".join([view[at - base : at - base + size] for at in offsets[:taken]]))]
    else:
        chunks = _chunks(view, base, offsets[:taken], repeat(size))
    if not check_crc:
        return chunks
    if (
        halves is not None
        and len(halves) == taken
        and type(where) is tuple
        and len(chunks) == 1
        and low >> 32 == high >> 32
        and is_sound_table(chunks[0], size, first, halves, queue_id, numbers[0])
    ):
        return chunks
    return chunks if are_sound_records(view, base, where, size, queue_id, numbers) else None


def _each(
    view: memoryview, base: int, end: int, queue_id: int, numbers: Sequence[int], offsets: tuple[int, ...],
    sizes: tuple[int, ...], taken: int, check_crc: bool,
) -> list[memoryview] | None:  # fmt: skip
    """The same for records that have their own sizes."""
    for offset, size, number in zip(offsets, sizes, numbers):
        place = offset - base
        if size <= 0 or place < 0 or offset + size > end:
            return None
        if check_crc and not is_sound_record(view, place, size, offset, queue_id, number):
            return None
    return _chunks(view, base, offsets[:taken], sizes)


def _chunks(view: memoryview, base: int, offsets: Iterable[int], sizes: Iterable[int]) -> list[memoryview]:
    """Records as buffers: slices of the log, or one copy when they lie scattered and are small."""
    chunks = []
    total = 0
    start = end = -1
    for offset, size in zip(offsets, sizes):
        if offset != end:
            if end >= 0:
                chunks.append(view[start - base : end - base])
            start = offset
        end = offset + size
        total += size
    chunks.append(view[start - base : end - base])
    if len(chunks) > 1 and total <= COPIED_BYTES:
        return [memoryview(b"".join(chunks))]
    return chunks
