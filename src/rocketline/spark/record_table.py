"""The positions of many stored records, and of their parts, in one buffer, as numpy arrays.

The layout is that of `protocol.records`. Only `record_starts` goes from record to record, because only a record's size
tells where the next one is; everything else is done for all records together. The compiled `locate_run` does both in one
pass. Each record is checked as `decode_record` checks it: magic, sizes and, if asked for, the log offset. Sizes behind a
record that fails the check cannot be trusted, so a table ends there, and its `end` says where that is.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketline._impl import compiled
from rocketline.protocol.record_layout import (
    BORN_HOST_AT,
    BORN_IPV6,
    IPV6_EXTRA_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    STORE_IPV6,
)

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Buffer = bytes | memoryview
Bytes = npt.NDArray[np.uint8]

MAX_BUFFER_BYTES = (1 << 31) - 1
"""Arrow's binary arrays count in 32 bits."""

_HEAD = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_ms", ">i8"),
    ]
)
_TAIL = np.dtype([("reconsume_times", ">i4"), ("prepared", ">i8"), ("body_bytes", ">i4")])
_LONG = np.dtype(">i8")
_SHORT = np.dtype(">i2")

_IPV4_BYTES = 8

assert _HEAD.itemsize == BORN_HOST_AT, "the layout of a record, up to its first host"

_BINARY = pa.binary()
_size_at = struct.Struct(">i").unpack_from
_MIN_EQUAL_SIZES = 64
_MAX_STEPS = 2048


def record_starts(buffer: Buffer, start: int = 0) -> tuple[Positions, int]:
    """(where complete records begin from `start` on, going by their sizes; where the last of them ends)."""
    pieces: list[Positions] = []
    position, length = start, len(buffer)
    while position <= length - MIN_RECORD_BYTES:
        size = _size_at(buffer, position)[0]
        if size < MIN_RECORD_BYTES or position + size > length:
            break
        count = _equal_sizes(buffer, position, size)
        if count:
            pieces.append(np.arange(position, position + count * size, size, dtype=np.int64))
            position += count * size
        else:
            starts, position = _step_by_step(buffer, position)
            pieces.append(np.array(starts, dtype=np.int64))
    return (np.concatenate(pieces) if pieces else np.empty(0, np.int64)), position


def _equal_sizes(buffer: Buffer, position: int, size: int) -> int:
    """How many records of one size follow each other; 0 when they are fewer than `_MIN_EQUAL_SIZES`."""
    room = (len(buffer) - position) // size
    if room < _MIN_EQUAL_SIZES:
        return 0
    sizes: npt.NDArray[Any] = np.ndarray((room,), ">i4", buffer, position, (size,))
    if not (sizes[:_MIN_EQUAL_SIZES] == size).all():
        return 0
    same = sizes == size
    return room if same.all() else int(same.argmin())


def _step_by_step(buffer: Buffer, position: int) -> tuple[list[int], int]:
    """(starts of the next records, where they end), going from one to the next, at most `_MAX_STEPS` of them."""
    starts: list[int] = []
    add, size_at = starts.append, _size_at
    length = len(buffer)
    last = length - MIN_RECORD_BYTES
    for _ in range(_MAX_STEPS):
        if position > last:
            break
        size = size_at(buffer, position)[0]
        if size < MIN_RECORD_BYTES:
            break
        add(position)
        position += size
    if position > length:
        position = starts.pop()
    return starts, position


@dataclass(frozen=True, eq=False)
class RecordTable:
    """The records of a buffer; every array has an element for each of them. Ends are exclusive."""

    buffer: Buffer
    starts: Positions
    head: npt.NDArray[Any]
    store_ms: npt.NDArray[Any]
    tail: npt.NDArray[Any]
    sys_flag: npt.NDArray[np.int32]
    store_host_at: Positions
    body_at: Positions
    topic_at: Positions
    topic_end: Positions
    ends: Positions

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def body_end(self) -> Positions:
        ends: Positions = self.body_at + self.tail["body_bytes"]
        return ends

    @property
    def properties_at(self) -> Positions:
        return self.topic_end + 2

    @property
    def end(self) -> int:
        """Where the last record ends; 0 when there is none."""
        return int(self.ends[-1]) if len(self) else 0

    def select(self, rows: Mask) -> RecordTable:
        """Only some of the records."""
        return self if rows.all() else self._subset(rows)

    def rows(self, first: int, count: int) -> RecordTable:
        """`count` records from number `first` on."""
        return self if not first and count >= len(self) else self._subset(slice(first, first + count))

    def _subset(self, rows: Mask | slice) -> RecordTable:
        return RecordTable(self.buffer, *[array[rows] for array in self.arrays()])

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All arrays, in the order of the fields."""
        return tuple([getattr(self, field.name) for field in fields(self)[1:]])

    def of_topics(self, topics: Collection[str]) -> RecordTable:
        """Only the records of these topics."""
        names = cut_out(self.buffer, self.topic_at, self.topic_end)
        wanted = pc.is_in(names, value_set=pa.array([topic.encode() for topic in topics], pa.binary()))
        return self.select(wanted.to_numpy(zero_copy_only=False))

    def gather(self, positions: Positions, dtype: np.dtype[Any] | str) -> npt.NDArray[Any]:
        """The bytes at each position, read as `dtype`."""
        return gather(self.buffer, positions, np.dtype(dtype))


_ARRAY_TYPES: tuple[Any, ...] = (np.int64, _HEAD, _LONG, _TAIL, np.int32, *[np.int64] * 5)
"""Element types of a table's arrays, in the order of its fields."""


