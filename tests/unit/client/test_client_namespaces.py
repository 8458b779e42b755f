"""Namespaces and units: wrapped on the wire, unseen by the user."""

from __future__ import annotations

import pytest
from tests.unit.client.fakes import QUICK, FakeCluster, until

from rocketline.client import (
    ClientOptions,
    ConsumeContext,
    ConsumeFrom,
    Producer,
    PullConsumer,
    PushConsumer,
    RetryLater,
)
from rocketline.client.identity import client_id
from rocketline.errors import ClientError, ConfigError, InvalidMessage
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.properties import decode_properties

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


def sends(cluster: FakeCluster) -> list[SendMessageHeader]:
    return [SendMessageHeader.decode(request) for request in cluster.broker.requests_of(SEND, BATCH)]


def pushing(cluster: FakeCluster, **options: object) -> PushConsumer:
    named = ClientOptions(namespace="NS", timing=QUICK)
    made = {"group": "g", "from_where": ConsumeFrom.FIRST, "options": named, **options}
    return PushConsumer(cluster.namesrv, **made)  # type: ignore[arg-type]


async def test_a_producers_names_are_wrapped_on_the_wire(cluster: FakeCluster) -> None:
    cluster.add_topic("NS%T", 2)
    async with Producer(cluster.namesrv, group="shop", options=ClientOptions(namespace="NS", timing=QUICK)) as producer:
        assert producer.group == "shop"
        queues = await producer.queues("T")
        assert queues == (MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1))
        receipt = await producer.send(Message("T", b"x", properties={"a": "b"}))
        fixed = await producer.send(Message("T", b"x"), queue=queues[1])
        chosen = await producer.send(Message("NS%T", b"x"), queue=lambda queues, _: queues[1])
        (batched,) = await producer.send_batch([Message("T", b"x")])
        await producer.send_oneway(Message("T", b"x"))
        await until(lambda: len(sends(cluster)) == 5)
        with pytest.raises(InvalidMessage, match="queue"):
            await producer.send(Message("U", b"x"), queue=queues[0])
    assert {header.topic for header in sends(cluster)} == {"NS%T"}
    assert {header.producer_group for header in sends(cluster)} == {"NS%shop"}
    assert decode_properties(sends(cluster)[0].properties)["INSTANCE_ID"] == "NS"
    assert {item.queue.topic for item in (receipt, fixed, chosen, batched)} == {"T"}
    assert (fixed.queue, chosen.queue) == (queues[1], queues[1])
    assert [item.group_name for item in cluster.broker.heartbeats[0].producer_data_set] == ["NS%shop"]


async def test_a_push_consumers_names_are_wrapped_on_the_wire(cluster: FakeCluster) -> None:
    cluster.add_topic("NS%T", 1)
    cluster.broker.store("NS%T", 0, b"x")
    seen: list[MessageView] = []
    contexts: list[ConsumeContext] = []
    async with pushing(cluster) as consumer:
        consumer.subscribe("T", "*", seen.append)
        consumer.add_hook(contexts.append)
        assert consumer.group == "g"
        await consumer.start()
        await until(lambda: bool(seen))
        assert consumer.assigned == {MessageQueue("T", "broker-a", 0), MessageQueue("%RETRY%g", "broker-a", 0)}
        assert set(consumer.stats) == {"T"}
    (data,) = cluster.broker.heartbeats[0].consumer_data_set
    assert data.group_name == "NS%g"
    assert {item.topic for item in data.subscription_data_set} == {"NS%T", "%RETRY%NS%g"}
    assert (seen[0].topic, seen[0].queue.topic) == ("T", "T")
    assert (contexts[0].group, contexts[0].namespace, contexts[0].queue.topic) == ("g", "NS", "T")
    assert cluster.broker.committed["NS%g", "NS%T", 0] == 1


async def test_failed_messages_go_back_wrapped_and_return_unwrapped(cluster: FakeCluster) -> None:
    cluster.add_topic("NS%T", 1)
    cluster.broker.store("NS%T", 0, b"x")
    seen: list[str] = []

    async def handle(message: MessageView) -> None:
        seen.append(message.topic)
        if len(seen) == 1:
            raise RetryLater

    async with pushing(cluster) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await until(lambda: bool(cluster.broker.sent_back))
        (header,) = cluster.broker.sent_back
        assert (header.group, header.origin_topic) == ("NS%g", "NS%T")
        cluster.broker.store("%RETRY%NS%g", 0, b"x", {"RETRY_TOPIC": "NS%T"})
        await until(lambda: len(seen) == 2)
    assert seen == ["T", "T"]


