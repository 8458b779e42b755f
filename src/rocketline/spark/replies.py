"""Replies of a bulk reader, prepared for decoding; needs no Spark.

A broker may answer with a few messages at a time, so small replies are joined before they are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from rocketline.client.bulk.range import BulkReply

JOINED_BYTES = 4 << 20


def joined_replies(replies: Iterable[BulkReply], enough: int = JOINED_BYTES) -> Iterator[BulkReply]:
    """The replies of one queue; consecutive ones with the same offset delta are joined to about `enough` bytes."""
    held: list[BulkReply] = []
    size = 0
    for reply in replies:
        if held and (size >= enough or reply.offset_delta != held[0].offset_delta):
            yield _joined(held)
            held, size = [], 0
        held.append(reply)
        size += len(reply.records)
    if held:
        yield _joined(held)


def _joined(held: list[BulkReply]) -> BulkReply:
    first = held[0]
    if len(held) == 1:
        return first
    records = memoryview(b"".join([reply.records for reply in held]))
    return BulkReply(first.queue, first.first_offset, held[-1].next_offset, records, first.offset_delta)


def with_queue_offsets(batch: pa.RecordBatch, delta: int) -> pa.RecordBatch:
    """The batch with the offsets of the queue: for a static topic they differ by `delta` from those in the records."""
    if not delta or "queueOffset" not in batch.schema.names:
        return batch
    at = batch.schema.get_field_index("queueOffset")
    return batch.set_column(at, "queueOffset", pc.add(batch.column(at), delta))
