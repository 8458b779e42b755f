"""A cluster whose old messages can be deleted at once, and its sources without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema
from tests.support.admin import create_topic, delete_old_files, eventually
from tests.support.patience import PATIENCE_MS, PATIENCE_S

from rocketline.client.bulk.reader import BulkReader
from rocketline.client.bulk.writer import BulkWriter
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.spark.columns import COLUMNS
from rocketline.spark.live.source import LiveSource
from rocketline.testing import LocalCluster

FORGETFUL = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "400",
    "fileReservedTime": "0",
    "flushDiskType": "SYNC_FLUSH",  # a file that is not flushed stays for a while
}
"""Files of a few dozen messages, of which all but the last go when an operator says so."""


@contextmanager
def forgetful_cluster(topic: str) -> Iterator[LocalCluster]:
    """A cluster to use `forget` on, with a topic of two queues; for one test alone.

    A broker that was asked to delete old files goes on doing so every ten seconds for more than three minutes.
    """
    another_hour = f"{(datetime.now().hour + 12) % 24:02}"
    with LocalCluster(config={**FORGETFUL, "deleteWhen": another_hour}) as running:
        create_topic(running.brokers[0].address, topic, 2)
        yield running


def send(
    namesrv: str, topic: str, bodies: Iterator[bytes] | list[bytes], queue_id: int | None = None, **more: Any
) -> None:
    with BulkWriter(namesrv, group="fill", timeout=PATIENCE_S, batch_bytes=16 << 10) as writer:
        queue = None
        if queue_id is not None:
            queue = next(queue for queue in writer.queues(topic) if queue.queue_id == queue_id)
        for body in bodies:
            writer.send(Message(topic, body, **more), queue)
        writer.flush()


def have_queues(cluster: LocalCluster, topic: str, count: int, brokers: int = 1) -> None:
    """Give a topic so many queues on the first broker; the name server knows those of all brokers when this returns."""
    create_topic(cluster.brokers[0].address, topic, count)
    with BulkReader(cluster.namesrv, group="look") as reader:
        eventually(lambda: len(reader.queues(topic)) == count * brokers, f"{count * brokers} queues of {topic}")


def stored(namesrv: str, topic: str) -> list[MessageView]:
    """Everything in a topic, as a consumer sees it."""
    with BulkReader(namesrv, group="check") as reader:
        return [
            message
            for queue in reader.queues(topic)
            for reply in reader.read(queue, *reader.bounds(queue))
            for message in reply.messages()
        ]


def forget(cluster: LocalCluster, queue: MessageQueue) -> int:
    """Have the head of a queue deleted; returns where it begins now."""
    with BulkReader(cluster.namesrv, group="look") as reader:
        before = reader.bounds(queue)[0]

        def is_shorter() -> bool:
            delete_old_files(cluster.brokers[0].address)
            return reader.bounds(queue)[0] > before

        eventually(is_shorter, f"{queue} begins later than at {before}")
        return reader.bounds(queue)[0]


class Stream:
    """A stream driven as Spark does it: positions as JSON texts, partitions in between."""

    def __init__(self, namesrv: str, start: str | None = None, **options: str) -> None:
        self.source = LiveSource({"namesrv": namesrv, "pullTimeoutMs": str(PATIENCE_MS), **options})
        self.reader = self.source.streamReader(from_arrow_schema(COLUMNS))
        self.position = start if start is not None else json.dumps(self.reader.initialOffset())

    def step(self) -> list[dict[str, Any]]:
        """Go on once; the rows between."""
        limit = self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(self.position), limit))
        rows = self.rows(self.position, end)
        self.position = end
        return rows

    def rows(self, start: str, end: str) -> list[dict[str, Any]]:
        parts = self.reader.partitions(json.loads(start), json.loads(end))
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    @property
    def offsets(self) -> Mapping[str, Any]:
        """By broker and queue, of the only topic."""
        found: Mapping[str, Any] = json.loads(self.position)
        (brokers,) = found.values()
        return next(iter(brokers.values()))


@contextmanager
def streaming(namesrv: str, start: str | None = None, **options: str) -> Iterator[Stream]:
    stream = Stream(namesrv, start, **options)
    try:
        yield stream
    finally:
        stream.reader.stop()


def bodies(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["body"].split(b" ")[0]) for row in rows)
