"""Replies of a bulk reader, prepared for decoding; needs no Spark.

A broker may answer with a few messages at a time, and a queue may have only a few. So small replies are joined before they
are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rocketline.client.bulk.range import BulkReply

JOINED_BYTES = 4 << 20


def together(replies: Iterable[BulkReply], enough: int = JOINED_BYTES) -> Iterator[list[BulkReply]]:
    """Consecutive replies of one broker that have the same offset delta, about `enough` bytes of them."""
    held: list[BulkReply] = []
    size = 0
    for reply in replies:
        if held and (size >= enough or _kind(reply) != _kind(held[0])):
            yield held
            held, size = [], 0
        held.append(reply)
        size += len(reply.records)
    if held:
        yield held


def joined(replies: Sequence[BulkReply]) -> BulkReply:
    """Replies of `together` as one; its queue and offsets are right when all are of one queue."""
    first = replies[0]
    if len(replies) == 1:
        return first
    records = memoryview(b"".join([reply.records for reply in replies]))
    return BulkReply(first.queue, first.first_offset, replies[-1].next_offset, records, first.offset_delta)


def _kind(reply: BulkReply) -> tuple[str, int]:
    return reply.queue.broker_name, reply.offset_delta


def with_queue_offsets(batch: pa.RecordBatch, delta: int) -> pa.RecordBatch:
    """The batch with the offsets of the queue: for a static topic they differ by `delta` from those in the records."""
    if not delta or "queueOffset" not in batch.schema.names:
        return batch
    at = batch.schema.get_field_index("queueOffset")
    return batch.set_column(at, "queueOffset", pc.add(batch.column(at), delta))
