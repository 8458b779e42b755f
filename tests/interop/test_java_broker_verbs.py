"""The rest of what Apache's Java clients ask a broker for: auto-created topics, tags, groups, offsets, lookups.

Run with ROCKETLINE_INTEROP_TARGET=apache the very same tests hold for Apache's own broker.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.comparing import ClusterFacts, assert_same_message, assert_same_records
from tests.support.java_client import Outgoing, Queue
from tests.support.java_driver import CLIENT_VERSIONS, JavaCallError
from tests.support.patience import PATIENCE_S
from tests.support.reading import eventually, push_all, read_topic

pytestmark = pytest.mark.interop

TOPIC_NOT_EXIST = 17


@pytest.fixture(params=CLIENT_VERSIONS)
def java(request, java_clients):
    return java_clients(request.param)


@pytest.fixture
def only_broker(java, cluster):
    return next(iter(ClusterFacts.ask(java, cluster.namesrv).address_of))


def send_to_queue(java, namesrv, queue, bodies, **fields):
    with java.producer(namesrv, "pg_queue") as producer:
        return [producer.send(queue.topic, body, queue_id=queue.queue_id, **fields) for body in bodies]


def test_a_topic_nobody_created(java, cluster, name):
    message = Outgoing(name("unheard_of"), b"first", tags="T")
    with java.producer(cluster.namesrv, name("pg"), default_queues=3) as producer:
        sent = producer.send_message(message)

    facts = ClusterFacts.ask(java, cluster.namesrv)
    (seen,) = push_all(java, cluster.namesrv, name("push"), message.topic, 1)
    assert_same_message(seen, message, sent, facts)
    (queues,) = java.route(cluster.namesrv, message.topic)["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 3, 6)


def test_topics_are_created_changed_and_deleted(java, cluster, name):
    topic = name("managed")
    for queues, perm in ((2, 6), (5, 6)):
        java.create_topic(cluster.namesrv, topic, queues, perm)
        (data,) = java.route(cluster.namesrv, topic)["queueDatas"]
        assert (data["readQueueNums"], data["writeQueueNums"], data["perm"]) == (queues, queues, perm)

    java.delete_topic(cluster.namesrv, topic)
    with pytest.raises(JavaCallError) as refused:
        java.route(cluster.namesrv, topic)
    assert refused.value.code == TOPIC_NOT_EXIST


def test_a_group_can_be_created(java, cluster, name):
    topic, group = name("grouped"), name("made_group")
    java.create_topic(cluster.namesrv, topic)
    java.create_group(cluster.namesrv, group, retry_max_times=3)
    with java.producer(cluster.namesrv, name("pg")) as producer:
        producer.send(topic, b"x")
    assert [seen.body for seen in push_all(java, cluster.namesrv, group, topic, 1)] == [b"x"]


def test_tags_choose(java, cluster, name):
    topic = name("tags")
    java.create_topic(cluster.namesrv, topic)
    with java.producer(cluster.namesrv, name("pg")) as producer:
        for tag in ("a", "b", "c", None, "ab"):
            producer.send(topic, str(tag).encode(), tags=tag)

    got = push_all(java, cluster.namesrv, name("push"), topic, 2, expression="a || c")

    assert sorted(seen.body for seen in got) == [b"a", b"c"]


def test_a_group_goes_on_where_it_stopped(java, cluster, only_broker, name):
    topic, group = name("resumed"), name("push")
    java.create_topic(cluster.namesrv, topic, queues=1)
    queue = Queue(topic, only_broker, 0)
    send_to_queue(java, cluster.namesrv, queue, [b"1", b"2", b"3"])
    assert len(push_all(java, cluster.namesrv, group, topic, 3, committed=True)) == 3
    assert java.committed(cluster.namesrv, group, queue) == 3

    send_to_queue(java, cluster.namesrv, queue, [b"4"])

    assert [seen.body for seen in push_all(java, cluster.namesrv, group, topic, 1, committed=True)] == [b"4"]
    assert java.committed(cluster.namesrv, group, queue) == 4


def test_lite_pull_seeks_and_commits(java, cluster, only_broker, name):
    topic, group = name("lite"), name("lite_group")
    java.create_topic(cluster.namesrv, topic, queues=2)
    queue = Queue(topic, only_broker, 1)
    send_to_queue(java, cluster.namesrv, queue, [b"%d" % i for i in range(5)])

    with java.lite_pull_consumer(cluster.namesrv, group) as consumer:
        assert consumer.queues(topic) == [Queue(topic, only_broker, 0), queue]
        consumer.assign([queue])
        # Not earlier: a pull that is under way while the client seeks still hands out what it finds.
        assert len(consumer.poll(5)) == 5
        consumer.seek(queue, 3)
        assert [seen.body for seen in consumer.poll(2)] == [b"3", b"4"]
        consumer.commit()

    assert eventually(lambda: java.committed(cluster.namesrv, group, queue), 5) == 5


def test_two_consumers_share_the_queues(java_clients, cluster, name):
    first, second = java_clients("5.5.0"), java_clients("4.9.7")
    topic, group = name("shared"), name("push")
    first.create_topic(cluster.namesrv, topic, queues=4)
    with (
        first.push_consumer(cluster.namesrv, group, {topic: "*"}) as one,
        second.push_consumer(cluster.namesrv, group, {topic: "*"}) as other,
        first.producer(cluster.namesrv, name("pg")) as producer,
    ):
        # Both have joined once each of them gets something; what is sent meanwhile may come twice.
        seen_by_one, seen_by_other = [], []
        deadline = time.monotonic() + PATIENCE_S
        while not (seen_by_one and seen_by_other):
            assert time.monotonic() < deadline
            for queue_id in range(4):
                producer.send(topic, b"joining", queue_id=queue_id)
            seen_by_one += one.poll(2, timeout_s=1)
            seen_by_other += other.poll(2, timeout_s=1)

        for queue_id in range(4):
            producer.send(topic, b"shared", tags="shared", queue_id=queue_id)
        shares: list[list[int]] = [[], []]
        while sum(map(len, shares)) < 4:
            assert time.monotonic() < deadline
            for share, consumer in zip(shares, (one, other)):
                share += [seen.queue_id for seen in consumer.poll(2, timeout_s=1) if seen.tags == "shared"]

    assert sorted(map(sorted, shares)) == [[0, 1], [2, 3]]


def test_offsets_of_a_queue(java, cluster, only_broker, name):
    topic = name("offsets")
    java.create_topic(cluster.namesrv, topic, queues=1)
    queue = Queue(topic, only_broker, 0)
    empty = java.offsets(cluster.namesrv, queue)
    assert (empty.min, empty.max, empty.earliest_store_time) == (0, 0, -1)

    send_to_queue(java, cluster.namesrv, queue, [b"1", b"2", b"3"])
    stored = read_topic(java, cluster.namesrv, topic)

    first = java.offsets(cluster.namesrv, queue, timestamp=stored[0].store_timestamp - 1)
    assert (first.min, first.max, first.search) == (0, 3, 0)
    assert first.earliest_store_time == stored[0].store_timestamp
    assert java.offsets(cluster.namesrv, queue, timestamp=stored[2].store_timestamp + 1).search == 3


def test_lookups_by_key_and_ids(java, cluster, name):
    topic = name("lookup")
    java.create_topic(cluster.namesrv, topic)
    with java.producer(cluster.namesrv, name("pg")) as producer:
        sent = [producer.send(topic, b"%d" % i, keys=[f"key-{i}", "common"], tags="T") for i in range(3)]
    stored = {seen.msg_id: seen for seen in read_topic(java, cluster.namesrv, topic)}
    wanted = stored[sent[1].msg_id]

    by_key = eventually(lambda: len(java.query_message(cluster.namesrv, topic, "common")), 3)
    assert by_key == 3
    assert_same_records(java.query_message(cluster.namesrv, topic, "common"), stored.values())
    assert_same_records(java.query_message(cluster.namesrv, topic, "key-1"), [wanted])
    assert_same_records([java.view_message(cluster.namesrv, topic, sent[1].msg_id)], [wanted])
    assert_same_records([java.view_message(cluster.namesrv, topic, sent[1].offset_msg_id)], [wanted])
    with pytest.raises(JavaCallError):
        java.query_message(cluster.namesrv, topic, "no such key")


def test_answers_to_a_pull(java, cluster, only_broker, name):
    topic = name("pulls")
    java.create_topic(cluster.namesrv, topic, queues=1)
    queue = Queue(topic, only_broker, 0)
    send_to_queue(java, cluster.namesrv, queue, [b"1", b"2", b"3"], tags="T")

    found = java.pull(cluster.namesrv, queue, 1, count=1)
    assert (found.status, found.next_begin_offset, found.min_offset, found.max_offset) == ("FOUND", 2, 0, 3)
    assert [seen.body for seen in found.messages] == [b"2"]
    unmatched = java.pull(cluster.namesrv, queue, 0, expression="other")
    assert (unmatched.status, unmatched.next_begin_offset) == ("NO_MATCHED_MSG", 3)
    at_end = java.pull(cluster.namesrv, queue, 3)
    assert (at_end.status, at_end.next_begin_offset) == ("NO_NEW_MSG", 3)
    beyond = java.pull(cluster.namesrv, queue, 100)
    assert (beyond.status, beyond.next_begin_offset) == ("OFFSET_ILLEGAL", 3)


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_a_long_poll_is_woken_by_a_message(version, java_clients, cluster, name):
    waiting, sending = java_clients(version), java_clients("5.4.0", "ROCKETMQ")
    topic = name("woken")
    waiting.create_topic(cluster.namesrv, topic, queues=1)
    (queue,) = waiting.read_queues(cluster.namesrv, topic)
    waiting.pull(cluster.namesrv, queue, 0)  # opens the consumer, so that the next one waits at the broker
    with ThreadPoolExecutor(1) as thread:
        pulling = thread.submit(waiting.pull, cluster.namesrv, queue, 0, block=True)
        send_to_queue(sending, cluster.namesrv, queue, [b"at last"])
        pulled = pulling.result(timeout=PATIENCE_S)

    assert pulled.status == "FOUND"
    assert [seen.body for seen in pulled.messages] == [b"at last"]
