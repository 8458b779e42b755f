"""What producers and consumers tell to a trace topic, and that nothing of it can hurt them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.client.fakes import QUICK, SILENCE, FakeCluster, own_tasks, until

from rocketline.client import ClientOptions, ConsumeFrom, Producer, PushConsumer, RetryLater
from rocketline.client.session import open_session
from rocketline.client.trace import MOST_WAITING, ProducerTrace
from rocketline.errors import ConfigError
from rocketline.message import Message, MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.compression import decompress
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.trace import Pub, Recall, SubAfter, SubBefore, TracedMessage, TraceRecord, decode_traces

TRACES = "RMQ_SYS_TRACE_TOPIC"
SEND = RequestCode.SEND_MESSAGE_V2


def trace_messages(cluster: FakeCluster, topic: str = TRACES) -> list[tuple[SendMessageHeader, list[TraceRecord]]]:
    found = []
    for request in cluster.broker.requests_of(SEND):
        header = SendMessageHeader.decode(request)
        if header.topic == topic:
            body = decompress(request.body, header.sys_flag) if header.sys_flag else request.body
            found.append((header, decode_traces(body)))
    return found


def records(cluster: FakeCluster, topic: str = TRACES) -> list[TraceRecord]:
    return [record for _, part in trace_messages(cluster, topic) for record in part]


def refuse_traces(cluster: FakeCluster, code: int = ResponseCode.TOPIC_NOT_EXIST) -> None:
    def answer(request: Command) -> Any:
        if SendMessageHeader.decode(request).topic == TRACES:
            return request.reply(code, remark="no traces here")
        return cluster.broker.habit(next(iter(cluster.broker.channels)), request)

    cluster.broker.on[SEND] = answer


async def test_a_producers_traces(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.add_topic(TRACES, 1)
    async with Producer(cluster.namesrv, group="shop", options=ClientOptions(trace=True, timing=QUICK)) as producer:
        receipt = await producer.send(Message("T", b"hello", tag="a", keys=["k1", "k2"]))
        delayed = await producer.send(Message("T", b"later", delay_level=3))
        batch = await producer.send_batch([Message("T", b"y"), Message("T", b"z")])
        await producer.send_oneway(Message("T", b"nobody knows"))
        await producer.send(Message(TRACES, b"a trace is not traced"))
    pubs = [record for record in records(cluster) if isinstance(record, Pub)]
    assert [pub.message_id for pub in pubs] == [
        receipt.message_id,
        delayed.message_id,
        *(item.message_id for item in batch),
    ]
    first = pubs[0]
    assert (first.group, first.topic, first.region) == ("shop", "T", "DefaultRegion")
    assert (first.tags, first.keys, first.body_bytes) == ("a", "k1 k2", 5)
    assert (first.store_host, first.offset_id, first.success) == (cluster.broker.address, receipt.offset_id, True)
    assert [pub.kind for pub in pubs[:2]] == [TracedMessage.NORMAL, TracedMessage.DELAYED]
    (header, _) = next(item for item in trace_messages(cluster) if item[1])
    assert header.producer_group.startswith("_INNER_TRACE_PRODUCER-shop-PRODUCE-")
    keys = decode_properties(header.properties)["KEYS"].split()
    assert keys[:4] == [receipt.message_id, "k1", "k2", delayed.message_id]
    assert producer.trace_counts.sent == 3


async def test_a_consumers_traces(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.add_topic("my_traces", 1)
    regional = {"MSG_REGION": "R", "UNIQ_KEY": "ID1", "KEYS": "k"}
    cluster.broker.store("T", 0, b"good", regional, reconsume_times=2)
    cluster.broker.store("T", 0, b"bad", {**regional, "UNIQ_KEY": "ID2"})
    cluster.broker.store("T", 0, b"off", {**regional, "TRACE_ON": "false"})
    cluster.broker.store("T", 0, b"no region")
    handled: list[bytes] = []

    async def handle(message: MessageView) -> None:
        handled.append(message.body)
        if message.body == b"bad":
            raise RetryLater

    async with PushConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        concurrency=1,
        options=ClientOptions(trace="my_traces", timing=QUICK),
    ) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await until(lambda: len(handled) == 4)
    begins = [record for record in records(cluster, "my_traces") if isinstance(record, SubBefore)]
    ends = [record for record in records(cluster, "my_traces") if isinstance(record, SubAfter)]
    assert [(r.message_id, r.region, r.group, r.retry_times, r.keys) for r in begins] == [
        ("ID1", "R", "g", 2, "k"),
        ("ID2", "R", "g", 0, "k"),
    ]
    assert [(r.message_id, r.success, r.outcome, r.group) for r in ends] == [
        ("ID1", True, 0, "g"),
        ("ID2", False, 4, "g"),
    ]
    assert [r.request_id for r in begins] == [r.request_id for r in ends]
    assert consumer.trace_counts.sent == 4


async def test_ten_are_sent_at_once_and_fewer_after_a_while(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.add_topic(TRACES, 1)
    timing = replace(QUICK, trace_s=3600.0)
    async with Producer(cluster.namesrv, group="shop", options=ClientOptions(trace=True, timing=timing)) as producer:
        for _ in range(9):
            await producer.send(Message("T", b"x"))
        assert not trace_messages(cluster)
        await producer.send(Message("T", b"x"))
        await until(lambda: len(records(cluster)) == 10)
    timing = replace(QUICK, trace_s=0.01)
    async with Producer(cluster.namesrv, group="shop", options=ClientOptions(trace=True, timing=timing)) as producer:
        await producer.send(Message("T", b"x"))
        await until(lambda: len(records(cluster)) == 11)


async def test_a_broker_may_switch_traces_off(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.add_topic(TRACES, 1)

    def answer(request: Command) -> Any:
        reply = cluster.broker._send(request)
        assert isinstance(reply, Command)
        assert reply.ext is not None
        reply.ext["TRACE_ON"] = "false"
        return reply

    cluster.broker.on[SEND] = answer
    async with Producer(cluster.namesrv, group="shop", options=ClientOptions(trace=True, timing=QUICK)) as producer:
        await producer.send(Message("T", b"x"))
    assert not trace_messages(cluster)


async def test_refused_traces_are_counted_and_told_once(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.add_topic("T", 1)
    cluster.add_topic(TRACES, 1)
    refuse_traces(cluster, ResponseCode.MESSAGE_ILLEGAL)
    timing = replace(QUICK, trace_s=0.01)
    async with Producer(cluster.namesrv, group="shop", options=ClientOptions(trace=True, timing=timing)) as producer:
        for failed in range(1, 4):
            await producer.send(Message("T", b"x"))
            await until(lambda failed=failed: producer.trace_counts.failed == failed)  # type: ignore[misc]
        warnings = [record for record in caplog.records if "cannot be sent" in record.getMessage()]
        assert len(warnings) == 1
        assert "no traces here" in warnings[0].getMessage()
        assert TRACES in warnings[0].getMessage()
        del cluster.broker.on[SEND]
        with caplog.at_level(logging.INFO, "rocketline.client.trace"):
            await producer.send(Message("T", b"x"))
            await until(lambda: producer.trace_counts.sent == 1)
        assert "taken again" in caplog.text


async def test_a_missing_trace_topic_does_not_hurt_a_consumer(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    before = own_tasks()
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x", {"MSG_REGION": "R"})
    handled: list[MessageView] = []
    async with PushConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=ClientOptions(trace=True, timing=QUICK)
    ) as consumer:
        consumer.subscribe("T", "*", handled.append)
        await consumer.start()
        await until(lambda: len(handled) == 1)
    assert (consumer.trace_counts.failed, consumer.trace_counts.sent) == (2, 0)
    assert "cannot be sent" in caplog.text
    assert cluster.broker.committed["g", "T", 0] == 1
    await until(lambda: own_tasks() <= before)


async def test_a_broker_that_is_silent_about_traces_holds_nobody_up(
    cluster: FakeCluster,
) -> None:
    before = own_tasks()
    cluster.add_topic("T", 1)
    cluster.add_topic(TRACES, 1)
    timing = replace(QUICK, trace_send_s=0.05)
    async with Producer(cluster.namesrv, group="shop", options=ClientOptions(trace=True, timing=timing)) as producer:
        await producer.send(Message("T", b"x"))
        cluster.broker.script(SEND, *[SILENCE] * 10)
    assert (producer.trace_counts.sent, producer.trace_counts.failed) == (0, 1)
    await until(lambda: own_tasks() <= before)


async def traces_of(cluster: FakeCluster, body: Callable[[ProducerTrace], Any]) -> ProducerTrace:
    session = open_session("127.0.0.1@traces", (cluster.namesrv,), ClientOptions(timing=replace(QUICK, trace_s=3600.0)))
    sender = ProducerTrace(session, "shop")
    try:
        result = body(sender)
        if asyncio.iscoroutine(result):
            await result
        await sender.stop()
    finally:
        await session.release()
    return sender


async def test_too_many_traces_are_dropped_and_counted(cluster: FakeCluster) -> None:
    cluster.add_topic(TRACES, 1)
    record = Recall(1, "R", "g", "T", "ID", True)

    async def overflow(sender: ProducerTrace) -> None:
        for _ in range(MOST_WAITING + 5):
            sender.add("T", [record])
        assert sender.counts.dropped == 5
        sender.start()
        await until(lambda: sender.counts.sent == MOST_WAITING)

    sender = await traces_of(cluster, overflow)
    sender.add("T", [record])  # stopped: nobody would send it
    assert sender.counts.dropped == 6
    assert len(records(cluster)) == MOST_WAITING


async def test_a_trace_message_is_about_one_topic_and_bounded(cluster: FakeCluster) -> None:
    cluster.add_topic(TRACES, 1)

    async def fill(sender: ProducerTrace) -> None:
        for number in range(600):
            topic = "A" if number % 2 else "B"
            sender.add(topic, [SubBefore(1, "R", "g", "REQ", f"{number:032x}", 0, "key " * 10)])
        sender.add("C", [SubBefore(1, "R", "g", "REQ", "ID", 0, "x" * 40_000)])
        sender.start()
        await until(lambda: sender.counts.sent == 601)

    await traces_of(cluster, fill)
    parts = trace_messages(cluster)
    assert len(records(cluster)) == 601
    assert len(parts) > 3
    for header, part in parts:
        assert len({int(record.message_id, 16) % 2 for record in part if record.message_id != "ID"}) <= 1
        assert len(header.properties) < 32767


def test_a_trace_topic_must_be_a_topic() -> None:
    with pytest.raises(ConfigError, match="trace: "):
        Producer("127.0.0.1:1", group="shop", options=ClientOptions(trace="no topic"))
    with pytest.raises(ConfigError, match="trace: "):
        PushConsumer("127.0.0.1:1", group="g", options=ClientOptions(trace="../x"))
