"""The fields of a received message that are decoded when they are first looked at, if ever: properties, hosts, offset id.

`decode_message` marks them `UNREAD` and keeps what they are made of, in a list, in this order:

    decode_part   properties (bytes)   changes to them   born host (bytes)   store host (bytes)   log offset

None of them can fail: lengths were checked with the record, and bytes that are not UTF-8 are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from rocketline.protocol.message_ids import decode_host, offset_id
from rocketline.protocol.properties import decode_properties

NO_CHANGES: Mapping[str, str | None] = MappingProxyType({})


@lru_cache(maxsize=1024)
def topic_text(raw: bytes) -> str:
    """The topic of v1 records, which has at most 255 bytes: messages of a topic share its text."""
    return raw.decode()


def decode_part(record: list[Any], name: str) -> object:
    if name == "offset_id":
        return offset_id(record[4], record[5])
    if name != "properties":
        return decode_host(record[3] if name == "born_host" else record[4])
    properties = decode_properties(record[1].decode("utf-8", "replace"))
    for changed, value in record[2].items():
        if value is not None:
            properties[changed] = value
        elif changed in properties:
            del properties[changed]
    # Handlers run in threads: should two of them look at the same time, both get the dict that was there first, or one
    # would not see what the other writes. Appending to a list is atomic.
    record.append(properties)
    record[1] = b""
    return record[6]
