"""Decodes stored records to Arrow columns, for both data sources and for `rocketline.columns`.

    plan = ColumnPlan(("topic", "body"), "broker-a")      what to decode; made once, sent to every task
    for batch, faults in decode(answer_of_a_pull, plan):  all records of a buffer, back to back
        ...
    for batch, faults in plan.decode(table):              records that were located, and perhaps selected, before
        ...

| column | meaning |
| --- | --- |
| topic, brokerName, queueId | where it is; `brokerName` is null in `rocketmq-log` unless its option is set |
| queueOffset, commitLogOffset | its number in the queue; its position in the commit log, in bytes |
| msgId | the producer's unique id or, without one, the broker's offset id |
| tags, keys | null where there are none; several keys have spaces between them |
| body | inflated, if it was compressed |
| properties | all of them, also those of RocketMQ itself |
| bornTimestamp, storeTimestamp | when the producer made it, when the broker stored it |
| bornHost, storeHost | addresses of producer and broker, host:port |
| reconsumeTimes | how often it was delivered again |
| sysFlag, flag | RocketMQ's bits, without the one for compression; the producer's own number |
| storeSize, bodyCRC | size of the record in bytes; checksum of the body as stored |
| preparedTransactionOffset | log offset of its half message |

Only the columns a plan names are decoded. Bodies come inflated, and `sysFlag` is without its bit for compression, as a
consumer sees a message; `msgId` is the producer's unique id or, without one, the broker's offset id; `tags` and `keys`
are null where there are none. A record whose body does not match its checksum or cannot be inflated, or whose topic is
not UTF-8, is a `Fault` and has no row: the caller decides what to do about it.

There is no Python loop over messages here, except for compressed bodies, for checksums if they are checked and the compiled
function is missing, and for properties that `property_columns` finds irregular.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketline._impl import compiled
from rocketline.errors import CorruptRecord, ProtocolError
from rocketline.message import KEYS, TAGS, UNIQ_KEY
from rocketline.protocol.compression import decompress
from rocketline.protocol.message_ids import decode_host
from rocketline.protocol.record_layout import BORN_HOST_AT, BORN_IPV6, COMPRESSED, STORE_IPV6
from rocketline.spark.property_columns import MAP, PropertyColumns, read_properties
from rocketline.spark.record_table import Buffer, Positions, RecordTable, cut_out, read_table

TIME = pa.timestamp("us", "UTC")

COLUMNS = pa.schema(
    {
        "topic": pa.string(),
        "brokerName": pa.string(),
        "queueId": pa.int32(),
        "queueOffset": pa.int64(),
        "commitLogOffset": pa.int64(),
        "msgId": pa.string(),
        "tags": pa.string(),
        "keys": pa.string(),
        "body": pa.binary(),
        "properties": MAP,
        "bornTimestamp": TIME,
        "storeTimestamp": TIME,
        "bornHost": pa.string(),
        "reconsumeTimes": pa.int32(),
        "sysFlag": pa.int32(),
    }
)
"""The default columns of a source."""

MORE_COLUMNS = pa.schema(
    {
        "flag": pa.int32(),
        "storeHost": pa.string(),
        "storeSize": pa.int32(),
        "bodyCRC": pa.int32(),
        "preparedTransactionOffset": pa.int64(),
    }
)
"""Further columns, for schemas that name them."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, the range of Spark and Python; a time outside is null."""

_HEX = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), "<u2")


MAX_BATCH_ROWS = 1 << 16
MAX_INFLATED_BYTES = 256 << 20
"""Limit for one batch: inflated bodies must not become larger than an executor, or an Arrow array, can hold."""


class _BatchTooLarge(Exception):
    """The inflated bodies do not fit into one batch."""


class Fault(NamedTuple):
    """A damaged record, which has no row."""

    log_offset: int
    size: int
    reason: str


class Decoded(NamedTuple):
    batch: pa.RecordBatch
    faults: list[Fault]


@dataclass(frozen=True)
class ColumnPlan:
    """Which columns to decode, and how; can be pickled."""

    columns: tuple[str, ...] = tuple(COLUMNS.names)
    broker_name: str | None = None
    check_crc: bool = True
    max_body_bytes: int | None = None
    """Largest inflated body; None means the limit of the protocol."""

    def __post_init__(self) -> None:
        for name in self.columns:
            if name not in _COLUMN_MAKERS:
                raise ValueError(f"there is no column {name!r}: there are {', '.join(_COLUMN_MAKERS)}")

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([column_field(name) for name in self.columns])

    def decode(self, table: RecordTable) -> Iterator[Decoded]:
        """A row for each sound record of the table, in order; in several batches if there are many."""
        for first in range(0, len(table), MAX_BATCH_ROWS):
            yield from self._decode(table.rows(first, MAX_BATCH_ROWS))

    def _decode(self, table: RecordTable) -> Iterator[Decoded]:
        try:
            yield _Batch(table, self).decoded()
        except _BatchTooLarge:
            half = len(table) // 2
            yield from self._decode(table.rows(0, half))
            yield from self._decode(table.rows(half, len(table)))


