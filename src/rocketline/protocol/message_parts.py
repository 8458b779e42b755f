"""The fields of a received message that are decoded on first access: properties, hosts, offset id.

`decode_message` marks them `UNREAD` and keeps their raw parts in a list, in this order:

    decode_part   properties (bytes)   changes to them   born host (bytes)   store host (bytes)   log offset

Decoding cannot fail: lengths were checked with the record, and bytes that are not UTF-8 are replaced.
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
    """The topic of a v1 record, at most 255 bytes; cached, so that the messages of a topic share one text."""
    return raw.decode()


def decode_part(record: list[Any], name: str) -> object:
    """The value of the field `name`."""
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
    # Handlers run in threads: if two of them decode at the same time, both must get the same dict, or one would not see
    # what the other writes. Appending to a list is atomic, and the first dict wins.
    record.append(properties)
    record[1] = b""
    return record[6]
