"""The pop consumer against fake brokers: where it asks, what it settles, and how mistakes with receipts are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, SILENCE, FakeCluster, own_tasks, refused, until
from tests.unit.client.pop_fakes import FakePops

from rocketline.client import ClientOptions, ConsumeFrom, PopConsumer, Sql
from rocketline.errors import (
    AcksFailed,
    ClientError,
    ConfigError,
    ConsumerClosed,
    InvalidMessage,
    InvalidReceipt,
    NoMessage,
    NoPermission,
    ReceiptExpired,
    ReceiptUsed,
    RouteNotFound,
    TransportError,
)
from rocketline.message import POP_CK, MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ChangeInvisibleTimeResponseHeader
from rocketline.protocol.pop_info import ReceiptHandle
from rocketline.transport import Reply

T, G = "orders", "billing"


@pytest.fixture
def pops(cluster: FakeCluster) -> FakePops:
    cluster.add_topic(T, 2)
    return FakePops(cluster.broker)


@pytest.fixture
def two_pops(two_brokers: FakeCluster) -> tuple[FakePops, FakePops]:
    two_brokers.add_topic(T, 2)
    first, second = map(FakePops, two_brokers.brokers)
    return first, second


def consumer_of(cluster: FakeCluster, **options: object) -> PopConsumer:
    return PopConsumer(cluster.namesrv, group=G, **{"options": QUICK_OPTIONS, **options})  # type: ignore[arg-type]


def bodies(messages: list[MessageView]) -> list[bytes]:
    return sorted(message.body for message in messages)


async def test_messages_of_all_queues_and_brokers_come_once(
    two_brokers: FakeCluster, two_pops: tuple[FakePops, FakePops]
) -> None:
    wanted = []
    for number, pops in enumerate(two_pops):
        for queue_id in (0, 1):
            wanted.append(b"%d %d" % (number, queue_id))
            pops.store(T, queue_id, wanted[-1], properties={"TAGS": "ab"[queue_id]})
    async with consumer_of(two_brokers, from_where=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe(T, "a || b")
        got = await consumer.receive(invisible=30.0) + await consumer.receive()
        assert await consumer.receive(wait=0) == []
    first = two_pops[0].pops[0]
    assert (first.consumer_group, first.topic, first.queue_id, first.max_msg_nums) == (G, T, -1, 32)
    assert (first.exp_type, first.exp, first.init_mode, first.order) == ("TAG", "a || b", 0, False)
    assert {pop.invisible_ms for pops in two_pops for pop in pops.pops} == {30_000, 60_000}
    assert bodies(got) == sorted(wanted)


async def test_an_ack_names_the_place_of_its_message(cluster: FakeCluster, pops: FakePops) -> None:
    for body in (b"a", b"b", b"c"):
        pops.store(T, 1, body)
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        assert len(await consumer.receive(2)) == 2
        (message,) = await consumer.receive()
        await consumer.ack(message)
    (ack,) = pops.acks
    handle = ReceiptHandle.parse(ack.extra_info)
    assert (ack.consumer_group, ack.topic, ack.queue_id, ack.offset, ack.broker_name) == (G, T, 1, 2, "broker-a")
    assert (handle.ck_start_offset, handle.queue_offset, handle.revive_queue_id) == (2, 2, 3)
    assert message.properties["1ST_POP_TIME"] == str(handle.pop_ms)


async def test_receive_returns_as_soon_as_one_broker_has_something(
    two_brokers: FakeCluster, two_pops: tuple[FakePops, FakePops]
) -> None:
    first, second = two_pops
    async with consumer_of(two_brokers) as consumer:
        await consumer.subscribe(T)
        waiting = asyncio.create_task(consumer.receive(wait=600.0))
        await until(lambda: bool(first.notifications and second.notifications))
        second.store(T, 0, b"there")
        assert bodies(await waiting) == [b"there"]
        # Nothing waits where it would take messages that nobody then gets.
        assert {pop.poll_ms for pops in two_pops for pop in pops.pops} == {0}
        first.store(T, 0, b"here")  # told to the request that still waited there
        assert bodies(await consumer.receive(wait=600.0)) == [b"here"]
        assert len(first.notifications) == 1


async def test_nothing_comes_when_the_time_is_over(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        assert await consumer.receive(wait=0) == []
        assert not pops.notifications
        assert await consumer.receive(wait=0.3) == []  # long enough for a busy machine to ask at all
        assert pops.notifications[0].poll_ms <= 300


async def test_a_batch_is_acknowledged_with_one_request_per_broker(
    two_brokers: FakeCluster, two_pops: tuple[FakePops, FakePops]
) -> None:
    for pops in two_pops:
        for number in range(3):
            pops.store(T, 0, b"%d" % number)
            pops.store(T, 1, b"%d" % number)
    async with consumer_of(two_brokers) as consumer:
        await consumer.subscribe(T)
        got = await consumer.receive() + await consumer.receive()
        await consumer.ack_batch([*got[:5], got[6].receipt_handle or "", *got[7:]])
    assert [len(pops.batches) for pops in two_pops] == [1, 1]
    assert not two_pops[0].acks
    left = got[5]
    everything = {(name, q, o) for name in ("broker-a", "broker-b") for q in (0, 1) for o in range(3)}
    acked = {
        (body.broker_name, ack.queue_id, at)
        for pops in two_pops
        for body in pops.batches
        for ack in body.acks
        for at in ack.offsets
    }
    assert everything - acked == {(left.broker_name, left.queue_id, left.queue_offset)}
    (first, *_) = two_pops[0].batches[0].acks
    assert (first.consumer_group, first.topic, first.retry, first.revive_queue_id) == (G, T, "0", 3)


async def test_brokers_without_batches_get_single_acks(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"1")
    pops.store(T, 0, b"2")
    cluster.broker.on[RequestCode.BATCH_ACK_MESSAGE] = lambda request: refused(
        request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    )
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        await consumer.ack_batch(await consumer.receive())
    assert pops.acked_offsets == [(T, 0, 0), (T, 0, 1)]


async def test_an_extension_makes_a_new_handle_and_the_old_one_counts_no_more(
    cluster: FakeCluster, pops: FakePops
) -> None:
    pops.store(T, 0, b"1")
    pops.store(T, 0, b"2")
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        message = (await consumer.receive())[1]
        old = message.receipt_handle or ""
        new = await consumer.extend(message, 45.0)
        assert message.receipt_handle == new != old
        with pytest.raises(ReceiptUsed, match="settled or replaced before"):
            await consumer.ack(old)
        newest = await consumer.extend(new, 90.0)
        await consumer.ack(newest)
    assert [change.invisible_ms for change in pops.changes] == [45_000, 90_000]
    assert pops.changes[0].extra_info == old
    assert ReceiptHandle.parse(new).ck_start_offset == 1  # its own check point
    assert [ack.extra_info for ack in pops.acks] == [newest]


async def test_nack_lets_a_message_come_again_later_and_later(cluster: FakeCluster, pops: FakePops) -> None:
    for times in (0, 2, 40, 0):
        pops.store(T, 0, b"%d" % times, reconsume_times=times)
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        got = await consumer.receive()
        for message in got[:3]:
            await consumer.nack(message)
        await consumer.nack(got[3], delay=2.5)
        with pytest.raises(ReceiptUsed):
            await consumer.ack(got[0])
    assert [change.invisible_ms for change in pops.changes] == [10_000, 60_000, 7_200_000, 2500]


@pytest.mark.parametrize(
    "text", ["", "x", "1 2 3", "0 1 2 3 4 b 0 0", "0 1 2 3 0 b 0 -1", "0  1 2 3 0 b 0", "0 1 2 3 0 b 0 ٣", "9" * 5000]
)
async def test_what_is_no_receipt_handle_is_refused_here(cluster: FakeCluster, pops: FakePops, text: str) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        for settle in (consumer.ack, consumer.nack):
            with pytest.raises(InvalidReceipt, match="no receipt handle"):
                await settle(text)
        with pytest.raises(InvalidReceipt):
            await consumer.extend(text, 10.0)
        with pytest.raises(AcksFailed):
            await consumer.ack_batch([text])
    assert not cluster.broker.requests_of(RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE)


async def test_a_handle_of_somebody_elses_broker_is_refused_here(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        with pytest.raises(InvalidReceipt, match="no broker 'elsewhere'"):
            await consumer.ack(f"0 {pops.now_ms} 60000 0 0 elsewhere 0 0")


async def test_a_handle_that_points_at_nothing_is_the_brokers_to_refuse(cluster: FakeCluster, pops: FakePops) -> None:
    cluster.broker.script(RequestCode.ACK_MESSAGE, ResponseCode.NO_MESSAGE)
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        forged = f"0 {pops.now_ms} 60000 0 0 broker-a 0 7777"
        with pytest.raises(NoMessage, match="7777"):
            await consumer.ack(forged)
        await consumer.ack(forged)  # refused once, so it was not used


async def test_an_expired_handle_is_told_by_the_brokers_clock(cluster: FakeCluster, pops: FakePops) -> None:
    pops.ahead_ms = 3_600_000
    pops.store(T, 0, b"1")
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        stale = f"0 {pops.now_ms - 61_000} 60000 0 0 broker-a 0 0"
        await consumer.ack(stale)  # its clock is not known yet: let the broker decide
        (message,) = await consumer.receive()
        for settle in (consumer.ack, consumer.nack):
            with pytest.raises(ReceiptExpired, match="the message comes again"):
                await settle(f"1 {pops.now_ms - 61_000} 60000 0 0 broker-a 0 1")
        await consumer.ack(message)  # though our own clock shows an hour less
    assert len(pops.acks) == 2
    assert not pops.changes


async def test_a_message_is_acknowledged_once(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"1")
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        (message,) = await consumer.receive()
        results = await asyncio.gather(*(consumer.ack(message) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [type(None), ReceiptUsed, ReceiptUsed]
        with pytest.raises(AcksFailed) as failed:
            await consumer.ack_batch([message])
        assert isinstance(failed.value.failures[message.receipt_handle or ""], ReceiptUsed)
    assert len(pops.acks) == 1


async def test_an_ack_that_failed_can_be_tried_again(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"1")
    cluster.broker.script(RequestCode.ACK_MESSAGE, ResponseCode.SYSTEM_BUSY)
    cluster.broker.script(RequestCode.BATCH_ACK_MESSAGE, ResponseCode.SYSTEM_BUSY)
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        (message,) = await consumer.receive()
        with pytest.raises(AcksFailed, match="1 of 1"):
            await consumer.ack_batch([message])
        with pytest.raises(Exception, match="as scripted"):
            await consumer.ack(message)
        await consumer.ack(message)
    assert pops.acked_offsets == [(T, 0, 0)]


async def test_of_a_batch_the_good_ones_are_acknowledged(cluster: FakeCluster, pops: FakePops) -> None:
    for number in range(3):
        pops.store(T, 0, b"%d" % number)
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        got = await consumer.receive()
        with pytest.raises(AcksFailed, match="2 of 5 messages were not acknowledged") as failed:
            await consumer.ack_batch([*got, "nonsense", got[0]])
    assert set(failed.value.failures) == {"nonsense", got[0].receipt_handle}
    assert pops.acked_offsets == [(T, 0, 0), (T, 0, 1), (T, 0, 2)]


async def test_a_message_that_was_not_popped_has_no_receipt(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"1")
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        (message,) = await consumer.receive()
        del message.properties[POP_CK]
        with pytest.raises(InvalidReceipt, match="was not popped"):
            await consumer.ack(message)


async def test_a_handle_needs_its_topic_when_there_are_several(cluster: FakeCluster, pops: FakePops) -> None:
    cluster.add_topic("invoices", 1)
    pops.store("invoices", 0, b"1")
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        await consumer.subscribe("invoices")
        (message,) = await consumer.receive()
        handle = message.receipt_handle or ""
        with pytest.raises(ClientError, match="2 topics"):
            await consumer.ack(handle)
        await consumer.ack(handle, topic="invoices")
    assert pops.acked_offsets == [("invoices", 0, 0)]


async def test_a_handle_that_a_producer_made_up_is_not_believed(cluster: FakeCluster, pops: FakePops) -> None:
    for forged in (f"0 {pops.now_ms} 60000 3 0 broker-a 1 0", "0 1 60000 3 1 broker-a 1 0", "nonsense"):
        pops.store(T, 0, b"x", properties={POP_CK: forged})
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        for message in await consumer.receive():
            await consumer.ack(message)
    assert pops.acked_offsets == [(T, 0, 0), (T, 0, 1), (T, 0, 2)]


async def test_a_message_of_the_retry_topic_is_acknowledged_there(cluster: FakeCluster, pops: FakePops) -> None:
    """Brokers write the topic that was popped and the handle into such a message."""
    popped_ms = pops.now_ms
    handle = f"4 {popped_ms} 60000 3 1 broker-a 0 5"
    pops.store(T, 0, b"again", properties={POP_CK: handle, "1ST_POP_TIME": "7"}, reconsume_times=1)
    cluster.broker.script(RequestCode.POP_MESSAGE, lambda request: pops.answer(request, {0: [0]}, pop_ms=popped_ms))
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        (message,) = await consumer.receive()
        assert (message.topic, message.reconsume_times, message.properties["1ST_POP_TIME"]) == (T, 1, "7")
        await consumer.ack(message)
    assert pops.acked_offsets == [(f"%RETRY%{G}_{T}", 0, 5)]


async def test_what_a_cancelled_receive_popped_is_received_next(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"1")
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Command) -> Command:
        reached.set()
        await go_on.wait()
        return pops.answer(request, {0: [0]})

    cluster.broker.script(RequestCode.POP_MESSAGE, slow)
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        receiving = asyncio.create_task(consumer.receive())
        await reached.wait()
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        cluster.broker.on[RequestCode.POP_MESSAGE] = pops.nothing
        go_on.set()
        assert bodies(await consumer.receive(wait=600.0)) == [b"1"]


async def test_what_nobody_received_is_given_back_at_the_end(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"1")
    reached = asyncio.Event()

    async def slow(request: Command) -> Command:
        reached.set()
        await asyncio.sleep(0.05)
        return pops.answer(request, {0: [0]})

    cluster.broker.script(RequestCode.POP_MESSAGE, slow)
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        receiving = asyncio.create_task(consumer.receive())
        await reached.wait()
        receiving.cancel()
    assert [change.invisible_ms for change in pops.changes] == [1000]


async def test_a_refusal_of_all_brokers_is_told_at_once(
    two_brokers: FakeCluster, two_pops: tuple[FakePops, FakePops]
) -> None:
    for broker in two_brokers.brokers:
        broker.on[RequestCode.POP_MESSAGE] = lambda request: refused(request, ResponseCode.NO_PERMISSION)
    async with consumer_of(two_brokers) as consumer:
        await consumer.subscribe(T)
        with pytest.raises(NoPermission, match=f"pop of {T}"):
            await consumer.receive(wait=600.0)


async def test_one_broker_that_refuses_does_not_keep_the_others_from_serving(
    two_brokers: FakeCluster, two_pops: tuple[FakePops, FakePops]
) -> None:
    two_brokers.brokers[0].on[RequestCode.POP_MESSAGE] = lambda request: refused(request, ResponseCode.NO_PERMISSION)
    two_pops[1].store(T, 0, b"1")
    async with consumer_of(two_brokers) as consumer:
        await consumer.subscribe(T)
        assert bodies(await consumer.receive(wait=600.0)) == [b"1"]
        assert await consumer.receive(wait=0.01) == []


async def test_a_broker_that_is_away_is_waited_for(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        await consumer.receive(wait=0)
        port = int(cluster.broker.address.rpartition(":")[2])
        await cluster.broker.close()
        with pytest.raises(TransportError):
            await consumer.receive(wait=0.5)
        receiving = asyncio.create_task(consumer.receive(wait=600.0))
        await asyncio.sleep(0)
        pops.store(T, 0, b"1")
        await cluster.broker.start(port)
        assert bodies(await receiving) == [b"1"]


@pytest.mark.parametrize("code", [ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND])
async def test_no_message_has_three_answers(cluster: FakeCluster, pops: FakePops, code: int) -> None:
    cluster.broker.on[RequestCode.POP_MESSAGE] = lambda request: pops.nothing(request, code)
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        assert await consumer.receive(wait=0) == []


def _full(request: Command) -> Reply:
    return request.reply(ResponseCode.SUCCESS, {"hasMsg": "false", "pollingFull": "true"})


@pytest.mark.parametrize("reply", [_full, lambda request: refused(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)])
async def test_a_broker_that_holds_nothing_is_asked_now_and_then(
    cluster: FakeCluster, pops: FakePops, reply: Callable[[Command], Reply]
) -> None:
    cluster.broker.on[RequestCode.NOTIFICATION] = reply
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        waiting = asyncio.create_task(consumer.receive(wait=600.0))
        await cluster.broker.request(RequestCode.NOTIFICATION, 2)
        pops.store(T, 0, b"1")
        assert bodies(await waiting) == [b"1"]


async def test_messages_whose_tags_only_hash_alike_are_acknowledged_and_kept_away(
    cluster: FakeCluster, pops: FakePops
) -> None:
    pops.store(T, 0, b"strange", properties={"TAGS": "BB"})
    pops.store(T, 0, b"wanted", properties={"TAGS": "Aa"})
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T, "Aa")
        assert bodies(await consumer.receive()) == [b"wanted"]
        await until(lambda: pops.acked_offsets == [(T, 0, 0)])


async def test_in_order_a_lost_answer_is_asked_for_again_by_the_same_attempt(
    cluster: FakeCluster, pops: FakePops
) -> None:
    pops.store(T, 0, b"1")
    pops.store(T, 0, b"2")
    counts = "0 0 2;0 qo0%1 1"
    cluster.broker.script(
        RequestCode.POP_MESSAGE,
        ResponseCode.SYSTEM_BUSY,
        lambda request: pops.answer(request, {0: [0, 1]}, order_counts=counts),
    )
    async with consumer_of(cluster, ordered=True) as consumer:
        await consumer.subscribe(T)
        got = await consumer.receive(wait=600.0)
        assert [(message.body, message.reconsume_times) for message in got] == [(b"1", 2), (b"2", 1)]
        await consumer.receive(wait=0)
        attempts = [request.ext for request in cluster.broker.requests_of(RequestCode.POP_MESSAGE)]
        assert attempts[0] and attempts[1] and attempts[2] and attempts[0]["order"] == "true"
        assert attempts[0]["attemptId"] == attempts[1]["attemptId"] != attempts[2]["attemptId"]
        cluster.broker.script(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            lambda request: request.reply(0, ChangeInvisibleTimeResponseHeader(0, 0, 0).encode()),
        )
        with pytest.raises(ReceiptUsed, match="acknowledged before"):
            await consumer.extend(got[0], 30.0)
        await consumer.ack(got[1])
        with pytest.raises(ReceiptUsed):
            await consumer.nack(got[1])


async def test_namespaces_are_not_seen(cluster: FakeCluster) -> None:
    cluster.add_topic(f"NS%{T}", 1)
    pops = FakePops(cluster.broker)
    pops.store(f"NS%{T}", 0, b"1")
    async with consumer_of(cluster, options=ClientOptions(namespace="NS", timing=QUICK)) as consumer:
        await consumer.subscribe(T)
        (message,) = await consumer.receive()
        assert message.topic == T
        await consumer.ack(message.receipt_handle or "", topic=T)
    assert pops.acks[0].consumer_group == f"NS%{G}"
    assert pops.acked_offsets == [(f"NS%{T}", 0, 0)]


async def test_operators_see_a_member_that_pops(cluster: FakeCluster, pops: FakePops) -> None:
    cluster.broker.on[RequestCode.CHECK_CLIENT_CONFIG] = lambda request: request.reply(0)
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T, Sql("price > 10"))
        await until(lambda: any(beat.consumer_data_set for beat in cluster.broker.heartbeats))
        data = cluster.broker.heartbeats[-1].consumer_data_set[0]
        assert (data.group_name, data.consume_type, data.message_model) == (G, "CONSUME_POP", "CLUSTERING")
        await consumer.receive(wait=0)
        assert (pops.pops[0].exp_type, pops.pops[0].exp) == ("SQL92", "price > 10")
        await consumer.unsubscribe(T)
        with pytest.raises(ClientError, match="subscribes to nothing"):
            await consumer.receive()
    assert not own_tasks() or all(task.get_name().startswith("Task-") for task in own_tasks())


async def test_a_topic_that_nobody_knows(cluster: FakeCluster) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe("later")
        with pytest.raises(RouteNotFound, match="later"):
            await consumer.receive(wait=0)


async def test_bad_arguments_are_told_before_anything_is_asked(cluster: FakeCluster, pops: FakePops) -> None:
    with pytest.raises(ConfigError, match="FIRST or LAST"):
        consumer_of(cluster, from_where=ConsumeFrom.TIMESTAMP)
    with pytest.raises(InvalidMessage, match=r"invisible time of 0\.5 s"):
        consumer_of(cluster, invisible=0.5)
    consumer = consumer_of(cluster)
    with pytest.raises(ConsumerClosed):
        await consumer.receive()
    async with consumer:
        await consumer.subscribe(T)
        for count in (0, 33):
            with pytest.raises(InvalidMessage, match="1 to 32"):
                await consumer.receive(count)
        for wait in (-1.0, float("inf"), float("nan")):
            with pytest.raises(InvalidMessage, match="wait"):
                await consumer.receive(wait=wait)
        for seconds in (0.0, 1e9, float("nan")):
            with pytest.raises(InvalidMessage, match="invisible time"):
                await consumer.receive(invisible=seconds)
            with pytest.raises(InvalidMessage, match="invisible time"):
                await consumer.extend(f"0 {pops.now_ms} 60000 0 0 broker-a 0 0", seconds)
    assert not cluster.broker.requests_of(RequestCode.POP_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)


async def test_closing_ends_a_receive_that_waits(cluster: FakeCluster, pops: FakePops) -> None:
    consumer = consumer_of(cluster)
    async with consumer:
        await consumer.subscribe(T)
        waiting = asyncio.create_task(consumer.receive(wait=600.0))
        await cluster.broker.request(RequestCode.NOTIFICATION)
    assert await waiting == []


async def test_a_broker_that_never_answers_costs_one_time_limit(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"1")
    cluster.broker.script(RequestCode.POP_MESSAGE, SILENCE)
    timing = type(QUICK)(call_s=0.5, pull_retry_s=0.01)
    async with PopConsumer(cluster.namesrv, group=G, options=ClientOptions(timing=timing)) as consumer:
        await consumer.subscribe(T)
        assert bodies(await consumer.receive(wait=600.0)) == [b"1"]
