"""Bodies of batch sends cut into columns, of messages that are to be stored as they are.

message:  size 4   magic 4   crc 4   flag 4   body 4 + n   properties 2 + n

The messages of a program are mostly alike: their bodies have one size, and of their properties only the ends of the unique
ids differ. Such a batch is cut in one go; any other one message by message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rocketline.store.index.key_hashes import END_BYTES
from rocketline.store.known_properties import KnownProperties, Said
from rocketline.store.log.batch_records import looks_lost

ITEM_BYTES = 22
"""Of a message without its body and properties."""
MAX_ALIKE = 256
"""So many are cut in one go at most: how that is done is remembered, and takes memory."""

_BODY_AT = 20
_read_item = struct.Struct(">i8xii").unpack_from
_read_short = struct.Struct(">h").unpack_from


class AlikeBatch(NamedTuple):
    """Messages that differ in their bodies, which have one size, and in the last characters of their unique ids."""

    flag: int
    bodies: Sequence[bytes]
    before: bytes
    """The properties up to those characters."""
    ends: Sequence[bytes]
    after: bytes
    """And behind them."""
    id_start: bytes
    said: Said


def alike_batch(body: bytes, known: KnownProperties) -> AlikeBatch | None:
    """The messages of a batch; None when they are not alike, or there is anything to say about one."""
    if len(body) < ITEM_BYTES:
        return None
    size, flag, body_bytes = _read_item(body)
    properties_at = ITEM_BYTES + body_bytes
    if body_bytes < 0 or size < properties_at + END_BYTES or len(body) % size or len(body) > size * MAX_ALIKE:
        return None
    properties = body[properties_at:size]
    found = known.find_id(properties)
    if found is None or _read_short(body, properties_at - 2)[0] != len(properties):
        return None
    id_start, id_end, said = found
    at = id_end - END_BYTES
    count = len(body) // size
    values = _cut(count, body_bytes, at, len(properties) - id_end)(body)
    places, starts, ends, rests = values[1::6], values[3::6], values[4::6], values[5::6]
    if values[0::6].count(size) < count or places.count(places[0]) < count or not b"".join(ends).isalnum():
        return None
    if starts.count(starts[0]) < count or rests.count(rests[0]) < count:
        return None
    if b"\0" in properties and looks_lost(properties):
        return None
    return AlikeBatch(flag, values[2::6], properties[:at], ends, properties[id_end:], id_start, said)


@lru_cache(maxsize=64)
def _cut(count: int, body_bytes: int, before: int, after: int) -> Callable[[bytes], tuple[Any, ...]]:
    """Cuts into size, flag and body's size, body, length and beginning of properties, end of the id, and the rest."""
    return struct.Struct(">" + f"i8xq{body_bytes}s{2 + before}s{END_BYTES}s{after}s" * count).unpack


class PlainBatch(NamedTuple):
    """One value for each message, in order."""

    sizes: tuple[int, ...]
    flags: tuple[int, ...]
    body_sizes: tuple[int, ...]
    bodies: tuple[bytes, ...]
    properties_sizes: tuple[int, ...]
    properties: tuple[bytes, ...]


def plain_batch(body: bytes) -> PlainBatch | None:
    """The messages of a batch; None when there is none, or there is anything to say about one."""
    if len(body) < ITEM_BYTES:
        return None
    batch = _even(body) or _one_by_one(body)
    if batch is None or (b"\0" in b"".join(batch.properties) and any(map(looks_lost, batch.properties))):
        return None
    return batch


def _even(body: bytes) -> PlainBatch | None:
    """The batch, when bodies have all the same size, and properties have."""
    size, _, body_bytes = _read_item(body)
    properties_bytes = size - ITEM_BYTES - body_bytes
    if size <= 0 or body_bytes < 0 or properties_bytes < 0 or len(body) % size:
        return None
    batch = PlainBatch(*zip(*_layout(body_bytes, properties_bytes)(body)))
    count = len(body) // size
    if batch.sizes.count(size) < count or batch.body_sizes.count(body_bytes) < count:
        return None
    return batch if batch.properties_sizes.count(properties_bytes) == count else None


@lru_cache(maxsize=256)
def _layout(
    body_bytes: int, properties_bytes: int
) -> Callable[[bytes], Iterator[tuple[int, int, int, bytes, int, bytes]]]:
    return struct.Struct(f">i8xii{body_bytes}sh{properties_bytes}s").iter_unpack


def _one_by_one(body: bytes) -> PlainBatch | None:
    items: list[tuple[int, int, int, bytes, int, bytes]] = []
    at, end = 0, len(body)
    while at < end:
        if end - at < ITEM_BYTES:
            return None
        size, flag, body_bytes = _read_item(body, at)
        content_at, next_at = at + _BODY_AT, at + size
        content_end = content_at + body_bytes
        if body_bytes < 0 or not content_end + 2 <= next_at <= end:
            return None
        properties_bytes = _read_short(body, content_end)[0]
        if content_end + 2 + properties_bytes != next_at:
            return None
        content, properties = body[content_at:content_end], body[content_end + 2 : next_at]
        items.append((size, flag, body_bytes, content, properties_bytes, properties))
        at = next_at
    return PlainBatch(*zip(*items))
