"""SQL92 across the border: Java consumers on our broker, ours on Apache's, and filter bitmaps either broker wrote."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.support.apache import QUICK_START, TEST_CONF, ApacheCluster
from tests.support.java_client import Outgoing
from tests.support.java_driver import JavaCallError
from tests.support.patience import PATIENCE_S

from rocketline.admin import Admin
from rocketline.client import ConsumeFrom, PushConsumer, Sql
from rocketline.errors import BrokerError, RocketlineError
from rocketline.protocol.bloom import BloomFilter, has_bits
from rocketline.store.queue.ext_queue import ADDRESS_MAX
from rocketline.testing import LocalCluster

pytestmark = pytest.mark.interop

SIZES = {
    key: TEST_CONF[key]
    for key in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
}
BITMAPS = {"enablePropertyFilter": "true", "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}
EXPRESSION = "n BETWEEN 3 AND 7 AND (colour = 'red' OR TAGS IN ('a', 'b')) OR n NOT BETWEEN 0 AND 28"
COUNT = 30


def outgoing(topic, number):
    colour = ("red", "green", "blue")[number % 3]
    return Outgoing(topic, b"%d" % number, tags="abcd"[number % 4], properties={"n": str(number), "colour": colour})


def wanted(numbers):
    return [n for n in numbers if (3 <= n <= 7 and (n % 3 == 0 or n % 4 < 2)) or not 0 <= n <= 28]


def send(java, namesrv, topic, first=0, count=COUNT):
    with java.producer(namesrv, "writers") as producer:
        for number in range(first, first + count):
            message = outgoing(topic, number)
            producer.send(message.topic, message.body, tags=message.tags, properties=message.properties)


def numbers(messages):
    return sorted(int(message.body) for message in messages)


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
def test_a_java_consumer_selects_on_our_broker(java_clients, rocketline, name, version):
    java, namesrv, topic = java_clients(version), rocketline.namesrv, name("sql")
    java.create_topic(namesrv, topic, 2)
    send(java, namesrv, topic)
    expected = wanted(range(COUNT))
    with java.push_consumer(
        namesrv, name("group"), {}, sql={topic: EXPRESSION}, fail_first=1, retry_level=1
    ) as consumer:
        # Each fails once and comes back through the retry topic, where no filter is in its way.
        deliveries = consumer.poll(2 * len(expected))
        assert sorted(numbers(deliveries)) == sorted(expected * 2)
        send(java, namesrv, topic, first=100, count=5)
        assert set(numbers(consumer.poll(10))) == set(range(100, 105))


@pytest.mark.parametrize("expression", ["n > 'x'", "(n = 1", "n ! 1"])
def test_a_java_consumer_is_told_of_a_wrong_expression(java_clients, rocketline, name, expression):
    java, namesrv, topic = java_clients("5.4.0"), rocketline.namesrv, name("sql")
    java.create_topic(namesrv, topic, 1)
    with pytest.raises(JavaCallError) as caught:
        java.push_consumer(namesrv, name("group"), {}, sql={topic: expression}).stop()
    assert "character" in str(caught.value)


async def consume(namesrv, group, topic, expression, count):
    found = []
    done = asyncio.Event()

    async def handle(message):
        found.append(int(message.body))
        if len(found) >= count:
            done.set()

    async with PushConsumer(namesrv, group=group, from_where=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic, Sql(expression), handle)
        await consumer.start()
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()
    return sorted(found)


async def until_known(namesrv, group, topic):
    """A heartbeat of Java's client may fail unseen on a busy machine; messages sent before the next one are not judged."""
    async with Admin(namesrv) as admin, asyncio.timeout(PATIENCE_S):
        while True:
            try:
                (broker,) = await admin.brokers()
                if topic in (await broker.consumers(group)).subscription_table:
                    return
            except RocketlineError:
                pass  # nobody of this group is connected yet
            await asyncio.sleep(0.1)


