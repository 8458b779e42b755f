"""Apache's Java clients produce on the cluster and get the same messages back, compared field by field.

Run with ROCKETLINE_INTEROP_TARGET=apache the very same tests hold for Apache's own broker.
"""

from __future__ import annotations

import random

import pytest
from tests.support.comparing import (
    ClusterFacts,
    assert_compressed,
    assert_same_batch,
    assert_same_message,
    assert_same_records,
    assert_uncompressed,
)
from tests.support.java_client import Outgoing
from tests.support.java_driver import CLIENT_VERSIONS
from tests.support.reading import eventually, lite_pull_all, push_all, read_topic

pytestmark = pytest.mark.interop

CODECS = ["ZLIB", "LZ4", "ZSTD"]

# Beyond the basic plane, right to left, combining, quotes and breaks: what an encoding may trip over.
UNICODE = {
    "ключ": "значение",
    "名前": "日本語テキスト",
    "emoji": "🚀👩‍🚀",
    "rtl": "שלום עולם",
    "combining": "e\u0301",
    "quotes": "\"double\" 'single' \\back\\",
    "breaks": "line one\nline two\ttab",
    "json": '{"a":[1,2,{"b":null}]}',
    "blank inside": "a = b & c",
}


def ordinary_messages(topic: str) -> list[Outgoing]:
    return [
        Outgoing(topic, b"x"),
        Outgoing(topic, bytes(range(256)), tags="TagA", keys=["order-1", "user-7"], flag=7),
        Outgoing(topic, b"with properties", tags="TagB", properties={"colour": "blue", "size": "42"}),
        Outgoing(topic, b"negative flag, one key", keys=["only"], flag=-1),
        Outgoing(topic, b"need not wait", wait_store=False),
    ]


def by_id(messages, sent):
    return {receipt.msg_id: (message, receipt) for message, receipt in zip(messages, sent, strict=True)}


@pytest.mark.parametrize("mode", ["sync", "async", "oneway"])
@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_every_way_of_sending(version, mode, java_clients, cluster, name):
    java, topic = java_clients(version), name("modes")
    java.create_topic(cluster.namesrv, topic)
    messages = ordinary_messages(topic)
    with java.producer(cluster.namesrv, name("pg")) as producer:
        expected = by_id(messages, [producer.send_message(message, mode=mode) for message in messages])

    pushed = push_all(java, cluster.namesrv, name("push"), topic, len(messages))
    pulled = lite_pull_all(java, cluster.namesrv, name("lite"), topic, len(messages))

    facts = ClusterFacts.ask(java, cluster.namesrv)
    for seen in pushed:
        assert_same_message(seen, *expected[seen.msg_id], facts)
        assert_uncompressed(seen)
    assert_same_records(pushed, pulled)


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_batch(version, java_clients, cluster, name):
    java, topic = java_clients(version), name("batch")
    java.create_topic(cluster.namesrv, topic)
    messages = [
        Outgoing(topic, f"body {i}".encode(), tags=f"T{i % 3}", keys=[f"k{i}"], flag=i, properties={"i": str(i)})
        for i in range(10)
    ]
    with java.producer(cluster.namesrv, name("pg")) as producer:
        batch = producer.send_batch(messages)

    pushed = push_all(java, cluster.namesrv, name("push"), topic, len(messages))
    pulled = lite_pull_all(java, cluster.namesrv, name("lite"), topic, len(messages))

    facts = ClusterFacts.ask(java, cluster.namesrv)
    assert_same_batch(pushed, messages, batch.receipt, list(batch.messages), facts)
    for seen in pushed:
        # Stored as the client encoded them, and 4.9.7 leaves out the last separator.
        assert_uncompressed(seen, trailing_separator=version != "4.9.7")
    assert_same_records(pushed, pulled)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_compressed(version, codec, java_clients, cluster, name):
    java, topic = java_clients(version), name("compressed")
    java.create_topic(cluster.namesrv, topic)
    noise = random.Random(17).randbytes(30_000)
    messages = [
        Outgoing(topic, b"compressible " * 10_000, tags="text", keys=["k"], properties={"p": "v"}),
        Outgoing(topic, b"z" * 4096, tags="at the threshold"),
        Outgoing(topic, b"z" * 4095, tags="below"),
        Outgoing(topic, noise, tags="noise"),
    ]
    with java.producer(cluster.namesrv, name("pg"), compress_type=codec) as producer:
        expected = by_id(messages, [producer.send_message(message) for message in messages])

    pushed = push_all(java, cluster.namesrv, name("push"), topic, len(messages))
    pulled = lite_pull_all(java, cluster.namesrv, name("lite"), topic, len(messages))

    facts = ClusterFacts.ask(java, cluster.namesrv)
    for seen in pushed:
        assert_same_message(seen, *expected[seen.msg_id], facts)
        if seen.tags == "below":
            assert_uncompressed(seen)
        elif seen.tags != "noise":
            assert_compressed(seen, codec, version)
    assert_same_records(pushed, pulled)


