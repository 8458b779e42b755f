"""Java's orderly consumer on our broker: failures, and their end. Groups that share queues: test_killed_members.py.

Run with ROCKETLINE_INTEROP_TARGET=apache the same holds for Apache's broker.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from rocketline.client import blocking
from rocketline.message import Message

pytestmark = pytest.mark.interop

QUEUES = 8


def send(namesrv: str, topic: str, count: int) -> None:
    """To the queues in turn."""
    with blocking.Producer(namesrv, group="senders") as producer:
        queues = producer.queues(topic)
        for number in range(count):
            producer.send(Message(topic, b"%d" % number), queue=queues[number % QUEUES])


def test_failures_of_java_listeners_block_their_queue(java, cluster, name):
    topic, group = name("ordered"), name("g")
    java.create_topic(cluster.namesrv, topic, QUEUES)
    send(cluster.namesrv, topic, 2 * QUEUES)
    with java.push_consumer(cluster.namesrv, group, {topic: "*"}, orderly=True, fail_first=1) as consumer:
        seen = consumer.poll(4 * QUEUES)
    by_queue = defaultdict(list)
    for item in seen:
        by_queue[item.queue_id].append((item.queue_offset, item.reconsume_times))
    assert dict(by_queue) == {queue_id: [(0, 0), (0, 1), (1, 0), (1, 1)] for queue_id in range(QUEUES)}


def test_what_fails_too_often_in_order_is_a_dead_letter(java, cluster, name):
    topic, group = name("ordered"), name("g")
    java.create_topic(cluster.namesrv, topic, QUEUES)
    send(cluster.namesrv, topic, 1)
    with java.push_consumer(
        cluster.namesrv, group, {topic: "*"}, orderly=True, fail_first=9, max_reconsume_times=1
    ) as consumer:
        assert [item.reconsume_times for item in consumer.poll(2)] == [0, 1]
        with java.push_consumer(cluster.namesrv, name("dead"), {f"%DLQ%{group}": "*"}) as dead:
            [letter] = dead.poll(1)
    assert (letter.reconsume_times, letter.properties["RETRY_TOPIC"]) == (2, topic)
