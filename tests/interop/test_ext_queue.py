"""Extended consume queues cross over: units Apache's broker wrote answer our tag filters, and ours answer Apache's."""

from __future__ import annotations

import pytest
from tests.support.apache import QUICK_START, TEST_CONF, ApacheCluster
from tests.support.java_client import Outgoing
from tests.support.reading import push_all

from rocketline.store.queue.ext_queue import ADDRESS_MAX
from rocketline.testing import LocalCluster

pytestmark = pytest.mark.interop

EXTENDED = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "4096"}
OURS = {
    **{
        key: TEST_CONF[key]
        for key in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
    },
    **EXTENDED,
}
TAGS = ("red", "green", "blue")
COUNT = 300
"""Of one queue, so that its extended units fill more than a file."""


def fill(java, namesrv, topic, first=0):
    messages = [Outgoing(topic, b"%d" % number, tags=TAGS[number % 3]) for number in range(first, first + COUNT)]
    with java.producer(namesrv, "filling") as producer:
        for start in range(0, COUNT, 100):
            producer.send_batch(messages[start : start + 100])


def delay(java, namesrv, topic, body):
    """Ten seconds: enough for the other broker to take over before it is due. One that is killed after it delivered a
    message has not noted that, and the next one delivers it again."""
    with java.producer(namesrv, "delaying") as producer:
        producer.send(topic, body, tags="late", delay_level=3)


def assert_filtered(java, namesrv, group, topic, tag, count):
    """A push consumer of one tag gets exactly its messages; of a tag nobody used the broker itself sends nothing.

    Apache's broker sends everything whose extended unit it cannot find, and lets the client choose.
    """
    (queue,) = java.read_queues(namesrv, topic)
    assert java.pull(namesrv, queue, 0, expression="purple").status == "NO_MATCHED_MSG"
    wanted = [number for number in range(count) if TAGS[number % 3] == tag]
    messages = push_all(java, namesrv, group, topic, len(wanted), tag)
    assert sorted(int(message.body) for message in messages) == wanted


def assert_extended(cluster, topic, count):
    """Every unit of our broker holds an address, and the extended unit is there."""
    queue = cluster.brokers[0].parts.store._queues.get(topic, 0)
    codes = [queue.unit(number)[2] for number in range(queue.max_offset)]
    assert len(codes) == count
    assert max(codes) <= ADDRESS_MAX
    assert None not in [queue.ext.get(code) for code in codes]
    assert len(queue.ext.file) > 1


def test_extended_units_are_read_by_the_other_broker(java_clients, tmp_path, name):
    java = java_clients("5.4.0")
    topic, late = name("tagged"), name("late")
    first = ApacheCluster(tmp_path / "first", broker_conf=EXTENDED, jvm_options=QUICK_START).start()
    try:
        for made in (topic, late):
            java.create_topic(first.namesrv, made, 1)
        fill(java, first.namesrv, topic)
        assert_filtered(java, first.namesrv, name("group"), topic, "red", COUNT)
        delay(java, first.namesrv, late, b"delayed by Apache")
        java.release(first.namesrv)
    finally:
        first.kill()
    # Nothing was left to do, so this is what half a minute of stopping would leave: we keep Apache's units, not make ours.
    (first.store / "abort").unlink()

    with LocalCluster(data=first.store, config=OURS) as ours:
        assert_extended(ours, topic, COUNT)
        assert_filtered(java, ours.namesrv, name("group"), topic, "green", COUNT)
        assert [message.body for message in push_all(java, ours.namesrv, name("group"), late, 1, "late")] == [
            b"delayed by Apache"
        ]
        fill(java, ours.namesrv, topic, first=COUNT)
        assert_extended(ours, topic, 2 * COUNT)
        delay(java, ours.namesrv, late, b"delayed by us")
        java.release(ours.namesrv)

    second = ApacheCluster(tmp_path / "second", store=first.store, broker_conf=EXTENDED, jvm_options=QUICK_START)
    try:
        second.start()
        assert_filtered(java, second.namesrv, name("group"), topic, "blue", 2 * COUNT)
        both = push_all(java, second.namesrv, name("group"), late, 2, "late")
        assert {message.body for message in both} == {b"delayed by Apache", b"delayed by us"}
        java.release(second.namesrv)
    finally:
        second.kill()