@pytest.mark.parametrize("serialize", ["JSON", "ROCKETMQ"])
@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_unicode_in_both_header_encodings(version, serialize, java_clients, cluster, name):
    java, topic = java_clients(version, serialize), name("unicode")
    java.create_topic(cluster.namesrv, topic)
    messages = [
        Outgoing(topic, "тело 🚀".encode(), tags="标签", keys=["ключ", "鍵"], properties=UNICODE),
        *(Outgoing(topic, value.encode(), properties={key: value}) for key, value in UNICODE.items()),
    ]
    with java.producer(cluster.namesrv, name("pg")) as producer:
        expected = by_id(messages, [producer.send_message(message) for message in messages])

    pushed = push_all(java, cluster.namesrv, name("push"), topic, len(messages))
    pulled = lite_pull_all(java, cluster.namesrv, name("lite"), topic, len(messages))

    facts = ClusterFacts.ask(java, cluster.namesrv)
    for seen in pushed:
        assert_same_message(seen, *expected[seen.msg_id], facts)
        assert_uncompressed(seen)
    assert_same_records(pushed, pulled)


@pytest.mark.parametrize("reader", CLIENT_VERSIONS)
def test_a_version_reads_what_every_version_wrote(reader, java_clients, cluster, name):
    java, topic = java_clients(reader), name("across")
    java.create_topic(cluster.namesrv, topic)
    expected = {}
    for version, codec in zip(CLIENT_VERSIONS, CODECS, strict=True):
        messages = [Outgoing(topic, b"written " * 1000, tags=codec), *ordinary_messages(topic)]
        with java_clients(version).producer(cluster.namesrv, name("pg"), compress_type=codec) as producer:
            expected |= by_id(messages, [producer.send_message(message) for message in messages])

    pushed = push_all(java, cluster.namesrv, name("push"), topic, len(expected))
    pulled = lite_pull_all(java, cluster.namesrv, name("lite"), topic, len(expected), subscribe=True)

    facts = ClusterFacts.ask(java, cluster.namesrv)
    for seen in pushed:
        assert_same_message(seen, *expected[seen.msg_id], facts)
        if seen.tags in CODECS:
            assert_compressed(seen, seen.tags, reader)
    assert_same_records(pushed, pulled)
    assert_same_records(pushed, read_topic(java, cluster.namesrv, topic))


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_a_failed_message_comes_again_and_ends_in_the_dead_letters(version, java_clients, cluster, name):
    """The first failure asks for a redelivery after a second; with a limit of one redelivery the second is the last."""
    java, topic, group = java_clients(version), name("retry"), name("push")
    java.create_topic(cluster.namesrv, topic)
    with java.producer(cluster.namesrv, name("pg")) as producer:
        sent = producer.send(topic, b"try me", tags="t", keys=["k"])
    with java.push_consumer(
        cluster.namesrv, group, {topic: "*"}, fail_first=2, retry_level=1, max_reconsume_times=1
    ) as consumer:
        deliveries = consumer.poll(2)
        assert [(seen.msg_id, seen.reconsume_times, seen.topic) for seen in deliveries] == [
            (sent.msg_id, 0, topic),
            (sent.msg_id, 1, topic),
        ]
        assert deliveries[1].properties["RETRY_TOPIC"] == topic
        assert deliveries[1].properties["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id
        dead_topic = f"%DLQ%{group}"
        assert eventually(lambda: dead_topic in java.topic_list(cluster.namesrv), True)
        assert eventually(lambda: len(read_topic(java, cluster.namesrv, dead_topic)), 1) == 1
        dead = read_topic(java, cluster.namesrv, dead_topic)[0]
    assert (dead.msg_id, dead.body, dead.reconsume_times) == (sent.msg_id, b"try me", 2)
    assert (dead.properties["RETRY_TOPIC"], dead.properties["ORIGIN_MESSAGE_ID"]) == (topic, sent.offset_msg_id)
