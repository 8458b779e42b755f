"""Rows as the messages of a batch, without an object for each row where the compiled module is there.

Columns are given as buffers, as Arrow has them. `encode_rows` stops at a row that it leaves to its caller: one that is
wrong, that does not fit any more, whose store the sender does not wait for (`WAIT`), or (compiled only) that has more
properties than the compiled function looks at. `row_properties` and `row_body` say what is wrong with a row; errors name
the column.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from rocketline._impl import compiled
from rocketline.errors import InvalidMessage
from rocketline.message import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY, WAIT
from rocketline.protocol.hashing import java_string_hash
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, encode_properties, property_problem
from rocketline.protocol.records import BatchItem, encode_batch

Buffer = Any
"""Whatever has bytes: memoryview, bytes, an array of numpy."""


class Texts(NamedTuple):
    """A column of texts or bytes."""

    valid: Buffer | None
    """A byte for each row, 0 where there is none; None: every row has one."""
    offsets: Buffer
    """int32, one more than rows."""
    data: Buffer

    def at(self, row: int) -> bytes | None:
        if self.valid is not None and not memoryview(self.valid).cast("B")[row]:
            return None
        begin, end = memoryview(self.offsets).cast("B").cast("i")[row : row + 2]
        return bytes(memoryview(self.data)[begin:end])


class Maps(NamedTuple):
    """A column of maps from text to text."""

    lists: Texts
    """Its offsets count pairs, and it has no data."""
    names: Texts
    values: Texts

    def at(self, row: int) -> Iterator[tuple[bytes | None, bytes | None]]:
        if self.lists.valid is not None and not memoryview(self.lists.valid).cast("B")[row]:
            return
        begin, end = memoryview(self.lists.offsets).cast("B").cast("i")[row : row + 2]
        for pair in range(begin, end):
            yield self.names.at(pair), self.values.at(pair)


class RowColumns(NamedTuple):
    """The columns that a message is made of; all have as many rows."""

    body: Texts
    tags: Texts | None = None
    keys: Texts | None = None
    sharding_key: Texts | None = None
    properties: Maps | None = None
    flags: Buffer | None = None
    """int32."""


@compiled
def encode_rows(
    columns: RowColumns, chosen: Buffer, start: int, most_rows: int, most_bytes: int, prefix: str, first_number: int
) -> tuple[bytes, int, int]:
    """(items of a batch, how many, bytes of their bodies) of the rows that `chosen` (int32) names, from `start` on.

    The id of a row is the prefix of 22 characters and the number of the row, in hex.
    """
    items: list[BatchItem] = []
    size = bodies = 0
    for row in memoryview(chosen).cast("B").cast("i")[start : start + max(0, most_rows)]:
        try:
            item = row_item(columns, row, f"{prefix}{first_number + row:010X}")
        except InvalidMessage:
            break
        if item is None:
            break
        size += 22 + len(item.body) + len(item.properties)
        if size > most_bytes:
            break
        items.append(item)
        bodies += len(item.body)
    return encode_batch(items), len(items), bodies


@compiled
def text_hashes(texts: Texts) -> bytes:
    """Java's String.hashCode of each row as int32; a row without a text has 0."""
    rows = len(memoryview(texts.offsets).cast("B")) // 4 - 1
    found = [java_string_hash((texts.at(row) or b"").decode("utf-8", "replace")) for row in range(rows)]
    return b"".join([hashed.to_bytes(4, sys.byteorder, signed=True) for hashed in found])


def row_item(columns: RowColumns, row: int, unique_id: str) -> BatchItem | None:
    """A row as it travels in a batch of which the sender hears when it is stored; None: it does not, InvalidMessage: it
    cannot travel at all."""
    properties = row_properties(columns, row, unique_id)
    if properties[WAIT] != "true":
        return None
    return BatchItem(row_flag(columns, row), row_body(columns, row), encode_properties(properties).encode())


def row_body(columns: RowColumns, row: int) -> bytes:
    body = columns.body.at(row)
    if body is None:
        raise InvalidMessage("has no body: filter such rows out, or fill it in")
    if not body:
        raise InvalidMessage(
            "column 'body' is empty, which RocketMQ does not store: filter such rows out, or fill it in"
        )
    return body


def row_flag(columns: RowColumns, row: int) -> int:
    return 0 if columns.flags is None else memoryview(columns.flags).cast("B").cast("i")[row]


def row_properties(columns: RowColumns, row: int, unique_id: str) -> dict[str, str]:
    """All properties of a message; a unique id among those of its row is kept."""
    found = {UNIQ_KEY: unique_id, WAIT: "true"}
    for raw_name, raw in columns.properties.at(row) if columns.properties is not None else ():
        if raw_name is None or raw is None:
            raise InvalidMessage(f"column 'properties' has a null in {_shown(raw_name)}: {_shown(raw)}: leave it out")
        _add(found, "properties", _text(raw_name, "properties"), _text(raw, "properties"))
    sharding_key = columns.sharding_key.at(row) if columns.sharding_key is not None else None
    if sharding_key is not None:
        _add(found, "shardingKey", SHARDING_KEY, _text(sharding_key, "shardingKey"))
    for column, name, texts in (("keys", KEYS, columns.keys), ("tags", TAGS, columns.tags)):
        if texts is not None and (given := texts.at(row)):
            _add(found, column, name, _text(given, column))
    size = len(encode_properties(found).encode())
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidMessage(f"has properties of {size} bytes in all, the limit is {MAX_PROPERTIES_BYTES}")
    return found


def _add(found: dict[str, str], column: str, name: str, value: str) -> None:
    if problem := property_problem(name, value):
        raise InvalidMessage(f"column {column!r}: {problem}")
    found[name] = value


def _text(raw: bytes, column: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidMessage(f"column {column!r} is not UTF-8: {_shown(raw)}") from error


def _shown(raw: bytes | None) -> str:
    return "null" if raw is None else repr(raw[:40])