def extended(cluster, topic):
    """(number of the message, store time, bitmap) of every unit of our broker's queue 0."""
    store = cluster.brokers[0].parts.store
    queue = store._queues.get(topic, 0)
    for number in range(queue.max_offset):
        code = queue.unit(number)[2]
        assert code <= ADDRESS_MAX
        unit = queue.ext.get(code)
        yield number, unit.store_ms, unit.bitmap


def assert_bitmaps(cluster, topic, group, first, count):
    """Messages from `first` on were judged by the group's filter: its bits say what the expression says."""
    bits = BloomFilter.for_error_rate(20, 32).positions(f"{group}#{topic}")
    judged = [(number, bitmap) for number, _, bitmap in extended(cluster, topic) if first <= number < first + count]
    assert len(judged) == count
    assert {len(bitmap) for _, bitmap in judged} == {14}
    assert [number for number, bitmap in judged if has_bits(bitmap, bits)] == wanted(range(first, first + count))


def test_filters_and_bitmaps_travel_with_the_store(java_clients, tmp_path, name):
    java = java_clients("5.4.0")
    topic, group = name("sql"), name("group")
    first = ApacheCluster(tmp_path / "first", broker_conf=BITMAPS, jvm_options=QUICK_START).start()
    try:
        java.create_topic(first.namesrv, topic, 1)
        with pytest.raises(BrokerError) as caught:
            asyncio.run(consume(first.namesrv, name("group"), topic, "n > 'x'", 1))
        assert caught.value.code == 23
        with java.push_consumer(first.namesrv, group, {}, sql={topic: EXPRESSION}) as consumer:
            asyncio.run(until_known(first.namesrv, group, topic))
            send(java, first.namesrv, topic)
            assert numbers(consumer.poll(len(wanted(range(COUNT))))) == wanted(range(COUNT))
        assert asyncio.run(consume(first.namesrv, name("group"), topic, "n < 4", 4)) == [0, 1, 2, 3]
        java.release(first.namesrv)
        first.stop()  # saves its filters
    finally:
        first.kill()

    with LocalCluster(data=first.store, config={**SIZES, **BITMAPS}) as ours:
        assert_bitmaps(ours, topic, group, 0, COUNT)
        assert ours.brokers[0].parts.filters.get(group, topic).compiled.text == EXPRESSION
        with java.push_consumer(ours.namesrv, group, {}, sql={topic: EXPRESSION}) as consumer:
            asyncio.run(until_known(ours.namesrv, group, topic))
            send(java, ours.namesrv, topic, first=COUNT)
            assert numbers(consumer.poll(COUNT)) == wanted(range(COUNT, 2 * COUNT))
        assert_bitmaps(ours, topic, group, COUNT, COUNT)
        everything = wanted(range(2 * COUNT))
        assert asyncio.run(consume(ours.namesrv, name("group"), topic, EXPRESSION, len(everything))) == everything
        java.release(ours.namesrv)
    saved = json.loads((first.store / "config" / "consumerFilter.json").read_bytes())["filterDataByTopic"][topic]
    assert saved["groupFilterData"][group]["expression"] == EXPRESSION

    second = ApacheCluster(tmp_path / "second", store=first.store, broker_conf=BITMAPS, jvm_options=QUICK_START)
    try:
        second.start()
        with java.push_consumer(second.namesrv, group, {}, sql={topic: EXPRESSION}) as consumer:
            send(java, second.namesrv, topic, first=2 * COUNT, count=5)
            assert numbers(consumer.poll(5)) == list(range(2 * COUNT, 2 * COUNT + 5))
        found = asyncio.run(consume(second.namesrv, name("group"), topic, EXPRESSION, len(everything) + 5))
        assert found == everything + list(range(2 * COUNT, 2 * COUNT + 5))
        java.release(second.namesrv)
    finally:
        second.kill()
