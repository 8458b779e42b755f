"""Java's orderly consumer and our ordered one: each on the other's broker, and both in one group.

Run with ROCKETLINE_INTEROP_TARGET=apache the same holds for Apache's broker.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import pytest
from tests.support.java import require_java
from tests.support.java_client import JavaClient, JavaPushConsumer
from tests.support.java_driver import client_coordinates
from tests.support.ordered_member import Delivery, OrderedMember

from rocketline.client import blocking
from rocketline.message import Message, MessageQueue

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]  # a first run fetches jars; a lock lasts a minute

QUEUES = 8


@pytest.fixture(params=["5.4.0"])
def java(request: pytest.FixtureRequest) -> Iterator[JavaClient]:
    """A process of its own, as it may be killed."""
    require_java(*client_coordinates(request.param))
    with JavaClient(request.param) as client:
        yield client


class Sender:
    """Sends to queues in turn and knows how many each one got."""

    def __init__(self, producer: blocking.Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._queues: tuple[MessageQueue, ...] = producer.queues(topic)
        self.sent: dict[int, int] = dict.fromkeys(range(QUEUES), 0)

    def send(self, count: int) -> None:
        for number in range(count):
            queue = self._queues[number % QUEUES]
            self._producer.send(Message(self._topic, b"%d" % number), queue=queue)
            self.sent[queue.queue_id] += 1


class Javas:
    """Deliveries of a Java consumer, collected so far."""

    def __init__(self, consumer: JavaPushConsumer) -> None:
        self._consumer = consumer
        self.deliveries: list[Delivery] = []

    def collect(self) -> None:
        seen = self._consumer.poll(1, 0.2)
        self.deliveries += [Delivery(item.delivered_ms, item.queue_id, item.queue_offset) for item in seen]


def assert_in_order(deliveries: Iterable[Delivery]) -> None:
    """Nobody gets a message before somebody got all that are in front of it."""
    reached: dict[int, int] = defaultdict(lambda: -1)
    for delivery in sorted(deliveries):
        assert delivery.queue_offset <= reached[delivery.queue_id] + 1, (delivery, dict(reached))
        reached[delivery.queue_id] = max(reached[delivery.queue_id], delivery.queue_offset)


def wait_for(condition: Callable[[], bool], javas: Javas | None, what: str, limit_s: float = 120.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"no {what} within {limit_s:g} s"
        if javas is not None:
            javas.collect()
        else:
            time.sleep(0.1)


def all_seen(sent: dict[int, int], *deliveries: list[Delivery]) -> bool:
    seen = {(item.queue_id, item.queue_offset) for some in deliveries for item in list(some)}
    return len(seen) == sum(sent.values())


def shared(sender: Sender, ours: OrderedMember, theirs: Javas) -> bool:
    """Whether both got messages of the last round."""
    before = len(ours.deliveries), len(theirs.deliveries)
    sender.send(4 * QUEUES)
    wait_for(lambda: all_seen(sender.sent, ours.deliveries, theirs.deliveries), theirs, "delivery of a round")
    return len(ours.deliveries) > before[0] and len(theirs.deliveries) > before[1]


@pytest.mark.parametrize(("victim", "java"), [("ours", "5.4.0"), ("javas", "4.9.7")], indirect=["java"])
def test_a_mixed_group_keeps_order_when_a_member_is_killed(victim, java, cluster, name):
    topic, group = name("ordered"), name("g")
    java.create_topic(cluster.namesrv, topic, QUEUES)
    with blocking.Producer(cluster.namesrv, group=name("pg")) as producer:
        sender = Sender(producer, topic)
        with OrderedMember(cluster.namesrv, group, topic) as ours:
            javas = Javas(java.push_consumer(cluster.namesrv, group, {topic: "*"}, orderly=True))
            wait_for(lambda: shared(sender, ours, javas), javas, "sharing of the queues")
            if victim == "ours":
                sender.send(50 * QUEUES)
                ours.kill()  # in the middle of it
                survivor = javas
            else:
                os.kill(java.pid, signal.SIGKILL)
                survivor = None
            sender.send(10 * QUEUES)
            wait_for(lambda: all_seen(sender.sent, ours.deliveries, javas.deliveries), survivor, "take-over")
            assert_in_order([*ours.deliveries, *javas.deliveries])


def test_failures_of_java_listeners_block_their_queue(java, cluster, name):
    topic, group = name("ordered"), name("g")
    java.create_topic(cluster.namesrv, topic, QUEUES)
    with blocking.Producer(cluster.namesrv, group=name("pg")) as producer:
        Sender(producer, topic).send(2 * QUEUES)
    with java.push_consumer(cluster.namesrv, group, {topic: "*"}, orderly=True, fail_first=1) as consumer:
        seen = consumer.poll(4 * QUEUES)
    by_queue = defaultdict(list)
    for item in seen:
        by_queue[item.queue_id].append((item.queue_offset, item.reconsume_times))
    assert dict(by_queue) == {queue_id: [(0, 0), (0, 1), (1, 0), (1, 1)] for queue_id in range(QUEUES)}


def test_what_fails_too_often_in_order_is_a_dead_letter(java, cluster, name):
    topic, group = name("ordered"), name("g")
    java.create_topic(cluster.namesrv, topic, QUEUES)
    with blocking.Producer(cluster.namesrv, group=name("pg")) as producer:
        Sender(producer, topic).send(1)
    with java.push_consumer(
        cluster.namesrv, group, {topic: "*"}, orderly=True, fail_first=9, max_reconsume_times=1
    ) as consumer:
        assert [item.reconsume_times for item in consumer.poll(2)] == [0, 1]
        with java.push_consumer(cluster.namesrv, name("dead"), {f"%DLQ%{group}": "*"}) as dead:
            [letter] = dead.poll(1)
    assert (letter.reconsume_times, letter.properties["RETRY_TOPIC"]) == (2, topic)
