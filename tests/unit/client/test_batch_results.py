"""Handlers of lists that consumed only a part of them, and say which."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, FakeCluster, until

from rocketline.client import (
    ClientOptions,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOutcome,
    MessageModel,
    Ordering,
    PushConsumer,
    RetryLater,
)
from rocketline.message import MessageView
from rocketline.protocol.codes import RequestCode

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SEND = RequestCode.SEND_MESSAGE_V2


@asynccontextmanager
async def consuming(cluster: FakeCluster, handler: Callable[..., Any], **options: Any) -> AsyncIterator[PushConsumer]:
    arguments = {"from_where": ConsumeFrom.FIRST, "group": "g", "options": QUICK_OPTIONS, "batch_size": 4, **options}
    async with PushConsumer(cluster.namesrv, **arguments) as consumer:
        consumer.subscribe("T", "*", handler)
        await consumer.start()
        yield consumer


def fill(cluster: FakeCluster, count: int = 4) -> None:
    cluster.add_topic("T", 1)
    for number in range(count):
        cluster.broker.store("T", 0, b"%d" % number, {"UNIQ_KEY": f"U{number}"})


def committed(cluster: FakeCluster) -> int | None:
    return cluster.broker.committed.get(("g", "T", 0))


def returned(cluster: FakeCluster) -> list[tuple[str | None, int]]:
    return [(header.origin_msg_id, header.delay_level) for header in cluster.broker.sent_back]


async def test_only_the_messages_named_go_back_and_the_others_count(cluster: FakeCluster) -> None:
    fill(cluster)
    outcomes: list[ConsumeContext] = []

    async def handle(messages: list[MessageView]) -> None:
        raise RetryLater("two of four", messages=messages[2:], delay_level=5)

    async with consuming(cluster, handle) as consumer:
        consumer.add_hook(after=outcomes.append)
        await until(lambda: len(cluster.broker.sent_back) == 2 and len(outcomes) == 1)
        stats = consumer._observer.stats
        await until(lambda: stats.status("T").consume_failed_msgs == 2, "the count of failures")
        assert stats._counters("T").ok.value == 2
    assert returned(cluster) == [("U2", 5), ("U3", 5)]
    assert committed(cluster) == 4
    assert outcomes[0].outcome is ConsumeOutcome.FAILED


async def test_which_ones_is_the_handlers_choice(cluster: FakeCluster) -> None:
    fill(cluster)

    def handle(messages: list[MessageView]) -> None:
        raise RetryLater(messages=(message for message in messages if message.body in (b"0", b"3")))

    async with consuming(cluster, handle):
        await until(lambda: len(cluster.broker.sent_back) == 2)
    assert returned(cluster) == [("U0", 0), ("U3", 0)]
    assert committed(cluster) == 4


async def test_without_names_all_go_back(cluster: FakeCluster) -> None:
    fill(cluster)

    def handle(messages: list[MessageView]) -> None:
        raise RetryLater("all of them")

    async with consuming(cluster, handle):
        await until(lambda: len(cluster.broker.sent_back) == 4)
    assert committed(cluster) == 4


async def test_none_named_is_none_failed(cluster: FakeCluster) -> None:
    fill(cluster)
    calls = 0

    def handle(messages: list[MessageView]) -> None:
        nonlocal calls
        calls += 1
        raise RetryLater(messages=[])

    async with consuming(cluster, handle, options=ClientOptions(timing=replace(QUICK, persist_s=0.01))):
        await until(lambda: committed(cluster) == 4)
    assert (calls, returned(cluster)) == (1, [])


async def test_what_nobody_takes_back_comes_again_alone_and_holds_progress(cluster: FakeCluster) -> None:
    fill(cluster)
    lists: list[list[bytes]] = []
    cluster.broker.script(BACK, 1)
    cluster.broker.script(SEND, *[1] * 3)

    async def handle(messages: list[MessageView]) -> None:
        lists.append([message.body for message in messages])
        if len(messages) == 4:
            raise RetryLater(messages=[messages[1]])

    async with consuming(cluster, handle, options=ClientOptions(timing=replace(QUICK, persist_s=0.01))):
        await until(lambda: committed(cluster) == 4, "the commit of everything")
    assert lists == [[b"0", b"1", b"2", b"3"], [b"1"]]


async def test_names_of_other_messages_mean_nothing_and_all_come_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rocketline.client.consumer.push.delivery")
    fill(cluster, 8)
    first: list[MessageView] = []

    async def handle(messages: list[MessageView]) -> None:
        if not first:
            first.extend(messages)
            return
        raise RetryLater(messages=[first[0]])

    async with consuming(cluster, handle, concurrency=1):
        await until(lambda: len(cluster.broker.sent_back) == 4)
    assert [name for name, _ in returned(cluster)] == ["U4", "U5", "U6", "U7"]
    assert "group g: a handler wants messages later that it was not given" in caplog.text


async def test_what_is_no_message_is_a_failure_of_the_handler(cluster: FakeCluster) -> None:
    with pytest.raises(TypeError, match="not 'U1'"):
        RetryLater(messages=["U1"])  # type: ignore[list-item]
    fill(cluster)

    def handle(messages: list[MessageView]) -> None:
        raise RetryLater(messages=[message.message_id for message in messages[:1]])  # type: ignore[misc]

    async with consuming(cluster, handle):
        await until(lambda: len(cluster.broker.sent_back) == 4)


async def test_broadcasting_leaves_the_named_ones_behind(cluster: FakeCluster, tmp_path: Any) -> None:
    fill(cluster)
    calls: list[int] = []

    async def handle(messages: list[MessageView]) -> None:
        calls.append(len(messages))
        raise RetryLater(messages=messages[:1])

    async with consuming(cluster, handle, model=MessageModel.BROADCASTING, offsets=tmp_path) as consumer:
        await until(lambda: calls == [4])
        await until(lambda: not any(loop.buffer for loop in consumer._started.queues.loops()))
        await asyncio.sleep(0)
    assert not cluster.broker.sent_back
    assert calls == [4]


async def test_an_ordered_consumer_gets_its_whole_list_again(cluster: FakeCluster) -> None:
    """Handing a part back would let later messages overtake it."""
    fill(cluster)
    cluster.broker.on[RequestCode.LOCK_BATCH_MQ] = lambda request: request.reply(
        0, body=request.body.replace(b'"mqSet"', b'"lockOKMQSet"')
    )
    lists: list[list[bytes]] = []

    async def handle(messages: list[MessageView]) -> None:
        lists.append([message.body for message in messages])
        if len(lists) == 1:
            raise RetryLater(messages=messages[2:])

    async with consuming(cluster, handle, ordered=Ordering(suspend_s=0.01)):
        await until(lambda: len(lists) == 2)
    assert lists == [[b"0", b"1", b"2", b"3"]] * 2
    assert not cluster.broker.sent_back
