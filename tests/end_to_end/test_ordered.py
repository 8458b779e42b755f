"""Consuming in order on a real cluster, through the face for plain threads too."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import defaultdict

from tests.support.patience import PATIENCE_S

from rocketline.client import ConsumeFrom, Producer, PushConsumer, SuspendQueue, blocking
from rocketline.message import Message, MessageView
from rocketline.testing import LocalCluster

FIRST = ConsumeFrom.FIRST


def send(cluster: LocalCluster, topic: str, numbers: range) -> None:
    """Numbers by turns to the queues of a topic."""
    with blocking.Producer(cluster.namesrv, group="senders") as producer:
        queues = producer.queues(topic)
        for number in numbers:
            producer.send(Message(topic, b"%d" % number), queue=queues[number % len(queues)])


def by_queue(messages: list[MessageView]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        found[message.queue_id].append(int(message.body))
    return dict(found)


def test_plain_functions_get_each_queue_in_order_and_the_next_member_goes_on_at_once() -> None:
    seen: queue.SimpleQueue[MessageView] = queue.SimpleQueue()
    failed = threading.Event()

    def handle(message: MessageView) -> None:
        if int(message.body) == 9 and not failed.is_set():
            failed.set()
            raise SuspendQueue(0.01)
        seen.put(message)

    with LocalCluster() as cluster:
        send(cluster, "orders", range(40))
        for numbers in (range(40), range(40, 60)):
            if numbers.start:
                send(cluster, "orders", numbers)
            with blocking.PushConsumer(cluster.namesrv, group="g", ordered=True, from_where=FIRST) as consumer:
                consumer.subscribe("orders", "*", handle)
                consumer.start()
                got = [seen.get(timeout=PATIENCE_S) for _ in numbers]
            # The first member's locks would last a minute had it not given them back.
            assert by_queue(got) == {number: list(numbers[number::4]) for number in range(4)}
    assert failed.is_set()
    assert seen.empty()


def test_a_plain_loop_gets_each_queue_in_order() -> None:
    with LocalCluster() as cluster:
        send(cluster, "orders", range(20))
        with blocking.PushConsumer(cluster.namesrv, group="g", ordered=True, from_where=FIRST) as consumer:
            got = [message for _, message in zip(range(20), consumer.messages("orders"))]
    assert by_queue(got) == {number: list(range(number, 20, 4)) for number in range(4)}


async def test_a_message_that_fails_too_often_is_a_dead_letter_at_once() -> None:
    dead: asyncio.Queue[MessageView] = asyncio.Queue()

    async def fail(message: MessageView) -> None:
        raise SuspendQueue(0.01)

    async with LocalCluster() as cluster, Producer(cluster.namesrv, group="senders") as producer:
        await producer.send(Message("orders", b"bad"))
        async with (
            PushConsumer(cluster.namesrv, group="g", ordered=True, from_where=FIRST, max_reconsume_times=2) as consumer,
            PushConsumer(cluster.namesrv, group="undertakers", from_where=FIRST) as undertaker,
        ):
            consumer.subscribe("orders", "*", fail)
            undertaker.subscribe("%DLQ%g", "*", dead.put)
            await consumer.start()
            async with asyncio.timeout(PATIENCE_S):
                while not undertaker_can_start(cluster):
                    await asyncio.sleep(0.02)
                await undertaker.start()
                letter = await dead.get()
    assert (letter.body, letter.reconsume_times, letter.properties["RETRY_TOPIC"]) == (b"bad", 3, "orders")


def undertaker_can_start(cluster: LocalCluster) -> bool:
    """Whether the dead-letter topic is there already."""
    return (cluster.data / "consumequeue" / "%DLQ%g").is_dir()
