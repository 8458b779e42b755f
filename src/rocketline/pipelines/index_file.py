"""Writes a file of the key index from all its entries at once; the bytes are the same as when adding entry after entry.

Entries are numbered from 1 in their order. Each is linked to the entry before it in the same slot, and a slot to its
last entry. Keys come in pieces. The keys of a piece are linked to each other when it is made, by a stable sort by slot;
for a file it remains to link the first key of each slot of a piece to the last key of that slot in the pieces before.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEADER = struct.Struct(">qqqqii")
_ENTRY = np.dtype([("hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_MAX_SECONDS = 0x7FFFFFFF

KEY = np.dtype([("hash", "<u4"), ("log_offset", "<i8"), ("store_ms", "<i8"), ("previous", "<u4")])
"""A key to be added to the index; `previous` is set by `link_piece`."""

KeySlice = tuple["NDArray[Any]", int]
"""A slice of a piece: its keys, and how many keys of the piece come before them."""


def link_piece(keys: NDArray[Any], slots: int) -> None:
    """Set `previous` of each key of a piece: the number of the key before it in its slot, counted from 1; 0 for none."""
    slot_of = keys["hash"] % np.uint32(slots)
    order = np.argsort(slot_of, kind="stable")
    ordered = slot_of[order]
    is_same = np.flatnonzero(ordered[1:] == ordered[:-1])
    previous = np.zeros(len(keys), np.uint32)
    previous[order[is_same + 1]] = order[is_same] + 1
    keys["previous"] = previous


def write_index_file(
    path: Path,
    slices: Iterable[KeySlice],
    slots: int,
    entries: int,
    before: Iterable[KeySlice] = (),
    *,
    is_last: bool = True,
) -> None:
    """Write the keys of `slices`, at least one and fewer than `entries`, and flush the file to the disk.

    Several callers may write a part of one file each, in any order: a part is given the keys `before` its own, and the last
    one writes header and slots.
    """
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        entries_at = _HEADER.size + slots * 4
        file.truncate(entries_at + entries * _ENTRY.itemsize)
        made = _Links(slots)
        for keys, skipped in before:
            made.link(keys, skipped)
        # Entry 0 is never used.
        file.seek(entries_at + (made.count + 1) * _ENTRY.itemsize)
        for keys, skipped in slices:
            file.write(made.entries(keys, skipped).tobytes())
        assert 0 < made.count < entries
        if is_last:
            file.seek(0)
            file.write(made.header())
            file.write(made.newest.astype(">i4").tobytes())
        file.flush()
        os.fsync(file.fileno())


class _Links:
    """The state of an index file while its slices are added."""

    def __init__(self, slots: int) -> None:
        self.newest = np.zeros(slots, np.int32)
        """The last entry of each slot."""
        self.count = 0
        self._first: Any = None
        self._last: Any = None

    def header(self) -> bytes:
        begin, end = self._first, self._last
        # A slot is in use if it has a last entry.
        used = int(np.count_nonzero(self.newest))
        return _HEADER.pack(
            begin["store_ms"], end["store_ms"], begin["log_offset"], end["log_offset"], used, self.count + 1
        )

    def entries(self, keys: NDArray[Any], skipped: int) -> NDArray[Any]:
        """The entries of the next slice."""
        made = np.empty(len(keys), _ENTRY)
        made["previous"] = self.link(keys, skipped)
        made["hash"], made["log_offset"] = keys["hash"], keys["log_offset"]
        seconds = (keys["store_ms"] - self._first["store_ms"]) // 1000
        made["seconds"] = np.clip(seconds, 0, _MAX_SECONDS)
        return made

    def link(self, keys: NDArray[Any], skipped: int) -> NDArray[np.int32]:
        """Add the next slice, which must not be empty; returns the previous entry of each key."""
        self._first, self._last = keys[0] if self._first is None else self._first, keys[-1]
        slot_of = keys["hash"] % np.uint32(len(self.newest))
        within = keys["previous"].astype(np.int32) - np.int32(skipped)
        is_first = within <= 0
        previous = np.where(is_first, self.newest[slot_of], within + np.int32(self.count))
        is_last = np.ones(len(keys), np.bool_)
        is_last[within[~is_first] - 1] = False
        last = np.flatnonzero(is_last)
        self.newest[slot_of[last]] = last + (self.count + 1)
        self.count += len(keys)
        return previous


def are_linked(view: memoryview, slots: int, count: int) -> bool:
    """Whether slots and entries of an index file are linked correctly; `count` is one more than the number of entries.

    Checked is that every link leads to an earlier entry of the same slot, that no two links lead to the same entry, and that
    each slot names its one entry to which no link leads. That leaves only the correct order.
    """
    if count < 2:
        return not any(view[_HEADER.size : _HEADER.size + slots * 4])
    entries: NDArray[Any] = np.frombuffer(view, _ENTRY, count, _HEADER.size + slots * 4)
    previous = entries["previous"].astype(np.int32)
    slot_of = entries["hash"].astype(np.int32) % np.int32(slots)
    previous[0] = 0
    numbers = np.flatnonzero(previous)
    leads_to = previous[numbers]
    if len(numbers) and ((leads_to < 0).any() or (leads_to >= numbers).any()):
        return False
    if (slot_of[leads_to] != slot_of[numbers]).any():
        return False
    is_last = np.ones(count, np.bool_)
    is_last[leads_to] = False
    is_last[0] = False
    last = np.flatnonzero(is_last)
    newest = np.zeros(slots, np.int32)
    newest[slot_of[last]] = last
    is_single = len(last) + len(numbers) == count - 1 and np.count_nonzero(newest) == len(last)
    return bool(is_single) and np.array_equal(newest, np.frombuffer(view, ">i4", slots, _HEADER.size))
