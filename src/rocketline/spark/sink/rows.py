"""The columns of the sink, and a batch of rows as columns of messages: without Spark.

Every message gets a unique id made of the id of the write, the number of the task and the number of the row. A task that is
run again makes the same ids, so that readers can recognise a message that was stored twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketline.errors import ConfigError, InvalidMessage
from rocketline.message import Message
from rocketline.spark.sink.encoding import Maps, RowColumns, Texts, row_body, row_flag, row_properties

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS = pa.timestamp("us", "UTC")
_INT32 = np.iinfo(np.int32)

SINK_COLUMNS = {
    "body": "binary or string",
    "topic": "string",
    "tags": "string",
    "keys": "string or array<string>",
    "properties": "map<string,string>",
    "shardingKey": "string",
    "delayMs": "int or bigint",
    "deliverAt": "timestamp",
    "queueId": "int",
    "brokerName": "string",
    "flag": "int",
}
"""The columns of the sink and their Spark types."""


@dataclass(frozen=True)
class RowIds:
    """Unique ids of the rows of one task: 16 bytes in hex, as those of producers."""

    prefix: str

    @staticmethod
    def of(write: str, partition: int) -> RowIds:
        """`write` identifies the query and its batch, or one write of a table."""
        return RowIds(f"{blake2b(write.encode(), digest_size=8).hexdigest().upper()}{partition & 0xFFFFFF:06X}")

    def of_row(self, number: int) -> str:
        """
        >>> RowIds.of("query/0", 3).of_row(255)
        '7D6F48AF9440BE1A00000300000000FF'
        """
        return f"{self.prefix}{number:010X}"


def checked_columns(source: str, schema: pa.Schema, topic: str | None) -> tuple[str, ...]:
    """The columns of a table by their names in `SINK_COLUMNS`; ConfigError for one that is missing, unknown or wrong."""
    by_lower = {name.lower(): name for name in SINK_COLUMNS}
    names = []
    for column in schema:
        name = by_lower.get(column.name.lower())
        if name is None:
            meant = get_close_matches(column.name.lower(), by_lower, n=1)
            hint = f"did you mean {by_lower[meant[0]]!r}?" if meant else f"there are {', '.join(SINK_COLUMNS)}"
            raise ConfigError(f"{source}: column {column.name!r} cannot be written: {hint} Select the columns to send")
        if not _fits(name, column.type):
            raise ConfigError(f"{source}: column {name!r} must be {SINK_COLUMNS[name]}, not {column.type}: cast it")
        names.append(name)
    if "body" not in names:
        raise ConfigError(
            f"{source}: a column 'body' is needed, binary or string: for example to_json(struct(*)) AS body"
        )
    if topic is None and "topic" not in names:
        raise ConfigError(f"{source}: set the option 'topic', or add a column 'topic'")
    if "brokerName" in names and "queueId" not in names:
        raise ConfigError(f"{source}: column 'brokerName' has no effect without a column 'queueId'")
    if "delayMs" in names and "deliverAt" in names:
        raise ConfigError(f"{source}: columns 'delayMs' and 'deliverAt' contradict each other: keep one of them")
    return tuple(names)


def _fits(name: str, kind: pa.DataType) -> bool:
    types = pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if name == "body":
        return bool(is_text or types.is_binary(kind) or types.is_large_binary(kind))
    if name == "keys":
        return bool(is_text or (types.is_list(kind) and types.is_string(kind.value_type)))
    if name == "properties":
        return bool(types.is_map(kind) and types.is_string(kind.key_type) and types.is_string(kind.item_type))
    if name in ("delayMs", "queueId", "flag"):
        return bool(types.is_integer(kind))
    if name == "deliverAt":
        return bool(types.is_timestamp(kind) and kind.tz is not None)
    return bool(is_text)


@dataclass(frozen=True)
class RowBatch:
    """Some rows of a task, as columns by their names in `SINK_COLUMNS`."""

    values: dict[str, pa.Array]
    topic: str | None
    """The topic of all rows, even if there is a column `topic`."""
    first_number: int
    """The number of the first row in its task."""

    _numbers: dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = field(default_factory=dict, init=False)

    @property
    def rows(self) -> int:
        return len(self.values["body"])

    @cached_property
    def columns(self) -> RowColumns:
        """InvalidMessage names a row with a null among its keys, or with a flag that does not fit."""
        return RowColumns(
            _texts(self.values["body"]),
            self._texts("tags"),
            None if "keys" not in self.values else _texts(self._joined_keys()),
            self._texts("shardingKey"),
            _maps(self.values["properties"]) if "properties" in self.values else None,
            self._flags() if "flag" in self.values else None,
        )

    def numbers(self, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
        """(int64, which rows have one) of a column; None when it is absent."""
        column = self.values.get(name)
        if column is None:
            return None
        if name not in self._numbers:
            column = column.cast(_MICROSECONDS) if name == "deliverAt" else column
            values = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
            self._numbers[name] = values, _valid(column)
        return self._numbers[name]

    def names(self, name: str) -> tuple[list[str], np.ndarray[Any, Any]]:
        """(all texts of a column, for each row which of them or -1); InvalidMessage names a row that is not UTF-8."""
        column = self.values[name]
        found = column.view(pa.binary()) if pa.types.is_string(column.type) else column.cast(pa.large_binary())
        coded = found.dictionary_encode()
        of_row = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        texts: list[str] = []
        for number, raw in enumerate(coded.dictionary.to_pylist()):
            try:
                texts.append(raw.decode())
            except UnicodeDecodeError:
                row = int(np.argmax(of_row == number))
                raise self.wrong(row, f"column {name!r} is not UTF-8: {raw[:40]!r}") from None
        return texts, of_row

    def message(self, row: int, topic: str, unique_id: str) -> Message:
        """A row as a message of its own; InvalidMessage names row and column of what is wrong."""
        delay_ms, deliver_us = self._number("delayMs", row), self._number("deliverAt", row)
        try:
            delay = None if delay_ms is None else timedelta(milliseconds=delay_ms)
            deliver_at = None if deliver_us is None else _EPOCH + timedelta(microseconds=deliver_us)
        except OverflowError:
            name, value = ("delayMs", delay_ms) if delay_ms is not None else ("deliverAt", f"{deliver_us} microseconds")
            raise self.wrong(row, f"column {name!r} is {value}, which is beyond every calendar") from None
        try:
            return Message(
                topic,
                row_body(self.columns, row),
                properties=row_properties(self.columns, row, unique_id),
                flag=row_flag(self.columns, row),
                delay=delay,
                deliver_at=deliver_at,
            )
        except InvalidMessage as error:
            raise self.wrong(row, str(error)) from None

    def wrong(self, row: int, problem: str) -> InvalidMessage:
        return InvalidMessage(f"row {self.first_number + row} of the task: {problem}")

    def _number(self, name: str, row: int) -> int | None:
        found = self.numbers(name)
        return None if found is None or not found[1][row] else int(found[0][row])

    def _texts(self, name: str) -> Texts | None:
        return _texts(self.values[name]) if name in self.values else None

    def _joined_keys(self) -> pa.Array:
        keys = self.values["keys"]
        if not pa.types.is_list(keys.type):
            return keys
        # There is no kernel for elements that cannot be null.
        joined = pc.binary_join(keys.cast(pa.list_(pa.string())), " ")
        holes = _valid(keys) & ~_valid(joined)
        if holes.any():
            raise self.wrong(int(holes.argmax()), "column 'keys' has a null in its array: filter nulls out of it")
        return joined

    def _flags(self) -> np.ndarray[Any, Any]:
        found = self.numbers("flag")
        assert found is not None
        wide = found[0]
        outside = (wide < _INT32.min) | (wide > _INT32.max)
        if outside.any():
            row = int(outside.argmax())
            raise self.wrong(row, f"column 'flag' is {wide[row]}, which does not fit 32 bits")
        return wide.astype(np.int32)


def _valid(column: pa.Array) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _validity(column: pa.Array) -> np.ndarray[Any, Any] | None:
    return _valid(column).view(np.uint8) if column.null_count else None


def _offsets(column: pa.Array) -> memoryview:
    """The int32 offsets of a column, also of one that is a slice of another."""
    raw = column.buffers()[1]
    if not len(column) or raw is None:
        return memoryview(bytes(4))
    return memoryview(raw)[column.offset * 4 : (column.offset + len(column) + 1) * 4]


def _texts(column: pa.Array) -> Texts:
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    data = column.buffers()[2]
    return Texts(_validity(column), _offsets(column), b"" if data is None else memoryview(data))


def _maps(column: pa.Array) -> Maps:
    return Maps(Texts(_validity(column), _offsets(column), b""), _texts(column.keys), _texts(column.items))
