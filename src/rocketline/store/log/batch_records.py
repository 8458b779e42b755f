"""The records of one batch send: measured before room is made for all of them, then written as neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from rocketline._impl import twin
from rocketline.message import TAGS, LogOffset, QueueOffset
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties
from rocketline.protocol.records import BatchItem, LogEntry, encode_record

_LOST_SECTOR = bytes(512)


def looks_lost(properties: bytes) -> bool:
    """Whether properties could be taken for ones that never reached the disk, when the log is read after a crash."""
    return properties[-1:] == b"\0" or _LOST_SECTOR in properties


@twin
def measure_batch(items: Sequence[BatchItem], shared_bytes: int) -> tuple[int, int] | None:
    """(bytes of all bodies, bytes of all records); None when the properties of one cannot be stored.

    `shared_bytes` is what each record has besides body and properties.
    """
    bodies = total = 0
    for _, body, properties in items:
        if len(properties) > MAX_PROPERTIES_BYTES or looks_lost(properties):
            return None
        bodies += len(body)
        total += shared_bytes + len(body) + len(properties)
    return bodies, total


@twin
def write_batch(
    view: memoryview,
    position: int,
    total: int,
    items: Sequence[BatchItem],
    numbered: bool,
    entry_type: type[LogEntry],
    topic: str,
    magic: int,
    topic_bytes: bytes,
    queue_id: int,
    queue_offset: int,
    log_offset: int,
    flag: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    store_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_log_offset: int,
) -> list[LogEntry]:
    """Write the records, which take `total` bytes, and return their entries; each item has its own flag."""
    records: list[bytes] = []
    entries: list[LogEntry] = []
    for flag, body, raw in items:
        record = encode_record(
            magic, topic_bytes, queue_id, queue_offset, log_offset, body, raw, flag, sys_flag, born_ms, born_host,
            store_ms, store_host, reconsume_times, prepared_log_offset,
        )  # fmt: skip
        size = len(record)
        properties = decode_properties(raw.decode("utf-8", "replace"))
        tags = properties.get(TAGS)
        entries.append(
            entry_type(
                LogOffset(log_offset), size, topic, queue_id, QueueOffset(queue_offset), tag_hash(tags) if tags else 0,
                store_ms, sys_flag, properties,
            )
        )  # fmt: skip
        records.append(record)
        log_offset += size
        queue_offset += numbered
    view[position : position + total] = b"".join(records)
    return entries