async def test_a_copy_for_the_retry_topic_names_the_wrapped_topic(cluster: FakeCluster) -> None:
    cluster.add_topic("NS%T", 1)
    cluster.broker.store("NS%T", 0, b"x")
    cluster.broker.on[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda r: r.reply(ResponseCode.SYSTEM_ERROR, remark="no")

    async def handle(message: MessageView) -> None:
        raise RetryLater

    async with pushing(cluster) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        request = await cluster.broker.request(SEND)
    header = SendMessageHeader.decode(request)
    assert header.topic == "%RETRY%NS%g"
    assert decode_properties(header.properties)["RETRY_TOPIC"] == "NS%T"


async def test_brokers_ask_by_wrapped_names(cluster: FakeCluster) -> None:
    cluster.add_topic("NS%T", 1)
    cluster.broker.store("NS%T", 0, b"x")
    seen: list[str] = []

    async def handle(message: MessageView) -> None:
        seen.append(message.topic)

    async with pushing(cluster) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await until(lambda: len(seen) == 1)
        record = cluster.broker.queues["NS%T", 0].records[0]
        answer = await cluster.broker.ask_client(
            Command(
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                {"consumerGroup": "NS%g", "clientId": consumer.client_id, "brokerName": "broker-a"},
                record,
            )
        )
        assert b"CR_SUCCESS" in answer.body
        assert seen == ["T", "T"]


async def test_subscriptions_may_change_and_streams_work_in_a_namespace(cluster: FakeCluster) -> None:
    cluster.add_topic("NS%T", 1)
    cluster.add_topic("NS%U", 1)
    cluster.broker.store("NS%U", 0, b"x")
    async with pushing(cluster) as consumer:
        stream = consumer.messages("U")
        with pytest.raises(ClientError, match="already"):
            consumer.messages("NS%U")
        consumer.subscribe("NS%T", "*", lambda message: None)
        message = await anext(stream)
        assert message.topic == "U"
        consumer.unsubscribe("T")
        await until(lambda: not any(queue.topic == "T" for queue in consumer.assigned))


async def test_a_pull_consumers_names_are_wrapped_on_the_wire(cluster: FakeCluster) -> None:
    cluster.add_topic("NS%T", 1)
    for body in (b"1", b"2", b"3"):
        cluster.broker.store("NS%T", 0, body)
    async with PullConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=ClientOptions(namespace="NS", timing=QUICK)
    ) as consumer:
        (queue,) = await consumer.queues("T")
        assert queue == MessageQueue("T", "broker-a", 0)
        consumer.assign([queue])
        assert consumer.assigned == {queue}
        (message,) = await consumer.poll(max_messages=1)
        assert message.topic == "T"
        assert consumer.position(queue) == 1
        await consumer.commit()
        assert await consumer.committed(queue) == 1
        assert (await consumer.begin_offset(queue), await consumer.end_offset(queue)) == (0, 3)
        await consumer.seek(queue, 2)
        await consumer.commit([queue])
    assert cluster.broker.committed == {("NS%g", "NS%T", 0): 2}


async def test_units_show_in_heartbeats_headers_and_client_ids(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with Producer(
        cluster.namesrv, group="shop", options=ClientOptions(unit_mode=True, unit_name="u1", timing=QUICK)
    ) as producer:
        await producer.send(Message("T", b"x"))
        assert producer.client_id.endswith("@u1")
    async with PushConsumer(
        cluster.namesrv, group="g", options=ClientOptions(unit_mode=True, unit_name="u1", timing=QUICK)
    ) as consumer:
        consumer.subscribe("T", "*", lambda message: None)
        await consumer.start()
        assert consumer.client_id.endswith("@u1")
    assert sends(cluster)[0].unit_mode
    beats = [beat for beat in cluster.broker.heartbeats if beat.consumer_data_set]
    assert beats[0].consumer_data_set[0].unit_mode
    assert client_id("i", ip="10.0.0.1", unit="u", stream=True) == "10.0.0.1@i@u@STREAM"
    with pytest.raises(ConfigError, match="unit name"):
        client_id("i", unit="a/b")


def test_wrapped_names_have_the_limits_of_names() -> None:
    with pytest.raises(InvalidMessage, match="120"):
        Producer("127.0.0.1:1", group="g" * 100, options=ClientOptions(namespace="n" * 30))
    with pytest.raises(ConfigError, match="namespace"):
        PushConsumer("127.0.0.1:1", group="g", options=ClientOptions(namespace="a%b"))