def column_field(name: str) -> pa.Field:
    """Name and type of a column."""
    return (COLUMNS if name in COLUMNS.names else MORE_COLUMNS).field(name)


def decode(buffer: Buffer, plan: ColumnPlan) -> Iterator[Decoded]:
    """Decode all records of an answer to a pull; CorruptRecord, before any row, when some bytes are not a record."""
    table = read_table(buffer)
    if table.end != len(buffer):
        raise CorruptRecord(f"no sound record at byte {table.end} of {len(buffer)}")
    return plan.decode(table)


class _Batch:
    """Makes a record batch of one table; values that several columns need are computed once."""

    def __init__(self, table: RecordTable, plan: ColumnPlan) -> None:
        self.table = table
        self.plan = plan
        self._reasons: dict[int, str] = {}

    def decoded(self) -> Decoded:
        plan, table = self.plan, self.table
        if plan.check_crc:
            self._check_bodies()
        schema = plan.schema
        arrays = [_COLUMN_MAKERS[name](self) for name in plan.columns]
        if arrays:
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * len(table), pa.struct([])))
        if not self._reasons:
            return Decoded(batch, [])
        rows = sorted(self._reasons)
        kept = np.ones(len(table), np.bool_)
        kept[rows] = False
        faults = [
            Fault(int(table.head["log_offset"][row]), int(table.head["size"][row]), self._reasons[row]) for row in rows
        ]
        return Decoded(batch.filter(pa.array(kept)), faults)

    def _check_bodies(self) -> None:
        table = self.table
        checksums = table.head["body_crc"].astype(np.int32)
        for row in wrong_bodies(table.buffer, table.body_at, table.body_end, checksums):
            self._reasons[row] = "its body does not match its CRC"

    def bodies(self) -> pa.Array:
        table = self.table
        stored = cut_out(table.buffer, table.body_at, table.body_end)
        packed = (table.sys_flag & COMPRESSED) != 0
        if not packed.any():
            return stored
        rows = np.flatnonzero(packed).tolist()
        inflated = self._inflate(rows)
        return pc.replace_with_mask(stored, pa.array(packed), pa.array(inflated, pa.binary()))

    def _inflate(self, rows: list[int]) -> list[bytes]:
        bodies: list[bytes] = []
        size = 0
        for row in rows:
            bodies.append(self._inflated(row))
            size += len(bodies[-1])
            if size > MAX_INFLATED_BYTES and len(self.table) > 1:
                raise _BatchTooLarge
        return bodies

    def _inflated(self, row: int) -> bytes:
        table = self.table
        body = bytes(table.buffer[int(table.body_at[row]) : int(table.body_end[row])])
        try:
            return decompress(body, int(table.sys_flag[row]), self.plan.max_body_bytes)
        except ProtocolError as error:
            self._reasons.setdefault(row, str(error))
            return b""

    def topics(self) -> pa.Array:
        table = self.table
        raw = cut_out(table.buffer, table.topic_at, table.topic_end)
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([self._topic(row, text) for row, text in enumerate(raw.to_pylist())], pa.string())

    def _topic(self, row: int, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._reasons.setdefault(row, "its topic is not UTF-8")
            return ""

    @cached_property
    def properties(self) -> PropertyColumns:
        table, columns = self.table, self.plan.columns
        names = [name for column, name in _PROPERTY_OF_COLUMN.items() if column in columns]
        return read_properties(table.buffer, table.properties_at, table.ends, names, "properties" in columns)

    def message_ids(self) -> pa.Array:
        unique = self.properties.named[UNIQ_KEY]
        if not unique.null_count:
            return unique
        missing = unique.is_null().to_numpy(zero_copy_only=False)
        return pc.replace_with_mask(unique, pa.array(missing), _offset_ids(self.table.select(missing)))

    def broker_names(self) -> pa.Array:
        name, count = self.plan.broker_name, len(self.table)
        return pa.nulls(count, pa.string()) if name is None else pa.repeat(pa.scalar(name), count)


@compiled
def wrong_bodies(buffer: Buffer, begins: Positions, ends: Positions, checksums: npt.NDArray[np.int32]) -> list[int]:
    """The row numbers of bodies that do not match their checksums."""
    places = zip(begins.tolist(), ends.tolist())
    found = np.array([crc32(buffer[begin:end]) for begin, end in places], np.uint32) & 0x7FFFFFFF
    wrong: list[int] = np.flatnonzero(found != checksums).tolist()
    return wrong


def _offset_ids(table: RecordTable) -> pa.Array:
    offsets = _bytes_of(table.gather(table.starts + 28, "V8"), 8)
    return _by_host_width(
        table,
        STORE_IPV6,
        lambda rows, width: _hex(
            np.hstack([_bytes_of(table.gather(table.store_host_at[rows], f"V{width}"), width), offsets[rows]])
        ),
    )


def _hosts(table: RecordTable, at: Positions, wide_flag: int) -> pa.Array:
    """`ip:port` texts; each distinct address is formatted once."""

    def texts(rows: npt.NDArray[Any], width: int) -> pa.Array:
        # As numbers where possible: numpy compares numbers faster than bytes.
        raw = table.gather(at[rows], "u8" if width == 8 else f"V{width}")
        if (raw == raw[:1]).all():
            return (
                pa.repeat(pa.scalar(decode_host(raw[0].tobytes())), len(raw)) if len(raw) else pa.array([], pa.string())
            )
        kind = pa.uint64() if width == 8 else pa.binary(width)
        found = pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(raw.tobytes())]).dictionary_encode()
        distinct = found.dictionary.to_pylist()
        if width == 8:
            distinct = [host.to_bytes(8, "little") for host in distinct]
        return pa.array([decode_host(host) for host in distinct], pa.string()).take(found.indices)

    return _by_host_width(table, wide_flag, texts)


