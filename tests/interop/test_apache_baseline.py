"""The tools of the interop tests, proved on Apache's own servers: the Java driver, the server runner, the readers.

If these fail, a failure on our own cluster says nothing.
"""

from __future__ import annotations

import os

import pytest
from tests.support.apache import QUICK_START, ApacheCluster, ApacheFailed
from tests.support.comparing import (
    ClusterFacts,
    assert_compressed,
    assert_same_batch,
    assert_same_message,
    assert_same_records,
)
from tests.support.java_client import JavaClient, Outgoing
from tests.support.java_driver import CLIENT_VERSIONS, JavaCallError
from tests.support.process_driver import DriverFailed
from tests.support.reading import await_listed, lite_pull_all, push_all, read_topic

pytestmark = pytest.mark.interop

TOPIC_NOT_EXIST = 17


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_round_trip(version, java_clients, apache, name):
    java, topic = java_clients(version), name("round_trip")
    java.create_topic(apache.namesrv, topic)
    sync, asynchronous, oneway, compressed = (
        Outgoing(topic, b"sync", tags="T", keys=["a", "b"], flag=3, properties={"ключ": "值"}),
        Outgoing(topic, b"async", properties={"emoji": "🚀"}),
        Outgoing(topic, b"oneway"),
        Outgoing(topic, b"compressed " * 1000, tags="compressed"),
    )
    in_batch = [Outgoing(topic, f"batch {i}".encode(), tags="batch", keys=[str(i)]) for i in range(3)]
    with java.producer(apache.namesrv, name("pg"), compress_type="ZSTD") as producer:
        receipts = [
            producer.send_message(sync),
            producer.send_message(asynchronous, mode="async"),
            producer.send_message(oneway, mode="oneway"),
            producer.send_message(compressed, queue_id=2),
        ]
        batch = producer.send_batch(in_batch, queue_id=1)
    expected = {
        receipt.msg_id: (message, receipt)
        for message, receipt in zip((sync, asynchronous, oneway, compressed), receipts)
    }

    pushed = push_all(java, apache.namesrv, name("push"), topic, 7)

    facts = ClusterFacts.ask(java, apache.namesrv)
    assert facts.address_of == {apache.broker_name: apache.broker}
    for seen in pushed:
        if seen.tags != "batch":
            assert_same_message(seen, *expected[seen.msg_id], facts)
        if seen.tags == "compressed":
            assert_compressed(seen, "ZSTD", version)
            assert seen.queue_id == 2
    batched = [seen for seen in pushed if seen.tags == "batch"]
    assert_same_batch(batched, in_batch, batch.receipt, list(batch.messages), facts)
    assert_same_records(pushed, lite_pull_all(java, apache.namesrv, name("lite"), topic, 7))
    assert_same_records(pushed, lite_pull_all(java, apache.namesrv, name("sub"), topic, 7, subscribe=True))
    assert_same_records(pushed, read_topic(java, apache.namesrv, topic))


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_errors_come_back_and_the_driver_lives_on(version, java_clients, apache, name):
    java = java_clients(version)
    with pytest.raises(JavaCallError, match="unknown command 'juggle'") as unknown:
        java.call("juggle")
    assert unknown.value.class_name == "IllegalArgumentException"
    with pytest.raises(JavaCallError, match="argument 'topic' is missing"):
        java.call("route", namesrv=apache.namesrv)
    with pytest.raises(JavaCallError) as no_route:
        java.route(apache.namesrv, name("nowhere"))
    assert (no_route.value.class_name, no_route.value.code) == ("MQClientException", TOPIC_NOT_EXIST)
    with pytest.raises(JavaCallError, match="no producer named"):
        java.call("stop_producer", name="never started")
    assert java.call("ping") == "pong"


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_a_failed_message_comes_again(version, java_clients, apache, name):
    java, topic, group = java_clients(version), name("retry"), name("push")
    java.create_topic(apache.namesrv, topic)
    with java.producer(apache.namesrv, name("pg")) as producer:
        sent = producer.send(topic, b"try me")
    with java.push_consumer(apache.namesrv, group, {topic: "*"}, fail_first=1, retry_level=1) as consumer:
        deliveries = consumer.poll(2)
    assert [(seen.msg_id, seen.reconsume_times, seen.accepted) for seen in deliveries] == [
        (sent.msg_id, 0, False),
        (sent.msg_id, 1, True),
    ]
    assert deliveries[1].topic == topic
    assert deliveries[1].properties["RETRY_TOPIC"] == topic


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_operator_answers(version, java_clients, apache, name):
    java, topic, group = java_clients(version), name("operator"), name("push")
    java.create_topic(apache.namesrv, topic, queues=2)
    with java.producer(apache.namesrv, name("pg")) as producer:
        report = producer.send_many(topic, 50, threads=4, prefix="m", size=32)
    assert (report.acknowledged, report.failed) == (50, 0)
    await_listed(java, apache.namesrv, topic, 50)
    with java.push_consumer(apache.namesrv, group, {topic: "*"}) as consumer:
        bodies = {seen.body for seen in consumer.poll(50)}
        connection = java.consumer_connection(apache.namesrv, group)
    assert bodies == {f"m{i}".ljust(32, ".").encode() for i in range(50)}
    assert connection["consumeType"] == "CONSUME_PASSIVELY"
    assert len(connection["connectionSet"]) == 1
    assert topic in java.topic_list(apache.namesrv)


def test_a_dead_driver_is_reported(java_clients):
    java_clients("4.9.7")  # skips where there is no Java
    with JavaClient("4.9.7") as java:
        os.kill(java.pid, 9)
        with pytest.raises(DriverFailed, match="during 'ping'"):
            java.call("ping")


def test_a_broker_that_cannot_start_shows_its_log(java_clients, tmp_path):
    unlucky = ApacheCluster(tmp_path, namesrv=False, namesrv_addr="nonsense", jvm_options=QUICK_START)
    with pytest.raises(ApacheFailed, match=r"Apache broker 5\.4\.0 ended with exit code (?s:.*) illegal"):
        unlucky.start()
    assert unlucky.pids == {}
