"""Places in queues as one opaque text, with which a reader goes on later. Anybody may send one, so it is checked."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Annotated

import msgspec

from rocketline.errors import ClientError

MAX_QUEUES = 4096
MAX_CHARS = 512 * 1024

_Offset = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class BadCursor(ClientError, ValueError):
    """A cursor that this version did not make, or not for this topic."""


class Place(msgspec.Struct, array_like=True, frozen=True):
    """A queue, and the offsets from which and before which there is something left to read."""

    broker_name: str
    queue_id: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
    low: _Offset
    high: _Offset


def encode_cursor(places: Iterable[Place]) -> str:
    """
    >>> decode_cursor(encode_cursor([Place("broker-a", 1, 5, 9)]))
    [Place(broker_name='broker-a', queue_id=1, low=5, high=9)]
    """
    return base64.urlsafe_b64encode(msgspec.json.encode(list(places))).decode().rstrip("=")


def decode_cursor(text: str) -> list[Place]:
    if len(text) > MAX_CHARS:
        raise BadCursor(f"a cursor of {len(text)} characters is longer than any of ours")
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        places = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=list[Place])
    except (binascii.Error, UnicodeEncodeError, msgspec.DecodeError, RecursionError) as error:
        raise BadCursor("the cursor is not valid: begin again without one") from error
    if len(places) > MAX_QUEUES:
        raise BadCursor(f"a cursor of {len(places)} queues is longer than any of ours")
    return places
