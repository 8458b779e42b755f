"""Fill a broker with messages of every kind a Java client sends, for tests that hand a store to another broker."""

from __future__ import annotations

from .java_client import JavaClient, Outgoing
from .reading import await_listed

CODECS = ("ZLIB", "LZ4", "ZSTD")
LONGEST_TOPIC = 127


def fill(java: JavaClient, namesrv: str, prefix: str, plain_count: int = 200) -> dict[str, int]:
    """Send to several topics whose names start with `prefix`; returns how many messages each of them got.

    Among them: single messages and batches, one to eight queues, bodies from one byte to 100 KB, each codec, keys,
    tags, unicode properties, a topic name of the longest legal length.
    """
    counts = {}
    for queues, topic in (
        (1, f"{prefix}_one"),
        (4, f"{prefix}_four"),
        (8, f"{prefix}_long_".ljust(LONGEST_TOPIC, "x")),
    ):
        java.create_topic(namesrv, topic, queues)
        counts[topic] = _fill_topic(java, namesrv, topic, plain_count)
        await_listed(java, namesrv, topic, counts[topic])
    return counts


def _fill_topic(java: JavaClient, namesrv: str, topic: str, plain_count: int) -> int:
    special = [
        Outgoing(topic, b"x"),
        Outgoing(topic, bytes(100_000), keys=["zeros"]),
        Outgoing(topic, b"properties", tags="TagA", keys=["k1", "k2"], flag=9, properties={"ключ": "🚀", "a": "b"}),
        Outgoing(topic, b"unwaited", wait_store=False),
    ]
    batch = [Outgoing(topic, b"in a batch %d" % i, tags="batch", keys=[f"b{i}"]) for i in range(10)]
    with java.producer(namesrv, "filling", compress_over=1 << 20) as producer:
        for message in special:
            producer.send_message(message)
        producer.send_batch(batch)
        report = producer.send_many(topic, plain_count, threads=4, prefix="plain ", size=100, tags="plain")
        assert report.failed == 0, report.failures
    for codec in CODECS:
        with java.producer(namesrv, "filling", compress_type=codec) as producer:
            producer.send(topic, b"compressible " * 1000, tags=codec, keys=[codec])
    return len(special) + len(batch) + plain_count + len(CODECS)