def read_table(buffer: Buffer, log_offset: int | None = None) -> RecordTable:
    """The sound records a buffer begins with; `log_offset` is that of its first byte, as for `locate`."""
    _check_size(buffer)
    arrays = locate_run(buffer, log_offset)
    return RecordTable(buffer, *[np.frombuffer(raw, kind) for raw, kind in zip(arrays, _ARRAY_TYPES)])


@compiled
def locate_run(buffer: Buffer, log_offset: int | None) -> tuple[Any, ...]:
    """The arrays of the table of the sound records a buffer begins with: objects with the buffer protocol."""
    return locate(buffer, record_starts(buffer)[0], log_offset).arrays()


def _check_size(buffer: Buffer) -> None:
    if len(buffer) > MAX_BUFFER_BYTES:
        raise ValueError(f"a buffer of {len(buffer)} bytes is too large: at most {MAX_BUFFER_BYTES}")


def locate(buffer: Buffer, starts: Positions, log_offset: int | None = None) -> RecordTable:
    """The records at `starts`, up to the first that is not sound; `log_offset` is that of the buffer's first byte.

    Without it the records' own offsets are taken as they are, as in the answer to a pull.
    """
    _check_size(buffer)
    head = gather(buffer, starts, _HEAD)
    sys_flag = head["sys_flag"].astype(np.int32)
    store_ms_at = starts + (BORN_HOST_AT + _IPV4_BYTES)
    store_host_at = store_ms_at + 8
    tail_at = store_host_at + _IPV4_BYTES
    ends = starts + head["size"]
    if (sys_flag & (BORN_IPV6 | STORE_IPV6)).any():
        born = np.where(sys_flag & BORN_IPV6, IPV6_EXTRA_BYTES, 0)
        store_ms_at, store_host_at = store_ms_at + born, store_host_at + born
        tail_at = tail_at + born + np.where(sys_flag & STORE_IPV6, IPV6_EXTRA_BYTES, 0)
    body_at = tail_at + _TAIL.itemsize
    is_v1 = head["magic"] == MAGIC_V1
    sound = (is_v1 | (head["magic"] == MAGIC_V2)) & (body_at + 3 <= ends)
    if log_offset is not None:
        sound &= head["log_offset"] == starts + log_offset
    if not sound.all():
        return locate(buffer, starts[: sound.argmin()], log_offset)

    tail = gather(buffer, tail_at, _TAIL)
    body_end = body_at + tail["body_bytes"]
    sound = (tail["body_bytes"] >= 0) & (body_end + 3 <= ends)
    if not sound.all():
        return locate(buffer, starts[: sound.argmin()], log_offset)

    topic_at, topic_end = _topics(buffer, body_end, is_v1)
    sound = (topic_end >= topic_at) & (topic_end + 2 <= ends)
    if not sound.all():
        return locate(buffer, starts[: sound.argmin()], log_offset)
    sound = gather(buffer, topic_end, _SHORT) == ends - topic_end - 2
    if not sound.all():
        return locate(buffer, starts[: sound.argmin()], log_offset)
    return RecordTable(
        buffer=buffer,
        starts=starts,
        head=head,
        store_ms=gather(buffer, store_ms_at, _LONG),
        tail=tail,
        sys_flag=sys_flag,
        store_host_at=store_host_at,
        body_at=body_at,
        topic_at=topic_at,
        topic_end=topic_end,
        ends=ends,
    )


def _topics(buffer: Buffer, at: Positions, is_v1: Mask) -> tuple[Positions, Positions]:
    """(begins, ends) of the topics; their lengths are stored at `at`."""
    lengths: npt.NDArray[Any] = np.frombuffer(buffer, np.uint8)[at]
    if is_v1.all():
        return at + 1, at + 1 + lengths
    lengths = np.where(is_v1, lengths, gather(buffer, at, _SHORT))
    topic_at = at + np.where(is_v1, 1, 2)
    return topic_at, topic_at + lengths


def gather(buffer: Buffer | Bytes, positions: Positions, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values of type `dtype` at these positions, which need not be aligned."""
    width = dtype.itemsize
    if not len(positions):
        return np.empty(0, dtype)
    # One element for each byte of the buffer, overlapping: indexing copies those that are asked for and no others.
    everywhere: npt.NDArray[Any] = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, 0, (1,))
    return everywhere[positions].view(dtype)


def cut_out(buffer: Buffer | Bytes, begins: Positions, ends: Positions, kind: pa.DataType = _BINARY) -> pa.BinaryArray:
    """The slices of a buffer between `begins` and `ends`, which ascend and do not overlap, as an array of bytes, or of texts
    that are known to be valid UTF-8."""
    count = len(begins)
    if not count:
        return pa.array([], kind)
    return text_array(kind, count, *lay_out(buffer, np.ascontiguousarray(begins), np.ascontiguousarray(ends)))


@compiled
def lay_out(buffer: Buffer | Bytes, begins: Positions, ends: Positions) -> tuple[Any, Any]:
    """(offsets, bytes) of an Arrow array of slices, at least one: objects with the buffer protocol.

    An Arrow array is laid over the buffer whose elements are, in turn, a slice and what lies before the next one.
    """
    count = len(begins)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = begins
    offsets[1::2] = ends
    laid = pa.Array.from_buffers(_BINARY, 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    return text_parts(laid.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))))


def text_array(kind: pa.DataType, count: int, offsets: Any, data: Any, valid: pa.Buffer | None = None) -> pa.Array:
    """An array of bytes or texts made of its parts."""
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def text_parts(array: pa.Array) -> tuple[Any, Any]:
    """(offsets, bytes) of an array of bytes or texts that is no slice of another one."""
    if not len(array):
        return bytes(4), b""
    _, offsets, data = array.buffers()
    return memoryview(offsets)[: 4 * (len(array) + 1)], b"" if data is None else data