def _by_host_width(table: RecordTable, wide_flag: int, texts: Callable[[npt.NDArray[Any], int], pa.Array]) -> pa.Array:
    """Texts of hosts of 8 bytes (IPv4) and of 20 (IPv6): made for each width, then put in the order of the records."""
    is_wide = (table.sys_flag & wide_flag) != 0
    narrow, wide = np.flatnonzero(~is_wide), np.flatnonzero(is_wide)
    if not len(wide):
        return texts(narrow, 8)
    if not len(narrow):
        return texts(wide, 20)
    order = np.empty(len(table), np.int64)
    order[narrow] = np.arange(len(narrow))
    order[wide] = np.arange(len(wide)) + len(narrow)
    return pa.concat_arrays([texts(narrow, 8), texts(wide, 20)]).take(pa.array(order))


def _bytes_of(values: npt.NDArray[Any], width: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(values.tobytes(), np.uint8).reshape(-1, width)


def _hex(rows: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = rows.shape
    digits = _HEX[rows].tobytes()
    offsets = np.arange(0, (count + 1) * width * 2, width * 2, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(digits)])


def _times(ms: npt.NDArray[Any]) -> pa.Array:
    native = ms.astype(np.int64)
    outside = (native < _FIRST_MS) | (native > _LAST_MS)
    if not outside.any():
        return pa.array(native * 1000).view(TIME)
    return pa.array(np.where(outside, 0, native) * 1000, mask=outside).view(TIME)


def _ints(values: npt.NDArray[Any]) -> pa.Array:
    return pa.array(values.astype(values.dtype.newbyteorder("=")))


_PROPERTY_OF_COLUMN = {"msgId": UNIQ_KEY, "tags": TAGS, "keys": KEYS}

_COLUMN_MAKERS: dict[str, Callable[[_Batch], pa.Array]] = {
    "topic": _Batch.topics,
    "brokerName": _Batch.broker_names,
    "queueId": lambda batch: _ints(batch.table.head["queue_id"]),
    "queueOffset": lambda batch: _ints(batch.table.head["queue_offset"]),
    "commitLogOffset": lambda batch: _ints(batch.table.head["log_offset"]),
    "msgId": _Batch.message_ids,
    "tags": lambda batch: batch.properties.named[TAGS],
    "keys": lambda batch: batch.properties.named[KEYS],
    "body": _Batch.bodies,
    "properties": lambda batch: batch.properties.maps,
    "bornTimestamp": lambda batch: _times(batch.table.head["born_ms"]),
    "storeTimestamp": lambda batch: _times(batch.table.store_ms),
    "bornHost": lambda batch: _hosts(batch.table, batch.table.starts + BORN_HOST_AT, BORN_IPV6),
    "reconsumeTimes": lambda batch: _ints(batch.table.tail["reconsume_times"]),
    "sysFlag": lambda batch: pa.array(batch.table.sys_flag & ~COMPRESSED),
    "flag": lambda batch: _ints(batch.table.head["flag"]),
    "storeHost": lambda batch: _hosts(batch.table, batch.table.store_host_at, STORE_IPV6),
    "storeSize": lambda batch: _ints(batch.table.head["size"]),
    "bodyCRC": lambda batch: _ints(batch.table.head["body_crc"]),
    "preparedTransactionOffset": lambda batch: _ints(batch.table.tail["prepared"]),
}
