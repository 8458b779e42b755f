from __future__ import annotations

import asyncio

import pytest
from tests.unit.client.fakes import QUICK_OPTIONS, FakeCluster, own_tasks, until

from rocketline.client import ConsumeFrom, PushConsumer
from rocketline.errors import ClientError, ConfigError


def opened(cluster: FakeCluster, **options: object) -> PushConsumer:
    return PushConsumer(cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def three_messages(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    for number in range(3):
        cluster.broker.store("T", 0, b"%d" % number, {"TAGS": "even" if number % 2 == 0 else "odd"})


def committed(cluster: FakeCluster) -> int | None:
    return cluster.broker.committed.get(("g", "T", 0))


async def test_messages_come_in_order_and_the_next_acknowledges_the_last(cluster: FakeCluster) -> None:
    seen = []
    async with opened(cluster) as consumer:
        async for message in consumer.messages("T"):
            seen.append(message.body)
            if len(seen) == 3:
                break
    assert seen == [b"0", b"1", b"2"]
    assert committed(cluster) == 2, "the message at which the loop was left is not acknowledged"
    assert not cluster.broker.sent_back


async def test_stop_ends_the_loop_after_the_current_message(cluster: FakeCluster) -> None:
    seen = []
    async with opened(cluster) as consumer:
        async for message in consumer.messages("T"):
            seen.append(message.body)
            if len(seen) == 2:
                consumer.stop()
    assert seen == [b"0", b"1"]
    assert committed(cluster) == 2


async def test_closing_the_stream_ends_only_the_loop(cluster: FakeCluster) -> None:
    async with opened(cluster) as consumer:
        stream = consumer.messages("T")
        async for message in stream:
            if message.body == b"2":
                stream.close()
    assert committed(cluster) == 3


async def test_an_exception_in_the_body_leaves_the_message_for_redelivery(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="cannot"):
        async with opened(cluster) as consumer:
            async for message in consumer.messages("T"):
                if message.body == b"1":
                    raise ValueError("cannot take this")
    assert committed(cluster) == 1
    again = []
    async with opened(cluster) as consumer:
        async for message in consumer.messages("T"):
            again.append(message.body)
            if len(again) == 2:
                break
    assert again == [b"1", b"2"]


async def test_tags_select(cluster: FakeCluster) -> None:
    async with opened(cluster) as consumer:
        seen = []
        async for message in consumer.messages("T", "even"):
            seen.append(message.body)
            if len(seen) == 2:
                consumer.stop()
    assert seen == [b"0", b"2"]
    assert committed(cluster) == 3


async def test_cancelling_the_loop_leaves_nothing_behind(cluster: FakeCluster) -> None:
    before = own_tasks()
    reached = asyncio.Event()

    async def loop() -> None:
        async with opened(cluster) as consumer:
            async for message in consumer.messages("T"):
                if message.body == b"2":
                    reached.set()
                    await asyncio.Event().wait()

    running = asyncio.create_task(loop())
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert committed(cluster) == 2
    await until(lambda: own_tasks() <= before and not cluster.broker.channels)


async def test_a_loop_waiting_for_messages_ends_with_the_consumer(cluster: FakeCluster) -> None:
    async with opened(cluster) as consumer:

        async def loop() -> list[bytes]:
            return [message.body async for message in consumer.messages("T")]

        running = asyncio.create_task(loop())
        await until(
            lambda: any((request.ext or {}).get("queueOffset") == "3" for request in cluster.broker.requests_of(11))
        )
        await until(lambda: bool(cluster.broker.requests_of(11)))
        consumer.stop()
        assert set(await running) <= {b"0", b"1", b"2"}


async def test_one_handler_per_topic(cluster: FakeCluster) -> None:
    async with opened(cluster) as consumer:
        consumer.messages("T")
        with pytest.raises(ClientError, match="already has a handler"):
            consumer.messages("T")
    async with opened(cluster, batch_size=5) as consumer:
        with pytest.raises(ConfigError, match="batch_size"):
            consumer.messages("T")
