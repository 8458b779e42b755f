"""Timer messages between Apache and us: Java on our broker, our client on Apache's, and folders with pending timers."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.apache import QUICK_START, TEST_CONF, ApacheCluster, server_coordinates
from tests.support.java import require_java
from tests.support.java_driver import JavaCallError
from tests.support.reading import push_all

from rocketline.client import Producer
from rocketline.errors import InvalidMessage, MessageIllegal
from rocketline.message import Message
from rocketline.testing import LocalCluster

pytestmark = pytest.mark.interop

RECALL = {"recallMessageEnable": "true"}
LEVELS = {"messageDelayLevel": " ".join(["1s"] * 18)}
FILES = {
    key: TEST_CONF[key]
    for key in (
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "mappedFileSizeTimerLog",
        "maxHashSlotNum",
        "maxIndexNum",
    )
}


def assert_on_time(seen, deliver_ms):
    """Never before its time. How late depends on a busy machine, so the copy itself is asked: it was due in that second."""
    assert seen.store_timestamp >= deliver_ms
    assert int(seen.properties["TIMER_OUT_MS"]) == (deliver_ms - 1) // 1000 * 1000
    assert int(seen.properties["TIMER_DEQUEUE_MS"]) >= int(seen.properties["TIMER_OUT_MS"]) + 1000


@pytest.fixture(scope="module")
def with_recall():
    with LocalCluster(config=RECALL | LEVELS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def apache_with_recall(tmp_path_factory):
    require_java(*server_coordinates("5.4.0"))
    cluster = ApacheCluster(
        tmp_path_factory.mktemp("timers"), broker_conf=RECALL | LEVELS, jvm_options=QUICK_START
    ).start()
    yield cluster
    cluster.kill()


@pytest.mark.parametrize("serialize", ["JSON", "ROCKETMQ"])
@pytest.mark.parametrize("version", ["5.5.0", "5.4.0"])
def test_java_timer_messages_fire_in_their_second(version, serialize, java_clients, with_recall, name):
    java, topic, namesrv = java_clients(version, serialize), name("timer"), with_recall.namesrv
    java.create_topic(namesrv, topic)
    deliver_ms = round(time.time() * 1000) + 2_300
    with java.producer(namesrv, name("pg")) as producer:
        before_ms = round(time.time() * 1000)
        by_delay = producer.send(topic, b"delay", delay_ms=1500, tags="T")
        after_ms = round(time.time() * 1000)
        producer.send(topic, b"at", deliver_ms=deliver_ms)
        recalled = producer.send(topic, b"recalled", delay_ms=2500)
        assert producer.recall(topic, recalled.recall_handle) == recalled.msg_id
        producer.send(topic, b"past", deliver_ms=before_ms - 5_000)
        with pytest.raises(JavaCallError) as refused:
            producer.send(topic, b"too far", delay_ms=4 * 24 * 3600 * 1000)
        assert refused.value.code == 13
        producer.send(topic, b"last", delay_ms=4500)
    found = {message.body: message for message in push_all(java, namesrv, name("group"), topic, 4)}
    assert found.keys() == {b"delay", b"at", b"past", b"last"}
    assert found[b"delay"].msg_id == by_delay.msg_id
    assert found[b"delay"].tags == "T"
    assert found[b"delay"].store_timestamp >= before_ms + 1500
    assert int(found[b"delay"].properties["TIMER_OUT_MS"]) < after_ms + 1500
    assert_on_time(found[b"at"], deliver_ms)


def test_java_is_refused_a_recall_that_is_not_allowed_or_too_late(java_clients, with_recall, cluster, name):
    java, topic = java_clients("5.4.0"), name("refused")
    for namesrv in (cluster.namesrv, with_recall.namesrv):
        java.create_topic(namesrv, topic)
    with java.producer(cluster.namesrv, name("pg")) as producer:
        sent = producer.send(topic, b"x", delay_ms=60_000)
        with pytest.raises(JavaCallError) as refused:
            producer.recall(topic, sent.recall_handle)
        assert refused.value.code == 16
    with java.producer(with_recall.namesrv, name("pg")) as producer:
        sent = producer.send(topic, b"x", delay_ms=100)
        push_all(java, with_recall.namesrv, name("group"), topic, 1)
        if sent.recall_handle is not None:
            with pytest.raises(JavaCallError) as refused:
                producer.recall(topic, sent.recall_handle)
            assert refused.value.code == 604


def test_our_producer_sets_times_and_recalls_on_apache(java_clients, apache_with_recall, name):
    java, topic, namesrv = java_clients("5.4.0"), name("ours"), apache_with_recall.namesrv
    java.create_topic(namesrv, topic)
    deliver_at = datetime.now(UTC) + timedelta(seconds=2)

    async def send():
        async with Producer(namesrv, group=name("pg")) as producer:
            await producer.send(Message(topic, b"delay", delay=timedelta(seconds=1.5)))
            await producer.send(Message(topic, b"at", deliver_at=deliver_at))
            receipt = await producer.send(Message(topic, b"recalled", delay=timedelta(seconds=3)))
            assert await producer.recall(receipt.recall_handle) == receipt.message_id
            with pytest.raises(MessageIllegal):
                await producer.send(Message(topic, b"too far", delay=timedelta(days=4)))
            await producer.send(Message(topic, b"last", delay=timedelta(seconds=5)))
            with pytest.raises(InvalidMessage, match="no recall handle"):
                await producer.recall(receipt.recall_handle.replace("djEg", "djIg"))

    asyncio.run(send())
    found = {message.body: message for message in push_all(java, namesrv, name("group"), topic, 3)}
    assert found.keys() == {b"delay", b"at", b"last"}
    assert found[b"at"].store_timestamp >= deliver_at.timestamp() * 1000


@pytest.mark.parametrize("on", ["with_recall", "apache_with_recall"])
def test_all_eighteen_levels(on, request, java_clients, name):
    """From Java and from us; each level a second long, in virtual time they have their own lengths."""
    namesrv, java, topic = request.getfixturevalue(on).namesrv, java_clients("5.4.0"), name("levels")
    java.create_topic(namesrv, topic)
    levels = range(1, 19)
    started_ms = round(time.time() * 1000)
    with java.producer(namesrv, name("pg")) as producer:
        for level in levels:
            producer.send(topic, b"java %d" % level, delay_level=level)

    async def send():
        async with Producer(namesrv, group=name("pg")) as producer:
            for level in levels:
                await producer.send(Message(topic, b"ours %d" % level, delay_level=level))

    asyncio.run(send())
    found = {message.body: message for message in push_all(java, namesrv, name("group"), topic, 36)}
    for sender in (b"java", b"ours"):
        for level in levels:
            seen = found[b"%s %d" % (sender, level)]
            assert (seen.properties["DELAY"], seen.properties["REAL_TOPIC"]) == (str(level), topic)
            assert seen.store_timestamp >= max(started_ms, seen.born_timestamp) + 1000


def test_pending_timers_travel_from_us_to_apache_and_back(java_clients, tmp_path, name):
    """Each broker fires what the other took in, keeps to the recalls it answered, and repeats nothing."""
    java, topic, data = java_clients("5.4.0"), name("travel"), tmp_path / "travelling"
    with LocalCluster(data=data, config=FILES | RECALL) as ours:
        java.create_topic(ours.namesrv, topic)
        with java.producer(ours.namesrv, name("pg")) as producer:
            producer.send(topic, b"fired here", delay_ms=1000)
            first = producer.send(topic, b"for apache", delay_ms=10_000)
            recalled = producer.send(topic, b"recalled before", delay_ms=10_000)
            assert producer.recall(topic, recalled.recall_handle) == recalled.msg_id
        push_all(java, ours.namesrv, name("group"), topic, 1)
        java.release(ours.namesrv)

    with ApacheCluster(tmp_path / "apache", store=data, broker_conf=RECALL, jvm_options=QUICK_START) as apache:
        with java.producer(apache.namesrv, name("pg")) as producer:
            second = producer.send(topic, b"for us", delay_ms=50_000)
            late = producer.send(topic, b"recalled at apache", delay_ms=50_000)
            assert producer.recall(topic, late.recall_handle) == late.msg_id
        found = push_all(java, apache.namesrv, name("group"), topic, 2)
        assert [message.msg_id for message in found if message.body == b"for apache"] == [first.msg_id]
        java.release(apache.namesrv)

    with LocalCluster(data=data, config=FILES | RECALL) as ours:
        with java.push_consumer(ours.namesrv, name("group"), {topic: "*"}) as consumer:
            found = consumer.poll(3)
        bodies = [message.body for message in found]
        assert sorted(bodies) == [b"fired here", b"for apache", b"for us"]
        assert_on_time(
            found[bodies.index(b"for us")], int(found[bodies.index(b"for us")].properties["TIMER_OUT_MS"]) + 1
        )
        assert found[bodies.index(b"for us")].msg_id == second.msg_id
        java.release(ours.namesrv)
