"""Our pull consumer and Apache's lite pull consumers in one group, and the bulk reader, on either broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Protocol

import pytest
from tests.support.java_client import JavaClient, JavaLitePullConsumer, Queue
from tests.support.patience import PATIENCE_S
from tests.support.reading import await_listed, eventually

from rocketline.client import ClientOptions, ConsumeFrom, SeekTo, blocking
from rocketline.client.bulk.reader import BulkReader
from rocketline.client.timing import ClientTiming
from rocketline.message import Message, MessageQueue

pytestmark = pytest.mark.interop

QUEUES = 8
TIMING = ClientTiming(rebalance_s=1.0)


class Cluster(Protocol):
    @property
    def namesrv(self) -> str: ...


@pytest.fixture(params=["rocketline", "apache"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


class Group:
    """Members by name, what each of them gets, and a producer that reaches every queue."""

    def __init__(self, producer: blocking.Producer, queues: tuple[MessageQueue, ...]) -> None:
        self._producer = producer
        self._queues = queues
        self._round = 0
        self.ours: dict[str, blocking.PullConsumer] = {}
        self.javas: dict[str, JavaLitePullConsumer] = {}

    def shares(self, sizes: list[int]) -> dict[str, set[int]]:
        """Queues by member, as soon as a message in each queue goes to exactly one, and shares have these sizes."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            got = self._one_round(deadline)
            taken = [queue for queues in got.values() for queue in queues]
            if sorted(taken) == list(range(QUEUES)) and sorted(len(queues) for queues in got.values()) == sizes:
                return {member: set(queues) for member, queues in got.items()}
        raise AssertionError(f"the queues were never shared out as {sizes}; last: {got}")

    def _one_round(self, deadline: float) -> dict[str, list[int]]:
        """Send one message to every queue; who got which. Every one must arrive somewhere."""
        self._round += 1
        mark = b"%d/" % self._round
        for queue in self._queues:
            self._producer.send(Message(queue.topic, mark + b"%d" % queue.queue_id), queue=queue)
        got: dict[str, list[int]] = {}
        while {queue for queues in got.values() for queue in queues} != set(range(QUEUES)):
            assert time.monotonic() < deadline, f"not every message of round {self._round} arrived: {got}"
            for member, bodies in self._polled():
                new = [int(body[len(mark) :]) for body in bodies if body.startswith(mark)]
                got.setdefault(member, []).extend(new)
        for member, bodies in self._polled():  # those that a second owner would get
            got.setdefault(member, []).extend(int(body[len(mark) :]) for body in bodies if body.startswith(mark))
        return got

    def _polled(self) -> Iterator[tuple[str, list[bytes]]]:
        for member, consumer in self.ours.items():
            yield member, [message.body for message in consumer.poll(timeout=0.2)]
        for member, java in self.javas.items():
            yield member, [seen.body for seen in java.poll(1, timeout_s=0.3)]


def test_java_and_python_members_share_queues(cluster: Cluster, java: JavaClient, name: Callable[[str], str]) -> None:
    topic, group_name = name("mixed"), name("members")
    java.create_topic(cluster.namesrv, topic, QUEUES)
    with ExitStack() as stack:
        producer = stack.enter_context(blocking.Producer(cluster.namesrv, group=name("p")))
        group = Group(producer, producer.queues(topic))
        for number in (1, 2):
            group.javas[f"java-{number}"] = java.lite_pull_consumer(
                cluster.namesrv, group_name, subscriptions={topic: "*"}, auto_commit=True
            )
        ours = blocking.PullConsumer(
            cluster.namesrv, group=group_name, from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=TIMING)
        )
        group.ours["python"] = stack.enter_context(ours)
        ours.subscribe(topic)
        shares = group.shares([2, 3, 3])
        assert shares["python"] == {queue.queue_id for queue in ours.assigned}
        group.javas.pop("java-1").stop()
        assert set(group.shares([4, 4])) == {"python", "java-2"}
        group.javas.pop("java-2").stop()
        assert group.shares([8]) == {"python": set(range(QUEUES))}


def test_java_goes_on_where_python_stopped(cluster: Cluster, java: JavaClient, name: Callable[[str], str]) -> None:
    topic, group = name("relay"), name("runners")
    java.create_topic(cluster.namesrv, topic, 1)
    with blocking.Producer(cluster.namesrv, group=name("p")) as producer:
        (queue,) = producer.queues(topic)
        for number in range(20):
            producer.send(Message(topic, b"%d" % number), queue=queue)
    with blocking.PullConsumer(
        cluster.namesrv, group=group, from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=TIMING)
    ) as ours:
        ours.subscribe(topic)
        seen = []
        for message in ours:
            seen.append(int(message.body))
            if len(seen) == 7:
                break
        assert seen == list(range(7))
    plain = Queue(topic, queue.broker_name, queue.queue_id)
    assert java.committed(cluster.namesrv, group, plain) == 7
    with java.lite_pull_consumer(cluster.namesrv, group, subscriptions={topic: "*"}) as javas:
        assert [int(message.body) for message in javas.poll(13)] == list(range(7, 20))
        javas.commit()
        assert eventually(lambda: java.committed(cluster.namesrv, group, plain), 20) == 20
    with blocking.PullConsumer(
        cluster.namesrv, group=group, auto_commit=False, options=ClientOptions(timing=TIMING)
    ) as ours:
        ours.assign([queue])
        assert ours.poll(timeout=0.5) == []
        for place, first in ((SeekTo.BEGIN, 0), (12, 12), (datetime.fromtimestamp(0, UTC), 0)):
            ours.seek(queue, place)
            assert int(ours.poll(1, timeout=PATIENCE_S)[0].body) == first
        ours.seek(queue, SeekTo.END)
        assert (ours.poll(timeout=0.2), ours.position(queue)) == ([], 20)


def test_the_bulk_reader_reads_what_is_there(cluster: Cluster, java: JavaClient, name: Callable[[str], str]) -> None:
    topic = name("bulk")
    java.create_topic(cluster.namesrv, topic, 2)
    with blocking.Producer(cluster.namesrv, group=name("p")) as producer:
        queues = producer.queues(topic)
        for queue in queues:
            for start in range(0, 1000, 100):
                batch = [Message(topic, b"%d" % n, tag="ab"[n % 2]) for n in range(start, start + 100)]
                producer.send_batch(batch, queue=queue)
    await_listed(java, cluster.namesrv, topic, 2000)
    with BulkReader(cluster.namesrv, group=name("bulk_group")) as reader:
        for queue in reader.queues(topic):
            assert reader.bounds(queue) == (0, 1000)
            messages = [m for reply in reader.read(queue, 5, 990) for m in reply.messages()]
            assert [(m.queue_offset, int(m.body)) for m in messages] == [(n, n) for n in range(5, 990)]
            some = [m for reply in reader.read(queue, 0, 1000, "b") for m in reply.messages()]
            assert [int(m.body) for m in some] == list(range(1, 1000, 2))
            assert reader.offset_at(queue, datetime.fromtimestamp(0, UTC)) == 0
