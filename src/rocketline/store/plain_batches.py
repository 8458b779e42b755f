"""Bodies of batch sends cut into columns, of messages that are to be stored as they are.

message:  size 4   magic 4   crc 4   flag 4   body 4 + n   properties 2 + n
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from rocketline.store.batch_records import looks_lost

ITEM_BYTES = 22
"""Of a message without its body and properties."""

_BODY_AT = 20
_read_item = struct.Struct(">i8xii").unpack_from
_read_short = struct.Struct(">h").unpack_from


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
    batch = _alike(body) or _one_by_one(body)
    if batch is None or (b"\0" in b"".join(batch.properties) and any(map(looks_lost, batch.properties))):
        return None
    return batch


def _alike(body: bytes) -> PlainBatch | None:
    """The batch, when bodies have all the same size, and properties have; mostly it is so."""
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
