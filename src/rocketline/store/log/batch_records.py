"""The records of one batch send: measured before room is made for all of them, then written as neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from rocketline._impl import compiled
from rocketline.message import TAGS, LogOffset, QueueOffset
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties
from rocketline.protocol.record_layout import TRANSACTION_PREPARED
from rocketline.protocol.records import BatchItem, LogEntry, RecordHead, encode_record

_LOST_SECTOR = bytes(512)


def looks_lost(properties: bytes) -> bool:
    """Whether properties could be taken for ones that never reached the disk, when the log is read after a crash."""
    return properties[-1:] == b"\0" or _LOST_SECTOR in properties


@compiled
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


@compiled
def write_batch(
    view: memoryview, head: RecordHead, items: Sequence[BatchItem], topic: str, entry_type: type[LogEntry]
) -> list[LogEntry]:
    """Fill the view with the records of a batch; their entries. `head` is that of the first record.

    Each item has its own flag; prepared messages have no numbers.
    """
    records: list[bytes] = []
    entries: list[LogEntry] = []
    _, _, queue_id, queue_offset, log_offset, _, sys_flag, _, _, store_ms, *_ = head
    for flag, body, raw in items:
        record = encode_record(head._replace(flag=flag, queue_offset=queue_offset, log_offset=log_offset), body, raw)
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
        queue_offset += not sys_flag & TRANSACTION_PREPARED
    view[:] = b"".join(records)
    return entries
