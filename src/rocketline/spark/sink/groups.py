"""Which rows travel together: rows of one topic and queue, in their order. Rows without a queue of their own go together.

Rows with a delay or a time of delivery, and rows of retry topics, cannot be part of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rocketline.message import MessageQueue
from rocketline.protocol.names import is_derived
from rocketline.spark.sink.encoding import text_hashes
from rocketline.spark.sink.rows import RowBatch

Numbers = np.ndarray[Any, Any]
QueuesOf = Callable[[str], Sequence[MessageQueue]]

NO_QUEUE = -1


class RowGroup(NamedTuple):
    topic: str
    queue: MessageQueue | None
    ordered: bool
    alone: bool
    """Each row is a request of its own."""
    rows: Numbers
    """int32, in order."""


def grouped(batch: RowBatch, queues_of: QueuesOf) -> Iterator[RowGroup]:
    """The rows of a batch by where they go; InvalidMessage names a row without topic, or with a queue that is not there."""
    topics, of_topic = _topics(batch)
    alone = _alone(batch, topics, of_topic)
    queues, slots, ordered = _queues(batch, topics, of_topic, queues_of)
    if len(topics) == 1 and not queues and not alone.any():
        yield RowGroup(topics[0], None, False, False, np.arange(batch.rows, dtype=np.int32))
        return
    width = max((len(found) for found in queues), default=0) + 1
    codes = ((of_topic * 2 + alone) * width + slots + 1) * 2 + ordered
    rows = np.argsort(codes, kind="stable").astype(np.int32)
    starts = np.flatnonzero(np.diff(codes[rows], prepend=-1))
    for part in np.split(rows, starts[1:]):
        first = part[0]
        topic, slot = int(of_topic[first]), int(slots[first])
        queue = queues[topic][slot] if slot != NO_QUEUE else None
        yield RowGroup(topics[topic], queue, bool(ordered[first]), bool(alone[first]), part)


def _topics(batch: RowBatch) -> tuple[list[str], Numbers]:
    """(all topics, for each row which of them)."""
    if batch.topic is not None:
        return [batch.topic], np.zeros(batch.rows, np.int64)
    topics, of_topic = batch.names("topic")
    missing = of_topic < 0
    if missing.any():
        raise batch.wrong(int(missing.argmax()), "has no topic: filter such rows out, or fill it in")
    return topics, of_topic


def _alone(batch: RowBatch, topics: Sequence[str], of_topic: Numbers) -> Numbers:
    alone = np.array([is_derived(topic) for topic in topics], bool)[of_topic]
    for name in ("delayMs", "deliverAt"):
        if (times := batch.numbers(name)) is not None:
            alone |= times[1]
    return alone


def _queues(
    batch: RowBatch, topics: Sequence[str], of_topic: Numbers, queues_of: QueuesOf
) -> tuple[list[Sequence[MessageQueue]], Numbers, Numbers]:
    """(the queues of each topic, for each row which of them or NO_QUEUE, which rows keep their order)."""
    slots, ordered = np.full(batch.rows, NO_QUEUE, np.int64), np.zeros(batch.rows, bool)
    keys, chosen = batch.columns.sharding_key, batch.numbers("queueId")
    if keys is None and chosen is None:
        return [], slots, ordered
    queues = [queues_of(topic) for topic in topics]
    if keys is not None:
        ordered = np.ones(batch.rows, bool) if keys.valid is None else np.asarray(keys.valid).astype(bool)
        hashes = np.abs(np.frombuffer(text_hashes(keys), np.int32).astype(np.int64))
        counts = np.array([len(found) for found in queues], np.int64)[of_topic]
        slots = np.where(ordered, hashes % counts, NO_QUEUE)
    if chosen is not None:
        numbers, has_one = chosen
        slots = np.where(has_one, _chosen_slots(batch, of_topic, numbers, has_one, queues), slots)
    return queues, slots, ordered


def _chosen_slots(
    batch: RowBatch, of_topic: Numbers, numbers: Numbers, has_one: Numbers, queues: Sequence[Sequence[MessageQueue]]
) -> Numbers:
    """The places of queues that rows name by number and broker."""
    names: list[str] = []
    brokers = np.full(batch.rows, -1, np.int64)
    if "brokerName" in batch.values:
        names, brokers = batch.names("brokerName")
    wanted = np.stack([of_topic, numbers, brokers, has_one], axis=1)
    different, first, which = np.unique(wanted, axis=0, return_index=True, return_inverse=True)
    places = [
        _place(batch, int(row), int(number), names[broker] if broker >= 0 else None, queues[topic]) if named else 0
        for row, (topic, number, broker, named) in zip(first, different)
    ]
    return np.array(places, np.int64)[which.reshape(-1)]


def _place(batch: RowBatch, row: int, number: int, broker: str | None, queues: Sequence[MessageQueue]) -> int:
    found = [
        place for place, queue in enumerate(queues) if queue.queue_id == number and broker in (None, queue.broker_name)
    ]
    if len(found) != 1:
        problem = "is on several brokers: add a column 'brokerName'" if found else "does not exist"
        raise batch.wrong(
            row,
            f"column 'queueId': queue {number} of topic {queues[0].topic!r} {problem}; there are "
            f"{', '.join(map(str, queues[:10]))}",
        )
    return found[0]
