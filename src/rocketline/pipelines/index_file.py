"""A file of the key index made of all its entries at once, to the byte as entry after entry would have made it.

Entries are numbered from 1 in their order. Each is linked to the one before it with the same slot, and a slot to its last
entry: sorting the numbers by slot, with the order kept inside, puts the two side by side.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEADER = struct.Struct(">qqqqii")
_ENTRY = np.dtype([("hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_MAX_SECONDS = 0x7FFFFFFF

KEY = np.dtype([("hash", "<u4"), ("log_offset", "<i8"), ("store_ms", "<i8")])
"""A key on its way into the index."""


def write_index_file(path: Path, keys: NDArray[Any], slots: int, entries: int) -> None:
    """Write `keys` (of the type `KEY`), at most one fewer than `entries`, and bring the file to the disk."""
    assert 0 < len(keys) < entries
    slot_of = keys["hash"].astype(np.int64) % slots
    previous, newest = _links(slot_of, slots)
    begin_ms = int(keys["store_ms"][0])
    written = np.empty(len(keys), _ENTRY)
    written["hash"], written["log_offset"], written["previous"] = keys["hash"], keys["log_offset"], previous
    written["seconds"] = np.clip((keys["store_ms"] - begin_ms) // 1000, 0, _MAX_SECONDS)
    header = _HEADER.pack(
        begin_ms,
        int(keys["store_ms"][-1]),
        int(keys["log_offset"][0]),
        int(keys["log_offset"][-1]),
        int(np.count_nonzero(previous == 0)),
        len(keys) + 1,
    )
    with path.open("wb") as file:
        file.truncate(_HEADER.size + slots * 4 + entries * _ENTRY.itemsize)
        file.write(header)
        file.write(newest.astype(">i4").tobytes())
        # Entry 0 is never used.
        file.seek(_ENTRY.itemsize, os.SEEK_CUR)
        file.write(written.tobytes())
        file.flush()
        os.fsync(file.fileno())


def _links(slot_of: NDArray[np.int64], slots: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each entry the one before it in its slot, 0 for none; for each slot its last entry."""
    order = np.argsort(slot_of, kind="stable")
    ordered = slot_of[order]
    is_same = np.empty(len(order), np.bool_)
    is_same[0] = False
    np.equal(ordered[1:], ordered[:-1], out=is_same[1:])
    previous = np.zeros(len(order), np.int32)
    previous[order[is_same]] = order[np.flatnonzero(is_same) - 1] + 1
    newest = np.zeros(slots, np.int32)
    is_last = np.append(~is_same[1:], True)
    newest[ordered[is_last]] = order[is_last] + 1
    return previous, newest
