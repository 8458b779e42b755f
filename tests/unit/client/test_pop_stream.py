"""`async for` over popped messages: acknowledged one after the other, kept while they are worked on, given back if not."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.client.fakes import QUICK_OPTIONS, FakeCluster, refused, until
from tests.unit.client.pop_fakes import FakePops

from rocketline.client import PopConsumer
from rocketline.errors import InvalidMessage, NoPermission
from rocketline.protocol.codes import RequestCode, ResponseCode

T, G = "orders", "billing"


@pytest.fixture
def pops(cluster: FakeCluster) -> FakePops:
    cluster.add_topic(T, 1)
    return FakePops(cluster.broker)


def consumer_of(cluster: FakeCluster, **options: object) -> PopConsumer:
    return PopConsumer(cluster.namesrv, group=G, **{"options": QUICK_OPTIONS, **options})  # type: ignore[arg-type]


async def test_asking_for_the_next_acknowledges_the_one_before(cluster: FakeCluster, pops: FakePops) -> None:
    for number in range(5):
        pops.store(T, 0, b"%d" % number)
    seen = []
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        async for message in consumer.messages(batch=2):
            seen.append(message.body)
            if len(seen) == 5:
                break
    assert seen == [b"0", b"1", b"2", b"3", b"4"]
    assert [offset for _, _, offset in pops.acked_offsets] == [0, 1, 2, 3]
    # The last one was not done: whoever left the loop may have left it by an exception.
    assert [(change.offset, change.invisible_ms) for change in pops.changes] == [(4, 10_000)]


async def test_what_the_loop_has_not_seen_comes_again_soon(cluster: FakeCluster, pops: FakePops) -> None:
    for number in range(3):
        pops.store(T, 0, b"%d" % number)
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        async for _ in consumer:
            break
    assert sorted((change.offset, change.invisible_ms) for change in pops.changes) == [
        (0, 10_000),
        (1, 1000),
        (2, 1000),
    ]
    assert not pops.acked_offsets


async def test_a_message_is_extended_while_it_is_worked_on(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"slow")
    pops.store(T, 0, b"waits behind it")
    async with consumer_of(cluster, invisible=1.0) as consumer:
        await consumer.subscribe(T)
        stream = consumer.messages()
        message = await anext(stream)
        await until(lambda: {change.offset for change in pops.changes} == {0, 1}, "extensions")
        first = message.receipt_handle
        await until(lambda: message.receipt_handle != first, "another extension")
        assert (await anext(stream)).body == b"waits behind it"
        await until(lambda: len(pops.batches) == 1)
    (ack,) = pops.batches[0].acks
    assert ack.offsets == [0]
    assert ack.pop_ms > int(pops.changes[0].extra_info.split()[1])  # by the handle of its last extension


async def test_stop_ends_a_loop_that_waits_for_a_message(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        stream = consumer.messages()
        waiting = asyncio.ensure_future(anext(stream, None))
        await until(lambda: bool(pops.notifications))
        stream.stop()
        assert await waiting is None


async def test_an_extension_has_an_end(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"hangs")
    pops.store(T, 0, b"does not")
    async with consumer_of(cluster, invisible=1.0) as consumer:
        await consumer.subscribe(T)
        stream, other = consumer.messages(batch=1, hold=0.001), consumer.messages(batch=1)
        message, second = await anext(stream), await anext(other)
        given_up, first = message.receipt_handle, second.receipt_handle
        await until(lambda: second.receipt_handle != first, "the extension of the other one")
        assert message.receipt_handle == given_up
        stream.stop()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_an_ack_waits_for_the_extension_under_way(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"1")
    pops.store(T, 0, b"2")
    change = cluster.broker.on[RequestCode.CHANGE_MESSAGE_INVISIBLETIME]
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request):  # type: ignore[no-untyped-def]
        reached.set()
        await go_on.wait()
        return change(request)

    cluster.broker.script(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, slow)
    async with consumer_of(cluster, invisible=1.0) as consumer:
        await consumer.subscribe(T)
        stream = consumer.messages()
        first = await anext(stream)
        await reached.wait()
        await anext(stream)
        assert not pops.acked_offsets
        go_on.set()
        await until(lambda: pops.acked_offsets == [(T, 0, 0)])
        assert str(pops.batches[0].acks[0].pop_ms) == (first.receipt_handle or "").split()[1]


async def test_a_message_that_expired_while_it_waited_is_left_out(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(T, 0, b"1")
    pops.store(T, 0, b"too late")
    pops.store(T, 0, b"3")
    async with consumer_of(cluster, invisible=1.0) as consumer:
        await consumer.subscribe(T)
        stream = consumer.messages(batch=2)
        await anext(stream)
        pops.ahead_ms = 100_000  # as seen after a pause of this process
        consumer._open.receipts.heard("broker-a", pops.now_ms)
        await until(lambda: not stream._waiting, "the sweep")
        assert (await anext(stream)).body == b"3"


async def test_the_loop_outlives_a_broker_and_ends_by_a_refusal(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        stream = consumer.messages()
        following = asyncio.ensure_future(anext(stream))
        await cluster.broker.request(RequestCode.NOTIFICATION)
        await cluster.broker.restart()
        pops.store(T, 0, b"1")
        assert (await following).body == b"1"
        cluster.broker.on[RequestCode.POP_MESSAGE] = lambda request: refused(request, ResponseCode.NO_PERMISSION)
        with pytest.raises(NoPermission):
            await anext(stream)


async def test_closing_ends_a_loop_that_waits(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.subscribe(T)
        waiting = asyncio.ensure_future(anext(consumer.messages(), None))
        await cluster.broker.request(RequestCode.NOTIFICATION)
    assert await waiting is None


async def test_a_batch_has_its_bounds(cluster: FakeCluster) -> None:
    async with consumer_of(cluster) as consumer:
        for batch in (0, 33):
            with pytest.raises(InvalidMessage, match="1 to 32"):
                consumer.messages(batch=batch)
