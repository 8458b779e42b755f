from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, SILENCE, FakeBroker, FakeCluster, own_tasks, until

from rocketline.client import ClientOptions, Producer, Retries, SendStatus
from rocketline.errors import (
    BrokerError,
    ClientError,
    InvalidMessage,
    MessageIllegal,
    MessageTooLarge,
    ProducerClosed,
    RequestTimeout,
    RouteNotFound,
    SendFailed,
    SystemBusy,
)
from rocketline.message import Message, MessageQueue
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import ONEWAY, Command
from rocketline.protocol.compression import decompress
from rocketline.protocol.headers import RecallMessageHeader, SendMessageHeader
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.recall import RecallHandle

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[Producer]:
    cluster.add_topic("T")
    async with Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as made:
        yield made


def sends(broker: FakeBroker) -> list[SendMessageHeader]:
    return [SendMessageHeader.decode(request) for request in broker.requests_of(SEND, BATCH)]


async def test_a_receipt_says_where_the_message_went(producer: Producer, cluster: FakeCluster) -> None:
    receipt = await producer.send(Message("T", b"hello", tag="a", keys=["k"]))
    (header,) = sends(cluster.broker)
    properties = decode_properties(header.properties)
    assert receipt.status is SendStatus.OK
    assert receipt.message_id == properties["UNIQ_KEY"]
    assert (properties["TAGS"], properties["KEYS"], properties["WAIT"]) == ("a", "k", "true")
    assert receipt.queue == MessageQueue("T", "broker-a", header.queue_id)
    assert receipt.queue_offset == 0
    assert len(receipt.offset_id) == 32
    assert (header.producer_group, header.broker_name) == ("shop", "broker-a")


async def test_queues_are_used_in_turn(producer: Producer, cluster: FakeCluster) -> None:
    for _ in range(40):
        await producer.send(Message("T", b"x"))
    assert Counter(header.queue_id for header in sends(cluster.broker)) == {0: 10, 1: 10, 2: 10, 3: 10}


async def test_topics_take_turns_of_their_own(producer: Producer, cluster: FakeCluster) -> None:
    cluster.add_topic("U")
    for _ in range(8):
        await producer.send(Message("T", b"x"))
        await producer.send(Message("U", b"x"))
    counts = Counter((header.topic, header.queue_id) for header in sends(cluster.broker))
    assert set(counts.values()) == {2}


