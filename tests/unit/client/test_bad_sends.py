"""What goes wrong for a producer, each with an error of its own that says who, what and how to go on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, SILENCE, FakeCluster

from rocketline.client import ClientOptions, Producer, Retries, SendStatus, TransactionalProducer
from rocketline.clock import ManualClock
from rocketline.errors import (
    BrokerError,
    ClientError,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    InvalidBody,
    InvalidMessage,
    MessageIllegal,
    MessageTooLarge,
    NoPermission,
    NoReply,
    ProducerClosed,
    RemoteProtocolError,
    RouteNotFound,
    SendFailed,
)
from rocketline.message import Message, MessageQueue
from rocketline.protocol.bodies import BrokerData, QueueData, TopicRouteData
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[Producer]:
    cluster.add_topic("T")
    async with Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as made:
        yield made


@pytest.mark.parametrize(
    ("message", "error", "hint"),
    [
        ("hello", InvalidMessage, r"'hello' is no message: send Message\(topic, body\)"),
        (Message("", b"x"), InvalidMessage, "the topic is empty: a message needs the name of one"),
        (Message("a b", b"x"), InvalidMessage, "topic"),
        (Message("T" * 128, b"x"), InvalidMessage, "127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), InvalidMessage, "belongs to the broker"),
        (Message("T", b""), InvalidMessage, "is empty"),
        (Message("T", "text"), InvalidBody, r"topic 'T' is of type str: encode it, text.encode\(\)"),
        (Message("T", 5), InvalidBody, "topic 'T' is of type int: bytes are needed"),
        (Message("T", b"x" * (4 * 1024 * 1024 + 1)), MessageTooLarge, "maxMessageSize on the broker"),
        (Message("T", b"x", properties={"k": "a\x01b"}), InvalidMessage, "'k'.*leave it out, or encode"),
        (Message("T", b"x", properties={"a\x02": "b"}), InvalidMessage, r"a\\x02"),
        (Message("T", b"x", delay_level=19), InvalidMessage, "to 18 expected"),
        (Message("T", b"x", delay=timedelta(seconds=-1)), InvalidMessage, "below zero"),
        (Message("T", b"x", delay=timedelta(seconds=1), delay_level=1), InvalidMessage, "more than one"),
        (Message("T", b"x", deliver_at=datetime(2030, 1, 1)), InvalidMessage, "time zone"),
        (Message("T", b"x", sharding_key=""), InvalidMessage, "sharding_key"),
        (Message("T", b"x", sharding_key=7), InvalidMessage, "text is needed"),  # type: ignore[arg-type]
        (Message("T", b"x", flag=1 << 31), InvalidMessage, "32 bits"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"autobatch": True}], ids=["single", "gathered"])
async def test_a_message_no_broker_takes_is_never_sent(
    cluster: FakeCluster, options: dict[str, Any], message: Message, error: type[Exception], hint: str
) -> None:
    cluster.add_topic("T")
    async with Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS, **options) as producer:
        for send in (producer.send, producer.send_oneway, producer.request):
            with pytest.raises(error, match=hint):
                await send(message)
    assert not cluster.broker.requests_of(SEND, BATCH)


async def test_a_delay_beyond_the_brokers_maximum_is_its_refusal(producer: Producer, cluster: FakeCluster) -> None:
    remark = "the timer message is illegal, the delay time should not be bigger than the max delay 259200000ms"
    cluster.broker.on[SEND] = lambda request: request.reply(ResponseCode.MESSAGE_ILLEGAL, remark=remark)
    with pytest.raises(MessageIllegal, match=r"answer 13 from 127\.0\.0\.1.*259200000ms\. Hint: .*timerMaxDelaySec"):
        await producer.send(Message("T", b"x", deliver_at=datetime.now(UTC) + timedelta(days=30)))
    assert len(cluster.broker.requests_of(SEND)) == 1, "another broker would refuse it as well"


async def test_a_transaction_needs_both_its_functions(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    with pytest.raises(ConfigError, match="needs check="):
        TransactionalProducer(cluster.namesrv, group="g")
    async with TransactionalProducer(
        cluster.namesrv, group="g", check=lambda message: None, options=QUICK_OPTIONS
    ) as producer:  # type: ignore[arg-type, return-value]
        with pytest.raises(InvalidMessage, match="execute must be a function"):
            await producer.send_in_transaction(Message("T", b"x"), None)  # type: ignore[arg-type]
    assert not cluster.broker.requests_of(SEND)


async def test_a_request_nobody_answers_asks_for_its_consumer(producer: Producer) -> None:
    with pytest.raises(NoReply, match="does a consumer of the topic run"):
        await producer.request(Message("T", b"x"), timeout=1.0)


async def test_a_closed_producer_says_how_to_use_it(cluster: FakeCluster) -> None:
    producer = Producer(cluster.namesrv, group="g", options=QUICK_OPTIONS)
    message = Message("T", b"x")
    calls = (producer.send, producer.send_oneway, producer.submit, producer.request, lambda m: producer.send_batch([m]))
    for call in calls:
        with pytest.raises(ProducerClosed, match="'g' is not running: use it inside 'async with'"):
            await call(message)


async def test_an_empty_answer_is_nonsense_of_that_broker(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.on[SEND] = lambda request: request.reply(ResponseCode.SUCCESS)
    with pytest.raises(
        RemoteProtocolError, match=rf"{cluster.broker.address} .*msgId.*Hint: the message may be stored"
    ):
        await producer.send(Message("T", b"x"))
    assert len(cluster.broker.requests_of(SEND)) == 1, "it may be stored: sending again could store it twice"


async def test_an_answer_to_a_batch_with_too_few_ids_is_nonsense(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.on[BATCH] = lambda request: request.reply(0, {"msgId": "A" * 32, "queueId": "0", "queueOffset": "0"})
    with pytest.raises(RemoteProtocolError, match=r"a batch of 2 to T@broker-a:. has 1 ids"):
        await producer.send_batch([Message("T", b"x")] * 2)


async def test_a_server_that_speaks_something_else_is_named(cluster: FakeCluster) -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(web, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    cluster.name_server.routes["T"] = TopicRouteData(
        [BrokerData("c", "web", {0: address})], [QueueData("web", 4, 4, 6)]
    )
    async with server, Producer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as producer:
        with pytest.raises(SendFailed, match=f"{address}.*not RocketMQ's protocol.*is it a broker's address") as caught:
            await producer.send(Message("T", b"x"))
        assert isinstance(caught.value.__cause__, ConnectionLost)


async def test_a_broker_that_is_not_there_is_named_with_its_address(cluster: FakeCluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets it, nobody answers
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        cluster.name_server.routes["T"] = TopicRouteData(
            [BrokerData("c", "gone", {0: address})], [QueueData("gone", 4, 4, 6)]
        )
        async with Producer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as producer:
            with pytest.raises(SendFailed, match=f"gone@{address}.*refused") as caught:
                await producer.send(Message("T", b"x"), timeout=0.5)
            assert isinstance(caught.value.__cause__, ConnectFailed)


async def test_a_broker_that_allows_nothing_never_reads_as_no_route(producer: Producer, cluster: FakeCluster) -> None:
    remark = "No accessKey is configured"
    cluster.broker.on[SEND] = lambda request: request.reply(ResponseCode.NO_PERMISSION, remark=remark)
    with pytest.raises(NoPermission, match=r"answer 16 from .*No accessKey.*Hint: check the credentials") as caught:
        await producer.send(Message("T", b"x"))
    assert "no route" not in str(caught.value)
    assert len(cluster.broker.requests_of(SEND)) == 1, "a refused account is not tried again"


async def test_a_name_server_that_allows_nothing_never_reads_as_no_route(cluster: FakeCluster) -> None:
    cluster.name_server.on[ROUTE] = lambda request: request.reply(ResponseCode.NO_PERMISSION, remark="signature wrong")
    async with Producer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as producer:
        with pytest.raises(NoPermission, match=r"where topic 'T' is.*signature wrong.*check the credentials") as caught:
            await producer.send(Message("T", b"x"))
    assert not isinstance(caught.value, RouteNotFound) and "no route" not in str(caught.value)
    assert caught.value.address == cluster.namesrv


async def test_a_selector_must_return_a_queue(producer: Producer, cluster: FakeCluster) -> None:
    with pytest.raises(InvalidMessage, match="selector for topic 'T' returned 3"):
        await producer.send(Message("T", b"x"), queue=lambda queues, message: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(RouteNotFound, match="no route has ever named a broker 'elsewhere'"):
        await producer.send(Message("T", b"x"), queue=lambda queues, message: MessageQueue("T", "elsewhere", 0))
    assert not cluster.broker.requests_of(SEND)


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
async def test_every_code_that_is_retried(producer: Producer, cluster: FakeCluster, code: int) -> None:
    cluster.broker.script(SEND, code)
    receipt = await producer.send(Message("T", b"x"))
    assert len(cluster.broker.requests_of(SEND)) == 2 and receipt.message_id


@pytest.mark.parametrize("code", [3, 13, 29, 215, 604, 999])
async def test_other_codes_are_final(producer: Producer, cluster: FakeCluster, code: int) -> None:
    cluster.broker.script(SEND, code)
    with pytest.raises(BrokerError) as caught:
        await producer.send(Message("T", b"x"))
    assert caught.value.code == code and len(cluster.broker.requests_of(SEND)) == 1


async def test_an_attempt_may_have_a_limit_of_its_own(two_brokers: FakeCluster) -> None:
    two_brokers.add_topic("T", 1)
    silent, working = two_brokers.brokers
    silent.on[SEND] = lambda request: None
    retries = Retries(20, attempt_timeout_s=1.0)
    async with Producer(
        two_brokers.namesrv, group="g", timeout=PATIENCE_S, retries=retries, options=QUICK_OPTIONS
    ) as producer:
        for _ in range(2):
            assert (await producer.send(Message("T", b"x"))).queue.broker_name == working.name
    assert silent.requests_of(SEND)


async def test_the_last_attempt_gets_all_the_time_that_is_left(cluster: FakeCluster) -> None:
    cluster.add_topic("T")

    async def late(request: Command) -> Command:
        await asyncio.sleep(0.4)
        reply = cluster.broker.habit(next(iter(cluster.broker.channels)), request)
        assert isinstance(reply, Command)
        return reply

    retries = Retries(attempt_timeout_s=0.3)
    async with Producer(
        cluster.namesrv, group="g", timeout=PATIENCE_S, retries=retries, options=QUICK_OPTIONS
    ) as producer:
        await producer.send(Message("T", b"x"))  # connects, which may take an attempt on a busy machine
        before = len(cluster.broker.requests_of(SEND))
        cluster.broker.script(SEND, SILENCE, SILENCE, late)
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.OK
    assert len(cluster.broker.requests_of(SEND)) == before + 3


async def test_health_is_learned_from_sends(two_brokers: FakeCluster) -> None:
    two_brokers.add_topic("T")
    busy, working = two_brokers.brokers
    busy.on[SEND] = lambda request: request.reply(ResponseCode.SYSTEM_BUSY, remark="busy")
    options = ClientOptions(timing=QUICK, clock=ManualClock())
    async with Producer(two_brokers.namesrv, group="g", avoid_slow_brokers=True, options=options) as producer:
        for _ in range(20):
            await producer.send(Message("T", b"x"))
    assert len(busy.requests_of(SEND)) == 1, "one refusal is enough for ten seconds"
    assert len(working.requests_of(SEND)) == 20


async def test_a_refusal_about_the_message_says_nothing_about_the_broker(two_brokers: FakeCluster) -> None:
    two_brokers.add_topic("T")
    for broker in two_brokers.brokers:
        broker.script(SEND, 13, 13)
    options = ClientOptions(timing=QUICK, clock=ManualClock())  # or a busy machine is taken for a slow broker
    async with Producer(two_brokers.namesrv, group="g", avoid_slow_brokers=True, options=options) as producer:
        for _ in range(16):
            try:
                await producer.send(Message("T", b"x"))
            except MessageIllegal:
                continue
    assert [len(broker.requests_of(SEND)) for broker in two_brokers.brokers] == [8, 8]


@pytest.mark.parametrize("options", [{"timeout": 0.0}, {"retries": -1}, {"max_in_flight": 0}])
async def test_options_that_make_no_sense_are_named(cluster: FakeCluster, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Producer(cluster.namesrv, group="g", **options)


async def test_a_group_lives_once(cluster: FakeCluster) -> None:
    async with Producer(cluster.namesrv, group="g", options=ClientOptions(instance_name="i", timing=QUICK)):
        with pytest.raises(ClientError, match="instance_name"):
            async with Producer(cluster.namesrv, group="g", options=ClientOptions(instance_name="i", timing=QUICK)):
                pass
