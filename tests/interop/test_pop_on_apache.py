"""Our clients in pop mode on Apache's own broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from tests.support.apache import ApacheCluster
from tests.support.java_client import JavaClient
from tests.support.patience import PATIENCE_S
from tests.support.reading import await_listed

from rocketline.client import ByBrokers, ConsumeFrom, PopConsumer, Producer, PushConsumer, RetryLater, blocking
from rocketline.client.consumer.group.assignment_query import set_request_mode
from rocketline.client.remote_broker import RemoteBroker
from rocketline.errors import InvalidReceipt, MessageIllegal, NoMessage, ReceiptExpired, ReceiptUsed
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.bodies import POP, PULL
from rocketline.protocol.pop_info import ReceiptHandle
from rocketline.transport import RemotingClient

pytestmark = pytest.mark.interop

FIRST = ConsumeFrom.FIRST
INVISIBLE_S = 20.0
"""Time for all calls that must come before it is over, on a busy machine."""


@pytest.fixture
def topic(java: JavaClient, apache: ApacheCluster, name: Callable[[str], str]) -> str:
    made = name("T")
    java.create_topic(apache.namesrv, made)
    return made


async def send(apache: ApacheCluster, topic: str, bodies: list[bytes], **fields: str) -> None:
    async with Producer(apache.namesrv, group="senders") as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **fields))  # type: ignore[arg-type]


async def receive(consumer: PopConsumer, count: int, **options: float) -> list[MessageView]:
    got: list[MessageView] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(got) < count:
            got += await consumer.receive(wait=5.0, **options)  # type: ignore[arg-type]
    return got


async def set_mode(apache: ApacheCluster, topic: str, group: str, mode: str, share: int = 0) -> None:
    remoting = RemotingClient()
    await set_request_mode(RemoteBroker(remoting, apache.broker, "broker-a"), topic, group, mode, share)
    await remoting.close()


async def test_every_message_comes_to_one_consumer_and_settled_ones_never_again(
    apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    group, bodies = name("G"), [b"%d" % number for number in range(40)]
    await send(apache, topic, bodies)
    async with (
        PopConsumer(apache.namesrv, group=group, from_where=FIRST, invisible=INVISIBLE_S) as first,
        PopConsumer(apache.namesrv, group=group, from_where=FIRST, invisible=INVISIBLE_S) as second,
    ):
        await first.subscribe(topic)
        await second.subscribe(topic)
        got = [*await first.receive(8), *await second.receive(8), *await first.receive(1)]
        got += await receive(second, 40 - len(got))
        assert sorted(message.body for message in got) == sorted(bodies)
        assert {message.queue_id for message in got} == {0, 1, 2, 3}
        kept, failed, left = got.pop(), got.pop(), got.pop()
        old = kept.receipt_handle or ""
        new = await first.extend(kept, PATIENCE_S)
        with pytest.raises(ReceiptUsed):
            await first.ack(old)
        await first.nack(failed, delay=1.0)
        for message in got[:5]:
            await first.ack(message)
        await second.ack_batch([*got[5:20], *[message.receipt_handle or "" for message in got[20:]]])
        again = await receive(second, 2, invisible=PATIENCE_S)  # the second comes when its time is over
        # One was given back, one was forgotten; neither the acknowledged ones nor the extended one come.
        assert {message.body for message in again} == {failed.body, left.body}
        assert [(message.topic, message.reconsume_times) for message in again] == [(topic, 1)] * 2
        assert {ReceiptHandle.parse(message.receipt_handle or "").flag for message in again} == {1}
        with pytest.raises(ReceiptExpired):
            await first.ack(left)
        await first.ack_batch(again)
        await second.ack(new)  # a receipt is anybody's of the group
        assert await first.receive(wait=3.0) == []


async def test_bad_receipts_on_apache(apache: ApacheCluster, topic: str, name: Callable[[str], str]) -> None:
    await send(apache, topic, [b"1"])
    async with PopConsumer(apache.namesrv, group=name("G"), from_where=FIRST) as consumer:
        await consumer.subscribe(topic)
        (message,) = await receive(consumer, 1)
        handle = ReceiptHandle.parse(message.receipt_handle or "")
        text = f"0 {handle.pop_ms} 60000 {handle.revive_queue_id} 0 "
        with pytest.raises(InvalidReceipt, match="no broker"):
            await consumer.ack(f"{text}elsewhere 0 0")
        with pytest.raises(MessageIllegal):
            await consumer.ack(f"{text}broker-a 77 0")
        with pytest.raises(NoMessage):
            await consumer.ack(f"{text}broker-a 0 7777")
        with pytest.raises(NoMessage):
            await consumer.extend(f"{text}broker-a 0 7777", 10.0)
        await consumer.ack(message)
        with pytest.raises(ReceiptUsed):
            await consumer.ack(message)


async def test_a_waiting_receive_hears_of_a_message_and_tags_select(
    apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    async with PopConsumer(apache.namesrv, group=name("G"), from_where=FIRST) as consumer:
        await consumer.subscribe(topic, "wanted")
        waiting = asyncio.create_task(consumer.receive(wait=PATIENCE_S))
        await send(apache, topic, [b"other"] * 4, tag="unwanted")
        await send(apache, topic, [b"this"], tag="wanted")
        (message,) = await waiting
        assert message.body == b"this"
        await consumer.ack(message)


async def test_a_slow_loop_keeps_its_messages(
    java: JavaClient, apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    group = name("G")
    await send(apache, topic, [b"slow", b"slow too", b"last"])
    await asyncio.to_thread(await_listed, java, apache.namesrv, topic, 3)
    seen: Counter[bytes] = Counter()
    async with (
        PopConsumer(apache.namesrv, group=group, from_where=FIRST, invisible=10.0) as consumer,
        PopConsumer(apache.namesrv, group=group, from_where=FIRST) as other,
    ):
        await consumer.subscribe(topic)
        await other.subscribe(topic)
        async for message in consumer:
            seen[message.body] += 1
            # Longer than it is hidden at first, and than brokers need to notice: nobody else gets it.
            assert await other.receive(wait=14.0) == []
            if len(seen) == 2:
                break
    assert set(seen.values()) == {1}


async def test_in_order_a_queue_waits_for_its_acks(
    apache: ApacheCluster, java: JavaClient, name: Callable[[str], str]
) -> None:
    topic = name("T")
    java.create_topic(apache.namesrv, topic, queues=1)
    await send(apache, topic, [b"1", b"2", b"3"])
    await asyncio.to_thread(await_listed, java, apache.namesrv, topic, 3)
    async with PopConsumer(
        apache.namesrv, group=name("G"), from_where=FIRST, ordered=True, invisible=PATIENCE_S
    ) as consumer:
        await consumer.subscribe(topic)
        first = await consumer.receive(2)
        assert [message.body for message in first] == [b"1", b"2"]
        assert await consumer.receive(wait=1.0) == []
        await consumer.ack(first[0])
        await consumer.nack(first[1], delay=1.0)
        (again, third) = await receive(consumer, 2)
        assert [(again.body, again.reconsume_times), (third.body, third.reconsume_times)] == [(b"2", 1), (b"3", 0)]
        extended = await consumer.extend(again, PATIENCE_S)
        await consumer.ack(extended)
        await consumer.ack_batch([third])
        assert await consumer.receive(wait=1.0) == []


async def test_push_consumers_pop_and_pull_as_the_broker_says(
    apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    group, seen, failed_once = name("G"), Counter[bytes](), asyncio.Event()

    async def handle(message: MessageView) -> None:
        assert message.topic == topic
        seen[message.body] += 1
        if message.body == b"5" and not failed_once.is_set():
            failed_once.set()
            raise RetryLater("once")

    async def until(done: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not done():
                await asyncio.sleep(0.05)

    await set_mode(apache, topic, group, POP, 8)
    await send(apache, topic, [b"%d" % number for number in range(100)])
    options = {"group": group, "from_where": FIRST, "strategy": ByBrokers()}
    async with (
        PushConsumer(apache.namesrv, **options) as first,  # type: ignore[arg-type]
        PushConsumer(apache.namesrv, **options) as second,  # type: ignore[arg-type]
    ):
        for consumer in (first, second):
            consumer.subscribe(topic, "*", handle)
            await consumer.start()
        assert MessageQueue(topic, "broker-a", -1) in first.assigned & second.assigned
        await until(lambda: len(seen) == 100 and seen[b"5"] == 2)
        assert sum(seen.values()) == 101
        await set_mode(apache, topic, group, PULL)
        for consumer in (first, second):
            consumer.pause()
            consumer.resume()  # asks for a new share at once
        queues = {MessageQueue(topic, "broker-a", queue_id) for queue_id in range(4)}
        await until(lambda: queues <= first.assigned | second.assigned)
        assert not any(queue.queue_id == -1 for queue in first.assigned | second.assigned)
        await send(apache, topic, [b"pulled %d" % number for number in range(20)])
        await until(lambda: len(seen) == 120)


async def test_without_an_event_loop(apache: ApacheCluster, topic: str, name: Callable[[str], str]) -> None:
    await send(apache, topic, [b"%d" % number for number in range(6)])

    def consume(group: str) -> set[bytes]:
        seen = set()
        with blocking.PopConsumer(apache.namesrv, group=group, from_where=FIRST) as consumer:
            consumer.subscribe(topic)
            while len(seen) < 3:
                messages = consumer.receive(1, invisible=20.0)
                seen |= {message.body for message in messages}
                consumer.ack_batch([consumer.extend(message, 30.0) for message in messages])
            (given_back,) = consumer.receive(1)
            consumer.nack(given_back, delay=0.0)
            for message in consumer:
                seen.add(message.body)
                if len(seen) == 6:
                    consumer.ack(message)
                    break
        return seen

    assert await asyncio.to_thread(consume, name("G")) == {b"%d" % number for number in range(6)}
