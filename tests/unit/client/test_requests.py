"""Requests and replies against a scripted broker."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

import pytest
from tests.support.patience import PATIENCE_MS, PATIENCE_S
from tests.unit.client.fakes import QUICK_OPTIONS, FakeBroker, FakeCluster, own_tasks, until

from rocketline.client import ConsumeFrom, Producer, PushConsumer
from rocketline.errors import ConsumerClosed, InvalidMessage, NoReply, ProducerClosed, SendFailed
from rocketline.message import LogOffset, Message, MessageView, QueueOffset
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PushReplyHeader, SendMessageHeader, SendMessageResponseHeader
from rocketline.protocol.properties import decode_properties, encode_properties

SEND, REPLY = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[Producer]:
    cluster.add_topic("T")
    async with Producer(cluster.namesrv, group="askers", options=QUICK_OPTIONS) as made:
        yield made


def pushed(correlation_id: str, body: bytes = b"yes", sys_flag: int = 0, **properties: str) -> Command:
    """A reply as a broker hands it over."""
    text = encode_properties({"CORRELATION_ID": correlation_id, "MSG_TYPE": "reply", **properties})
    header = PushReplyHeader(
        "repliers", "C_REPLY_TOPIC", "TBW102", 4, 0, sys_flag, 1000, 7, text,
        born_host="127.0.0.1:5", store_host="127.0.0.1:6", store_ms=2000,
    )  # fmt: skip
    return Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header.encode(), body)


async def asked(broker: FakeBroker, count: int = 1) -> dict[str, str]:
    """The properties of a request that has come."""
    request = await broker.request(SEND, count)
    return decode_properties(SendMessageHeader.decode(request).properties)


async def test_a_request_brings_its_reply(producer: Producer, cluster: FakeCluster) -> None:
    asking = asyncio.create_task(producer.request(Message("T", b"well?"), timeout=PATIENCE_S))
    properties = await asked(cluster.broker)
    assert (properties["REPLY_TO_CLIENT"], properties["TTL"]) == (producer.client_id, str(PATIENCE_MS))
    answer = await cluster.broker.ask_client(pushed(properties["CORRELATION_ID"], colour="blue"))
    assert answer.code == ResponseCode.SUCCESS
    reply = await asking
    assert (reply.body, reply.topic, reply.flag, reply.properties["colour"]) == (b"yes", "C_REPLY_TOPIC", 7, "blue")
    assert (reply.born_ms, reply.born_host, reply.store_ms, reply.store_host) == (
        1000,
        "127.0.0.1:5",
        2000,
        "127.0.0.1:6",
    )
    assert "ARRIVE_TIME" in reply.properties
    assert producer.late_replies == 0


async def test_a_broker_knows_the_asker_before_the_request_comes(producer: Producer, cluster: FakeCluster) -> None:
    asking = asyncio.create_task(producer.request(Message("T", b"well?"), timeout=PATIENCE_S))
    properties = await asked(cluster.broker)
    codes = [request.code for request in cluster.broker.requests]
    assert codes.index(RequestCode.HEART_BEAT) < codes.index(SEND)
    await cluster.broker.ask_client(pushed(properties["CORRELATION_ID"]))
    await asking


async def test_after_a_new_connection_it_is_told_again(producer: Producer, cluster: FakeCluster) -> None:
    await producer.send(Message("T", b"x"))
    await until(lambda: bool(cluster.broker.heartbeats), "the first heartbeat")
    await cluster.broker.restart()
    await until(lambda: not cluster.broker.channels, "the end of the old connection")
    before = len(cluster.broker.heartbeats)
    asking = asyncio.create_task(producer.request(Message("T", b"well?"), timeout=PATIENCE_S))
    properties = await asked(cluster.broker, 2)
    assert len(cluster.broker.heartbeats) > before
    await cluster.broker.ask_client(pushed(properties["CORRELATION_ID"]))
    await asking


async def test_replies_find_their_own_requests(producer: Producer, cluster: FakeCluster) -> None:
    asking = [
        asyncio.create_task(producer.request(Message("T", b"%d" % number), timeout=PATIENCE_S)) for number in range(20)
    ]
    await cluster.broker.request(SEND, 20)
    for request in reversed(cluster.broker.requests_of(SEND)):
        properties = decode_properties(SendMessageHeader.decode(request).properties)
        await cluster.broker.ask_client(pushed(properties["CORRELATION_ID"], b"re " + request.body))
    assert [(await task).body for task in asking] == [b"re %d" % number for number in range(20)]


async def test_no_reply_is_an_error_and_a_late_one_is_counted(producer: Producer, cluster: FakeCluster) -> None:
    with pytest.raises(NoReply, match=r"within 1 s") as failure:
        await producer.request(Message("T", b"well?"), timeout=1.0)
    assert isinstance(failure.value, TimeoutError)
    properties = await asked(cluster.broker)
    assert (await cluster.broker.ask_client(pushed(properties["CORRELATION_ID"]))).code == ResponseCode.SUCCESS
    await cluster.broker.ask_client(pushed("never asked"))
    assert producer.late_replies == 2


async def test_a_second_reply_is_late(producer: Producer, cluster: FakeCluster) -> None:
    asking = asyncio.create_task(producer.request(Message("T", b"well?"), timeout=PATIENCE_S))
    properties = await asked(cluster.broker)
    (channel,) = cluster.broker.channels
    both = [channel.call(pushed(properties["CORRELATION_ID"], body), PATIENCE_S) for body in (b"one", b"two")]
    await asyncio.gather(*both)
    assert (await asking).body == b"one"
    assert producer.late_replies == 1


async def test_a_send_that_fails_says_why(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.on[SEND] = lambda request: request.reply(ResponseCode.SYSTEM_ERROR, remark="as scripted")
    with pytest.raises(SendFailed, match="as scripted"):
        await producer.request(Message("T", b"well?"), timeout=PATIENCE_S)


async def test_nothing_is_left_of_requests_that_are_over(producer: Producer, cluster: FakeCluster) -> None:
    with pytest.raises(NoReply):
        await producer.request(Message("T", b"well?"), timeout=1.0)
    asking = asyncio.create_task(producer.request(Message("T", b"well?"), timeout=PATIENCE_S))
    await asked(cluster.broker, 2)
    asking.cancel()
    await asyncio.wait([asking])
    assert len(producer._open_session.requests) == 0
    assert asking not in own_tasks()


async def test_a_compressed_reply_is_inflated(producer: Producer, cluster: FakeCluster) -> None:
    asking = asyncio.create_task(producer.request(Message("T", b"well?"), timeout=PATIENCE_S))
    properties = await asked(cluster.broker)
    await cluster.broker.ask_client(
        pushed(properties["CORRELATION_ID"], zlib.compress(b"long " * 1000), sys_flag=0x301)
    )
    reply = await asking
    assert (reply.body, reply.sys_flag & 1) == (b"long " * 1000, 0)


async def test_a_reply_that_is_nonsense_is_refused(producer: Producer, cluster: FakeCluster) -> None:
    await producer.send(Message("T", b"x"))
    answer = await cluster.broker.ask_client(pushed("c", b"not zlib", sys_flag=0x1))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    answer = await cluster.broker.ask_client(Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, {"topic": "x"}))
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_closed_producer_says_so(cluster: FakeCluster) -> None:
    producer = Producer(cluster.namesrv, group="askers", options=QUICK_OPTIONS)
    with pytest.raises(ProducerClosed):
        await producer.request(Message("T", b"well?"))
    with pytest.raises(ProducerClosed):
        await producer.reply(request_view(), b"yes")


def request_view(broker_name: str = "broker-a", **properties: str) -> MessageView:
    """A request as a consumer got it."""
    return MessageView(
        topic="T",
        body=b"well?",
        properties={
            "CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "client-9", "TTL": "3000", "CLUSTER": "C", "UNIQ_KEY": "U1",
            **properties,
        },
        queue_id=0,
        queue_offset=QueueOffset(0),
        log_offset=LogOffset(0),
        born_ms=0,
        born_host="127.0.0.1:1",
        store_ms=0,
        store_host="127.0.0.1:2",
        broker_name=broker_name,
    )  # fmt: skip


def takes_replies(broker: FakeBroker) -> None:
    def stored(request: Command) -> Command:
        return request.reply(0, SendMessageResponseHeader("0", 0, QueueOffset(0)).encode())

    broker.on[REPLY] = stored


async def test_a_reply_goes_to_the_broker_the_request_came_from(two_brokers: FakeCluster) -> None:
    two_brokers.add_topic("C_REPLY_TOPIC", 1)
    for broker in two_brokers.brokers:
        takes_replies(broker)
    async with Producer(two_brokers.namesrv, group="repliers", options=QUICK_OPTIONS) as producer:
        for _ in range(4):
            receipt = await producer.reply(request_view("broker-b"), b"yes", properties={"colour": "blue"})
    assert receipt.queue.broker_name == "broker-b"
    first, second = (broker.requests_of(REPLY) for broker in two_brokers.brokers)
    assert (len(first), len(second)) == (0, 4)
    header = SendMessageHeader.decode(second[0])
    properties = decode_properties(header.properties)
    assert (header.topic, header.producer_group, second[0].body) == ("C_REPLY_TOPIC", "repliers", b"yes")
    assert {name: properties[name] for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE", "colour")} == {
        "CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "client-9", "TTL": "3000", "MSG_TYPE": "reply", "colour": "blue"
    }  # fmt: skip


async def test_a_consumer_replies_from_its_handler(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.add_topic("C_REPLY_TOPIC", 1)
    takes_replies(cluster.broker)
    async with PushConsumer(
        cluster.namesrv, group="repliers", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
    ) as consumer:

        async def handle(message: MessageView) -> None:
            await consumer.reply(message, b"re " + message.body)

        consumer.subscribe("T", "*", handle)
        await consumer.start()
        cluster.broker.store("T", 0, b"well?", request_view().properties)
        reply = await cluster.broker.request(REPLY)
    assert reply.body == b"re well?"
    with pytest.raises(ConsumerClosed):
        await consumer.reply(request_view(), b"x")


@pytest.mark.parametrize("missing", ["CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER"])
async def test_what_is_no_request_cannot_be_replied_to(producer: Producer, missing: str) -> None:
    view = request_view()
    del view.properties[missing]
    with pytest.raises(InvalidMessage, match=missing):
        await producer.reply(view, b"yes")


async def test_a_reply_nobody_takes_fails_once(producer: Producer, cluster: FakeCluster) -> None:
    cluster.add_topic("C_REPLY_TOPIC", 1)
    cluster.broker.on[REPLY] = lambda request: request.reply(ResponseCode.SYSTEM_ERROR, remark="channel not found")
    with pytest.raises(SendFailed, match="channel not found"):
        await producer.reply(request_view(), b"yes")
    assert len(cluster.broker.requests_of(REPLY)) == 1


async def test_an_empty_reply_is_refused_here(producer: Producer) -> None:
    with pytest.raises(InvalidMessage, match="empty"):
        await producer.reply(request_view(), b"")