async def test_many_messages_may_be_in_flight(producer: Producer, cluster: FakeCluster) -> None:
    receipts = await asyncio.gather(*(producer.send(Message("T", b"%d" % number)) for number in range(500)))
    assert len({receipt.message_id for receipt in receipts}) == 500
    assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == 500
    assert len(cluster.name_server.requests_of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1


async def test_messages_in_flight_are_bounded(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    go_on = asyncio.Event()

    async def wait(request: Command) -> Command:
        await go_on.wait()
        reply = cluster.broker.habit(next(iter(cluster.broker.channels)), request)
        assert isinstance(reply, Command)
        return reply

    cluster.broker.on[SEND] = wait
    async with Producer(
        cluster.namesrv, group="g", max_in_flight=3, timeout=PATIENCE_S, options=QUICK_OPTIONS
    ) as producer:
        sending = [asyncio.create_task(producer.send(Message("T", b"x"))) for _ in range(10)]
        await cluster.broker.request(SEND, 3)
        assert len(cluster.broker.requests_of(SEND)) == 3
        go_on.set()
        assert len(await asyncio.gather(*sending)) == 10


async def test_a_caller_may_choose_the_queue(producer: Producer, cluster: FakeCluster) -> None:
    queue = MessageQueue("T", "broker-a", 2)
    receipts = [await producer.send(Message("T", b"x"), queue=queue) for _ in range(3)]
    assert [receipt.queue for receipt in receipts] == [queue] * 3
    with pytest.raises(InvalidMessage, match="U@broker-a:2"):
        await producer.send(Message("T", b"x"), queue=MessageQueue("U", "broker-a", 2))
    with pytest.raises(RouteNotFound, match="ghost"):
        await producer.send(Message("T", b"x"), queue=MessageQueue("T", "ghost", 0))


async def test_a_function_may_choose_the_queue(producer: Producer) -> None:
    def by_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[int(message.keys[0]) % len(queues)]

    receipt = await producer.send(Message("T", b"x", keys=["7"]), queue=by_key)
    assert receipt.queue.queue_id == 3


async def test_a_retry_goes_to_the_other_broker(two_brokers: FakeCluster) -> None:
    two_brokers.add_topic("T")
    failing, working = two_brokers.brokers
    failing.on[SEND] = lambda request: request.reply(2, remark="busy")
    async with Producer(two_brokers.namesrv, group="g", options=QUICK_OPTIONS) as producer:
        for _ in range(8):
            receipt = await producer.send(Message("T", b"x"))
            assert receipt.queue.broker_name == working.name
    assert len(sends(working)) == 8
    assert sends(failing), "round robin comes to the failing broker too"
    ids = {
        decode_properties(header.properties)["UNIQ_KEY"] for broker in two_brokers.brokers for header in sends(broker)
    }
    assert len(ids) == 8, "a retry keeps the unique id"


async def test_a_single_broker_is_tried_three_times(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(SEND, 2, 14)
    assert (await producer.send(Message("T", b"x"))).status is SendStatus.OK
    assert len(sends(cluster.broker)) == 3


async def test_after_the_last_attempt_the_error_tells_of_all(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(SEND, 2, 14, 1)
    with pytest.raises(SendFailed) as caught:
        await producer.send(Message("T", b"x"))
    text = str(caught.value)
    assert "'T'" in text
    assert "3 attempts" in text
    assert f"broker-a@{cluster.broker.address}" in text
    assert all(f"answer {code}" in text for code in (2, 14, 1))
    assert "as scripted" in text
    assert isinstance(caught.value.__cause__, BrokerError)
    assert len(sends(cluster.broker)) == 3


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
async def test_codes_another_broker_may_not_share_are_retried(
    producer: Producer, cluster: FakeCluster, code: int
) -> None:
    cluster.broker.script(SEND, code)
    assert (await producer.send(Message("T", b"x"))).status is SendStatus.OK
    assert len(sends(cluster.broker)) == 2


@pytest.mark.parametrize("code", [13, 29, 3, 604])
async def test_other_refusals_are_final(producer: Producer, cluster: FakeCluster, code: int) -> None:
    cluster.broker.script(SEND, code)
    with pytest.raises(BrokerError) as caught:
        await producer.send(Message("T", b"x"))
    assert (caught.value.code, caught.value.remark, caught.value.address) == (
        code,
        "as scripted",
        cluster.broker.address,
    )
    assert "send to T@broker-a" in str(caught.value)
    assert len(sends(cluster.broker)) == 1


async def test_refusals_have_classes_of_their_own(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(SEND, 13, 2, 2, 2)
    with pytest.raises(MessageIllegal):
        await producer.send(Message("T", b"x"))
    with pytest.raises(SendFailed) as caught:
        await producer.send(Message("T", b"x"))
    assert isinstance(caught.value.__cause__, SystemBusy)


async def test_a_chosen_queue_is_kept_through_retries(two_brokers: FakeCluster) -> None:
    two_brokers.add_topic("T")
    broker = two_brokers.brokers[0]
    broker.script(SEND, 2, 2)
    asked = 0

    def choose(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        nonlocal asked
        asked += 1
        return queues[1]

    async with Producer(two_brokers.namesrv, group="g", options=QUICK_OPTIONS) as producer:
        receipt = await producer.send(Message("T", b"x"), queue=choose)
    assert receipt.queue == MessageQueue("T", "broker-a", 1)
    assert (asked, len(sends(broker)), len(sends(two_brokers.brokers[1]))) == (1, 3, 0)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_stored_but_not_safe_is_a_result(
    producer: Producer, cluster: FakeCluster, code: int, status: SendStatus
) -> None:
    broker = cluster.broker
    broker.script(SEND, lambda r: broker.stored(r, SendMessageHeader.decode(r), [0], 5, code))
    receipt = await producer.send(Message("T", b"x"))
    assert (receipt.status, receipt.queue_offset) == (status, 5)
    assert len(sends(broker)) == 1


async def test_stored_but_not_safe_can_be_tried_elsewhere(two_brokers: FakeCluster) -> None:
    two_brokers.add_topic("T")
    unsafe, safe = two_brokers.brokers

    def not_flushed(request: Command) -> Command:
        return unsafe.stored(request, SendMessageHeader.decode(request), [0], 0, 10)

    unsafe.on[SEND] = not_flushed
    async with Producer(
        two_brokers.namesrv, group="g", retries=Retries(not_stored=True), options=QUICK_OPTIONS
    ) as producer:
        receipts = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {receipt.status for receipt in receipts} == {SendStatus.OK}
        safe.on[SEND] = lambda request: request.reply(2)
        last = await producer.send(Message("T", b"x"))
        assert last.status is SendStatus.FLUSH_DISK_TIMEOUT, "stored somewhere is better than an error"


async def test_the_time_limit_covers_all_attempts(producer: Producer, cluster: FakeCluster) -> None:
    await producer.send(Message("T", b"makes the connection"))
    cluster.broker.script(SEND, SILENCE, SILENCE, SILENCE)
    with pytest.raises(SendFailed, match="1 attempt in") as caught:
        await producer.send(Message("T", b"x"), timeout=0.3)
    assert isinstance(caught.value.__cause__, RequestTimeout)
    assert len(sends(cluster.broker)) == 2


async def test_a_lost_connection_is_retried(producer: Producer, cluster: FakeCluster) -> None:
    await producer.send(Message("T", b"first"))

    def cut(request: Command) -> None:
        for channel in cluster.broker.channels:
            channel.abort()

    cluster.broker.script(SEND, cut)
    assert (await producer.send(Message("T", b"second"))).queue_offset == 0
    assert len(sends(cluster.broker)) == 3


async def test_a_broker_that_is_down_costs_its_callers_nothing(two_brokers: FakeCluster) -> None:
    two_brokers.add_topic("T")
    await two_brokers.brokers[0].close()
    async with Producer(two_brokers.namesrv, group="g", options=QUICK_OPTIONS) as producer:
        receipts = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(40)))
    assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}


async def test_a_producer_recovers_when_its_broker_returns(producer: Producer, cluster: FakeCluster) -> None:
    await producer.send(Message("T", b"x"))
    await cluster.broker.restart()
    receipt = await producer.send(Message("T", b"y"))
    assert receipt.status is SendStatus.OK


async def test_no_route_is_an_error_with_hints(producer: Producer, cluster: FakeCluster) -> None:
    with pytest.raises(RouteNotFound, match=r"'nowhere'.*code 17.*autoCreateTopicEnable"):
        await producer.send(Message("nowhere", b"x"))
    assert not cluster.broker.requests_of(SEND)


async def test_an_unreachable_name_server_is_an_error_with_its_address() -> None:
    async with Producer("127.0.0.1:1", group="g", timeout=1.0, options=QUICK_OPTIONS) as producer:
        with pytest.raises(RouteNotFound, match=r"127\.0\.0\.1:1 said: cannot connect"):
            await producer.send(Message("T", b"x"))


async def test_a_silent_name_server_ends_with_the_time_limit(cluster: FakeCluster) -> None:
    cluster.name_server.script(RequestCode.GET_ROUTEINFO_BY_TOPIC, SILENCE)
    async with Producer(cluster.namesrv, group="g", timeout=0.05, options=QUICK_OPTIONS) as producer:
        with pytest.raises(RouteNotFound, match=cluster.namesrv):
            await producer.send(Message("T", b"x"))


async def test_unknown_topics_go_through_the_template(producer: Producer, cluster: FakeCluster) -> None:
    cluster.add_template(queues=8)
    for _ in range(8):
        await producer.send(Message("new", b"x"))
    headers = sends(cluster.broker)
    assert {header.queue_id for header in headers} == {0, 1, 2, 3}
    assert {(header.default_topic, header.default_topic_queue_nums) for header in headers} == {("TBW102", 4)}


async def test_oneway_asks_for_no_answer_and_never_retries(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.on[SEND] = lambda request: request.reply(2)
    await producer.send_oneway(Message("T", b"quick"))
    request = await cluster.broker.request(SEND)
    assert request.flag & ONEWAY
    assert request.body == b"quick"


async def test_a_batch_is_one_request_with_a_receipt_each(producer: Producer, cluster: FakeCluster) -> None:
    receipts = await producer.send_batch([Message("T", b"%d" % number) for number in range(5)])
    (header,) = sends(cluster.broker)
    assert header.batch
    assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2, 3, 4]
    assert len({receipt.offset_id for receipt in receipts}) == 5
    assert len({receipt.message_id for receipt in receipts}) == 5


@pytest.mark.parametrize("size", [5000, 200_000], ids=["on the loop", "in a thread"])
async def test_large_bodies_are_compressed(producer: Producer, cluster: FakeCluster, size: int) -> None:
    body = b"z" * size
    await producer.send(Message("T", body))
    await producer.send(Message("T", b"z" * 4095))
    large, small = cluster.broker.requests_of(SEND)
    header = SendMessageHeader.decode(large)
    assert header.sys_flag == 0x301
    assert decompress(large.body, header.sys_flag) == body
    assert (SendMessageHeader.decode(small).sys_flag, len(small.body)) == (0, 4095)


async def test_what_no_broker_takes_is_never_sent(producer: Producer, cluster: FakeCluster) -> None:
    for message in (Message("../../x", b"x"), Message("T", b""), Message("T", b"x", properties={"a": "\x01"})):
        with pytest.raises(InvalidMessage):
            await producer.send(message)
        with pytest.raises(InvalidMessage):
            await producer.send_oneway(message)
    with pytest.raises(MessageTooLarge):
        await producer.send(Message("T", bytes(4 * 1024 * 1024 + 1)))
    assert not cluster.broker.requests_of(SEND)


async def test_a_producer_works_only_while_open(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    producer = Producer(cluster.namesrv, group="g", options=QUICK_OPTIONS)
    with pytest.raises(ProducerClosed, match="async with"):
        await producer.send(Message("T", b"x"))
    async with producer:
        await producer.send(Message("T", b"x"))
        with pytest.raises(ProducerClosed):
            await producer.__aenter__()
    with pytest.raises(ProducerClosed):
        await producer.send(Message("T", b"x"))


async def test_leaving_says_goodbye_and_leaves_nothing(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    before = own_tasks()
    async with Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as producer:
        await producer.send(Message("T", b"x"))
    goodbye = await cluster.broker.request(RequestCode.UNREGISTER_CLIENT)
    assert goodbye.ext == {"clientID": producer.client_id, "producerGroup": "shop"}
    await until(lambda: own_tasks() <= before and not cluster.broker.channels, "the end of tasks and connections")


async def test_sends_in_flight_fail_when_the_producer_is_closed(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    cluster.broker.script(SEND, SILENCE)
    async with Producer(cluster.namesrv, group="shop", retries=0, options=QUICK_OPTIONS) as producer:
        sending = asyncio.create_task(producer.send(Message("T", b"x"), timeout=PATIENCE_S))
        await cluster.broker.request(SEND)
    with pytest.raises(ClientError):
        await sending


async def test_cancelling_a_send_is_a_cancellation(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(SEND, SILENCE)
    sending = asyncio.create_task(producer.send(Message("T", b"x"), timeout=PATIENCE_S))
    await cluster.broker.request(SEND)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert len(sends(cluster.broker)) == 1


async def test_two_producers_of_one_instance_share_connections(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    async with (
        Producer(cluster.namesrv, group="one", options=ClientOptions(instance_name="same", timing=QUICK)) as one,
        Producer(cluster.namesrv, group="two", options=ClientOptions(instance_name="same", timing=QUICK)) as two,
    ):
        await one.send(Message("T", b"x"))
        await two.send(Message("T", b"x"))
        assert len(cluster.broker.channels) == 1
        await until(lambda: any(len(beat.producer_data_set) == 2 for beat in cluster.broker.heartbeats))
        with pytest.raises(ClientError, match="instance_name"):
            async with Producer(
                cluster.namesrv, group="two", options=ClientOptions(instance_name="same", timing=QUICK)
            ):
                pass
        await two.send(Message("T", b"still works"))


async def test_a_route_with_more_queues_is_used_after_its_refresh(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with Producer(
        cluster.namesrv, group="g", options=ClientOptions(timing=replace(QUICK, route_refresh_s=0.01))
    ) as producer:
        assert (await producer.send(Message("T", b"x"))).queue.queue_id == 0
        cluster.add_topic("T", 2)

        async def reached() -> bool:
            return (await producer.send(Message("T", b"x"))).queue.queue_id == 1

        async with asyncio.timeout(PATIENCE_S):
            while not await reached():
                await asyncio.sleep(0.005)


async def test_a_broker_that_answers_nonsense_is_reported(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(SEND, lambda request: request.reply(0, {"msgId": "x"}))
    with pytest.raises(Exception, match="queueId is missing"):
        await producer.send(Message("T", b"x"))


async def test_a_recall_goes_to_the_broker_that_has_the_message(producer: Producer, cluster: FakeCluster) -> None:
    handle = RecallHandle("T", "broker-a", 1_700_000_000_001, "U1").encode()
    cluster.broker.script(RequestCode.RECALL_MESSAGE, lambda request: request.reply(0, {"msgId": "U1"}))
    assert await producer.recall(handle) == "U1"
    [request] = cluster.broker.requests_of(RequestCode.RECALL_MESSAGE)
    assert RecallMessageHeader.decode(request) == RecallMessageHeader("T", handle, "shop", "broker-a")


async def test_a_recall_that_is_refused_says_why(producer: Producer, cluster: FakeCluster) -> None:
    handle = RecallHandle("T", "broker-a", 1, "U1").encode()
    cluster.broker.script(
        RequestCode.RECALL_MESSAGE, lambda request: request.reply(604, remark="recall failed, timestamp invalid")
    )
    with pytest.raises(BrokerError, match="timestamp invalid"):
        await producer.recall(handle)


async def test_what_is_no_handle_or_names_no_broker_is_not_sent(producer: Producer, cluster: FakeCluster) -> None:
    with pytest.raises(InvalidMessage, match="no recall handle"):
        await producer.recall("nonsense!")
    with pytest.raises(RouteNotFound, match="broker-z"):
        await producer.recall(RecallHandle("T", "broker-z", 1, "U1").encode())
    assert cluster.broker.requests_of(RequestCode.RECALL_MESSAGE) == []
