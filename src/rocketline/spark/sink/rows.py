"""Makes messages from the rows of a table: the columns of the sink, without Spark.

Every message gets a unique id made of the id of the write, the number of the task and the number of the row. A task that is
run again makes the same ids, so that readers can recognise a message that was stored twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from hashlib import blake2b
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from rocketline.errors import ConfigError, InvalidMessage
from rocketline.message import SHARDING_KEY, UNIQ_KEY, Message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS = pa.timestamp("us", "UTC")

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


class OutgoingRow(NamedTuple):
    """A message, and the values of its row that choose its queue."""

    message: Message
    sharding_key: str | None
    queue_id: int | None
    broker_name: str | None


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
    for field in schema:
        name = by_lower.get(field.name.lower())
        if name is None:
            meant = get_close_matches(field.name.lower(), by_lower, n=1)
            hint = f"did you mean {by_lower[meant[0]]!r}?" if meant else f"there are {', '.join(SINK_COLUMNS)}"
            raise ConfigError(f"{source}: column {field.name!r} cannot be written: {hint} Select the columns to send")
        if not _fits(name, field.type):
            raise ConfigError(f"{source}: column {name!r} must be {SINK_COLUMNS[name]}, not {field.type}: cast it")
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
class RowMessages:
    """Makes messages from rows."""

    columns: tuple[str, ...]
    topic: str | None
    """The topic of all rows, even if there is a column `topic`."""

    def of(self, batch: pa.RecordBatch, ids: RowIds, first_row: int) -> Iterator[OutgoingRow]:
        """The messages of a batch whose first row has this number; InvalidMessage names the first wrong row."""
        values = {name: _values(name, batch.column(at)) for at, name in enumerate(self.columns)}
        if self.topic is not None:
            values["topic"] = [self.topic] * batch.num_rows
        # Missing columns are null in every row.
        columns = [values.get(name) or repeat(None) for name in SINK_COLUMNS]
        for number, row in zip(range(first_row, first_row + batch.num_rows), zip(*columns)):
            yield _row(row, ids.of_row(number), number)


def _values(name: str, column: pa.Array) -> list[Any]:
    if name == "body" and not pa.types.is_binary(column.type):
        return [None if text is None else text.encode() for text in column.to_pylist()]
    if name == "deliverAt":
        return list(column.cast(_MICROSECONDS).cast(pa.int64()).to_pylist())
    return list(column.to_pylist())


def _row(row: tuple[Any, ...], unique_id: str, number: int) -> OutgoingRow:
    body, topic, tags, keys, properties, sharding_key, delay_ms, deliver_us, queue_id, broker_name, flag = row
    if body is None or topic is None:
        missing = "topic" if topic is None else "body"
        raise InvalidMessage(f"row {number} of the task has no {missing}: filter such rows out, or fill it in")
    named = {UNIQ_KEY: unique_id}
    if properties:
        named.update(properties)
    if sharding_key is not None:
        named[SHARDING_KEY] = sharding_key
    message = Message(
        topic,
        body,
        tags or None,
        keys or (),
        named,
        flag or 0,
        delay=None if delay_ms is None else timedelta(milliseconds=delay_ms),
        deliver_at=None if deliver_us is None else _EPOCH + timedelta(microseconds=deliver_us),
    )
    return OutgoingRow(message, sharding_key, queue_id, broker_name)
