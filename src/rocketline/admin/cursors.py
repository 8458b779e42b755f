"""Places in queues as one opaque text, with which a reader goes on later. Anybody may send one, so it is checked."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from typing import Annotated

import msgspec

from rocketline.errors import ClientError

MAX_QUEUES = 4096
MAX_CHARS = 64 * 1024
MAX_BYTES = 1 << 20
"""Of what a cursor says, before it was made smaller."""

_QueueId = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class BadCursor(ClientError, ValueError):
    """A cursor that this version did not make, or not for this topic."""


class Place(msgspec.Struct, frozen=True):
    """A queue, and the offsets from which and before which there is something left to read."""

    broker_name: str
    queue_id: int
    low: int
    high: int


class _OfBroker(msgspec.Struct, array_like=True):
    """Columns instead of rows, and lengths instead of ends: what repeats takes next to no space then."""

    broker_name: str
    queue_ids: list[_QueueId]
    lows: list[_Offset]
    lengths: list[_Offset]


def encode_cursor(places: Iterable[Place]) -> str:
    """Some 8 characters a queue: browsers send cursors in URLs and headers.

    >>> decode_cursor(encode_cursor([Place("broker-a", 1, 5, 9)]))
    [Place(broker_name='broker-a', queue_id=1, low=5, high=9)]
    """
    table: dict[str, _OfBroker] = {}
    for place in places:
        columns = table.setdefault(place.broker_name, _OfBroker(place.broker_name, [], [], []))
        columns.queue_ids.append(place.queue_id)
        columns.lows.append(place.low)
        columns.lengths.append(place.high - place.low)
    return base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(list(table.values())), 9)).decode().rstrip("=")


def decode_cursor(text: str) -> list[Place]:
    if len(text) > MAX_CHARS:
        raise BadCursor(f"a cursor of {len(text)} characters is longer than any of ours")
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        inflating = zlib.decompressobj()
        content = inflating.decompress(base64.b64decode(padded, altchars=b"-_", validate=True), MAX_BYTES)
        table = msgspec.json.decode(content, type=list[_OfBroker])
        places = [Place(item.broker_name, *row) for item in table for row in _rows(item)]
    except (ValueError, msgspec.DecodeError, zlib.error, RecursionError) as error:
        raise BadCursor("the cursor is not valid: begin again without one") from error
    if not inflating.eof or len(places) > MAX_QUEUES:
        raise BadCursor("the cursor is longer than any of ours: begin again without one")
    return places


def _rows(item: _OfBroker) -> list[tuple[int, int, int]]:
    """(queue, low, high) of each queue; ValueError when the columns do not fit."""
    return [
        (queue_id, low, low + length)
        for queue_id, low, length in zip(item.queue_ids, item.lows, item.lengths, strict=True)
    ]
