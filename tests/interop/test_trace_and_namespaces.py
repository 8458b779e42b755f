"""Message traces, namespaces and unit mode: what Java's clients write ours understand, and the other way round.

Run with ROCKETLINE_INTEROP_TARGET=apache the very same tests hold on Apache's own broker.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.java_client import JavaClient
from tests.support.patience import PATIENCE_S

from rocketline.client import ClientOptions, ConsumeFrom, Producer, PullConsumer, PushConsumer, RetryLater
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.trace import (
    Pub,
    SubAfter,
    SubBefore,
    TracedMessage,
    TraceRecord,
    decode_traces,
    encode_trace,
)

pytestmark = pytest.mark.interop

FIRST = ConsumeFrom.FIRST
VERSIONS = ["5.4.0", "4.9.7"]

NameMaker = Callable[[str], str]


async def in_java(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return await asyncio.to_thread(call, *args, **options)


async def read_traces(namesrv: str, topic: str, group: str, wanted: int) -> list[MessageView]:
    """The messages of a trace topic, once they hold `wanted` records."""
    messages: list[MessageView] = []
    async with PullConsumer(namesrv, group=group, from_where=FIRST) as consumer, asyncio.timeout(PATIENCE_S):
        consumer.assign(await consumer.queues(topic))
        while len(records_of(messages)) < wanted:
            messages += await consumer.poll(timeout=1.0)
    return messages


def records_of(messages: list[MessageView]) -> list[TraceRecord]:
    return [record for message in messages for record in decode_traces(message.body)]


class Inbox:
    """A handler that keeps what it gets, and fails every message that often first."""

    def __init__(self, fail_first: int = 0) -> None:
        self.messages: list[MessageView] = []
        self._fail_first = fail_first
        self._grown = asyncio.Condition()

    async def __call__(self, message: MessageView) -> None:
        async with self._grown:
            self.messages.append(message)
            self._grown.notify_all()
        if message.reconsume_times < self._fail_first:
            raise RetryLater("once more", delay_level=1)

    async def wait(self, count: int) -> list[MessageView]:
        async with asyncio.timeout(PATIENCE_S), self._grown:
            await self._grown.wait_for(lambda: len(self.messages) >= count)
        return self.messages


@pytest.mark.parametrize("version", VERSIONS)
async def test_traces_of_java_clients(version, java_clients, cluster, name: NameMaker):
    java: JavaClient = java_clients(version)
    namesrv, topic, traces = cluster.namesrv, name("T"), name("traces")
    producers, consumers = name("pg"), name("cg")
    for made in (topic, traces):
        await in_java(java.create_topic, namesrv, made)

    are_read = threading.Event()  # a Java client that ends waits half a second for its traces, and drops the rest

    def produce_and_consume() -> list[str]:
        options = {"trace": True, "trace_topic": traces, "fail_first": 1, "retry_level": 1}
        with (
            java.producer(namesrv, producers, trace=True, trace_topic=traces) as producer,
            java.push_consumer(namesrv, consumers, {topic: "*"}, **options) as consumer,
        ):
            first = producer.send(topic, b"one", tags="TagA", keys=["k1", "k2"])
            second = producer.send(topic, b"two", delay_level=1)
            seen: list[Any] = []
            while len(seen) < 4:
                seen += consumer.poll(1)
            are_read.wait(PATIENCE_S)
        return [first.msg_id, second.msg_id]

    running = asyncio.create_task(in_java(produce_and_consume))
    try:
        messages = await read_traces(namesrv, traces, name("reader"), 2 + 4 + 4)
    finally:
        are_read.set()
        first, second = await running
    for message in messages:
        records = decode_traces(message.body)
        assert "".join(map(encode_trace, records)).encode() == message.body  # to the byte what Java wrote
        assert {record.message_id for record in records} <= set(message.keys)
    found = records_of(messages)
    pubs = {record.message_id: record for record in found if isinstance(record, Pub)}
    assert set(pubs) == {first, second}
    assert (pubs[first].group, pubs[first].topic, pubs[first].tags, pubs[first].keys) == (
        producers,
        topic,
        "TagA",
        "k1 k2",
    )
    assert (pubs[first].success, pubs[first].body_bytes, pubs[first].kind) == (True, 3, TracedMessage.NORMAL)
    assert (pubs[second].tags, pubs[second].keys, pubs[second].kind) == (None, None, TracedMessage.DELAYED)
    before = {record.request_id: record for record in found if isinstance(record, SubBefore)}
    after = [record for record in found if isinstance(record, SubAfter)]
    assert sorted((before[r.request_id].retry_times, r.success, r.outcome) for r in after) == [
        (0, False, 4),
        (0, False, 4),
        (1, True, 0),
        (1, True, 0),
    ]
    assert {record.group for record in before.values()} == {consumers}


@pytest.mark.parametrize("version", VERSIONS)
async def test_java_reads_our_traces(version, java_clients, cluster, name: NameMaker):
    java: JavaClient = java_clients(version)
    namesrv, topic, traces = cluster.namesrv, name("T"), name("traces")
    producers, consumers = name("pg"), name("cg")
    for made in (topic, traces):
        await in_java(java.create_topic, namesrv, made)
    traced = ClientOptions(trace=traces)
    async with Producer(namesrv, group=producers, options=traced) as producer:
        first = await producer.send(Message(topic, b"one", tag="TagA", keys=["k1", "k2"]))
        batch = await producer.send_batch([Message(topic, b"b1"), Message(topic, b"b2")])
    assert (producer.trace_counts.sent, producer.trace_counts.failed, producer.trace_counts.dropped) == (2, 0, 0)
    inbox = Inbox(fail_first=1)
    async with PushConsumer(namesrv, group=consumers, from_where=FIRST, options=traced) as consumer:
        consumer.subscribe(topic, "*", inbox)
        await consumer.start()
        await inbox.wait(6)

    messages = await read_traces(namesrv, traces, name("reader"), 3 + 2 + 2)
    (found,) = await in_java(java.query_message, namesrv, traces, "k1", 1)
    assert first.message_id in found.keys.split()
    contexts = [context for message in messages for context in await in_java(java.decode_trace, message.body)]
    pubs = {context["traceBeans"][0]["msgId"]: context for context in contexts if context["traceType"] == "Pub"}
    assert set(pubs) == {first.message_id, *(receipt.message_id for receipt in batch)}
    pub, bean = pubs[first.message_id], pubs[first.message_id]["traceBeans"][0]
    assert (pub["groupName"], pub["success"], pub["regionId"]) == (producers, True, "DefaultRegion")
    assert (bean["topic"], bean["tags"], bean["keys"], bean["offsetMsgId"]) == (
        topic,
        "TagA",
        "k1 k2",
        first.offset_id,
    )
    before = {context["requestId"]: context for context in contexts if context["traceType"] == "SubBefore"}
    after = [context for context in contexts if context["traceType"] == "SubAfter"]
    results = [(before[c["requestId"]]["traceBeans"][0]["retryTimes"], c["success"], c["contextCode"]) for c in after]
    # Messages of a batch are stored without a region, and what has none is not traced by Java's consumers either.
    assert sorted(results) == [(0, False, 4), (1, True, 0)]
    assert {context["groupName"] for context in [*before.values(), *after]} == {consumers}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_namespace_of_ours_is_javas(version, java_clients, cluster, name: NameMaker):
    java: JavaClient = java_clients(version)
    namesrv, space, topic = cluster.namesrv, name("NS"), name("T")
    await in_java(java.create_topic, namesrv, f"{space}%{topic}", 2)

    def java_sends() -> tuple[str, str]:
        with java.producer(namesrv, name("pg"), namespace=space) as producer:
            sent = producer.send(topic, b"from java")
            return sent.msg_id, sent.topic

    java_id, shown = await in_java(java_sends)
    assert shown == topic
    async with Producer(namesrv, group=name("pg"), options=ClientOptions(namespace=space)) as producer:
        assert {queue.topic for queue in await producer.queues(topic)} == {topic}
        receipt = await producer.send(Message(topic, b"from python"))
        queue = MessageQueue(topic, receipt.queue.broker_name, 1)
        chosen = await producer.send(Message(topic, b"chosen"), queue=queue)
    assert (receipt.queue.topic, chosen.queue) == (topic, queue)
    ids = {java_id, receipt.message_id, chosen.message_id}

    def java_consumes(group: str) -> list[Any]:
        options = {"namespace": space, "fail_first": 1, "retry_level": 1}
        with java.push_consumer(namesrv, group, {topic: "*"}, **options) as consumer:
            seen: list[Any] = []
            while len(seen) < 6:
                seen += consumer.poll(1)
            return seen

    javas = await in_java(java_consumes, name("cg"))
    inbox = Inbox(fail_first=1)
    async with PushConsumer(
        namesrv, group=name("cg"), from_where=FIRST, options=ClientOptions(namespace=space)
    ) as consumer:
        consumer.subscribe(topic, "*", inbox)
        await consumer.start()
        ours = await inbox.wait(6)
        assert {queue.topic for queue in consumer.assigned} >= {topic}
    assert {message.message_id for message in ours} == {seen.msg_id for seen in javas} == ids
    assert {message.topic for message in ours} == {seen.topic for seen in javas} == {topic}
    assert sorted(message.reconsume_times for message in ours) == [0, 0, 0, 1, 1, 1]
    async with PullConsumer(
        namesrv, group=name("cg"), from_where=FIRST, options=ClientOptions(namespace=space)
    ) as reader:
        queues = await reader.queues(topic)
        reader.assign(queues)
        polled: list[MessageView] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(polled) < 3:
                polled += await reader.poll(timeout=1.0)
        await reader.commit()
        assert [await reader.committed(queue) for queue in queues] == [await reader.end_offset(q) for q in queues]
    assert {message.topic for message in polled} == {queue.topic for queue in queues} == {topic}


async def test_one_group_of_a_namespace_with_java_and_python_members(java_clients, cluster, name: NameMaker):
    java: JavaClient = java_clients("5.4.0")
    namesrv, space, topic, group = cluster.namesrv, name("NS"), name("T"), name("cg")
    await in_java(java.create_topic, namesrv, f"{space}%{topic}", 4)
    inbox = Inbox()
    other = await in_java(java.push_consumer, namesrv, group, {topic: "*"}, namespace=space)
    try:
        async with PushConsumer(
            namesrv, group=group, from_where=FIRST, options=ClientOptions(namespace=space)
        ) as consumer:
            consumer.subscribe(topic, "*", inbox)
            await consumer.start()
            async with asyncio.timeout(PATIENCE_S):
                while sum(queue.topic == topic for queue in consumer.assigned) != 2:
                    await asyncio.sleep(0.05)
            async with Producer(namesrv, group=name("pg"), options=ClientOptions(namespace=space)) as producer:
                for queue in await producer.queues(topic):
                    await producer.send(Message(topic, b"x"), queue=queue)
            ours = await inbox.wait(2)
            javas = await in_java(other.poll, 2)
            assert len({message.message_id for message in ours} | {seen.msg_id for seen in javas}) == 4
    finally:
        await in_java(other.stop)


async def test_unit_mode_marks_topics_and_client_ids(java_clients, cluster, name: NameMaker):
    java: JavaClient = java_clients("5.4.0")
    namesrv, group = cluster.namesrv, name("cg")
    by_java, by_python = name("unit"), name("unit")

    def java_sends() -> None:
        with java.producer(namesrv, name("pg"), unit_name="u1") as producer:
            producer.send(by_java, b"x")

    await in_java(java_sends)
    async with Producer(namesrv, group=name("pg"), options=ClientOptions(unit_mode=True, unit_name="u1")) as producer:
        await producer.send(Message(by_python, b"x"))
    flags = {}
    for topic in (by_java, by_python):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    route = await in_java(java.route, namesrv, topic)
                    break
                except Exception:
                    await asyncio.sleep(0.1)
        flags[topic] = route["queueDatas"][0]["topicSysFlag"]
    assert flags == {by_java: 1, by_python: 1}
    async with PushConsumer(namesrv, group=group, options=ClientOptions(unit_mode=True, unit_name="u1")) as consumer:
        consumer.subscribe(by_python, "*", Inbox())
        await consumer.start()
        retry = await in_java(java.route, namesrv, f"%RETRY%{group}")
        assert retry["queueDatas"][0]["topicSysFlag"] == 2
