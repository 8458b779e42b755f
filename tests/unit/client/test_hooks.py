"""Hooks, filters and the statistics they stand beside, on producers and push consumers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, FakeCluster, until

from rocketline.client import (
    ClientOptions,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOutcome,
    Producer,
    PushConsumer,
    RetryLater,
    SendContext,
)
from rocketline.client.consumer.group.consume_observer import ConsumeObserver
from rocketline.client.consumer.push.handlers import NotDone
from rocketline.client.consumer_info import ConsumerRunningInfo
from rocketline.client.hooks import Hooks
from rocketline.clock import ManualClock
from rocketline.errors import NoReply, SendFailed
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.bodies import decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.records import decode_messages

INFO = RequestCode.GET_CONSUMER_RUNNING_INFO


@asynccontextmanager
async def consuming(
    cluster: FakeCluster, handler: Callable[..., Any], prepare: Callable[[PushConsumer], None], **options: Any
) -> AsyncIterator[PushConsumer]:
    arguments = {"from_where": ConsumeFrom.FIRST, "group": "g", "options": QUICK_OPTIONS, **options}
    async with PushConsumer(cluster.namesrv, **arguments) as consumer:
        consumer.subscribe("T", "*", handler)
        prepare(consumer)
        await consumer.start()
        yield consumer


async def test_hooks_see_each_run_before_and_after(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    seen: list[Any] = []

    async def before(context: ConsumeContext) -> None:
        await asyncio.sleep(0)
        context.props["mark"] = 1
        seen.append(("before", context.success, context.outcome, context.status))

    def after(context: ConsumeContext) -> None:
        seen.append(("after", context.success, context.outcome, context.status))
        seen.append((context.group, context.namespace, context.queue, context.props))
        seen.append([message.body for message in context.messages])

    def handle(message: MessageView) -> None:
        seen.append("handler")

    async with consuming(cluster, handle, lambda consumer: consumer.add_hook(before, after)):
        await until(lambda: len(seen) == 5)
    assert seen == [
        ("before", False, None, None),
        "handler",
        ("after", True, ConsumeOutcome.SUCCESS, "CONSUME_SUCCESS"),
        ("g", "", MessageQueue("T", "broker-a", 0), {"mark": 1}),
        [b"x"],
    ]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(RetryLater("busy"), ConsumeOutcome.FAILED), (ValueError("no"), ConsumeOutcome.EXCEPTION)],
)
async def test_hooks_see_failures(cluster: FakeCluster, error: Exception, outcome: ConsumeOutcome) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    contexts: list[ConsumeContext] = []

    async def handle(message: MessageView) -> None:
        raise error

    async with consuming(cluster, handle, lambda consumer: consumer.add_hook(after=contexts.append)):
        await until(lambda: bool(contexts) and bool(cluster.broker.sent_back))
    (context,) = contexts
    assert (context.outcome, context.success, context.error) == (outcome, False, error)
    assert context.status == "RECONSUME_LATER"


@pytest.mark.parametrize(
    ("error", "took_s", "outcome"),
    [
        (None, 59.9, ConsumeOutcome.SUCCESS),
        (None, 60.0, ConsumeOutcome.TIME_OUT),
        (RetryLater(), 60.0, ConsumeOutcome.TIME_OUT),
        (RetryLater(), 0.0, ConsumeOutcome.FAILED),
        (ValueError(), 60.0, ConsumeOutcome.EXCEPTION),
        (NotDone(), 60.0, ConsumeOutcome.RETURNNULL),
    ],
)
async def test_kinds_of_outcome(error: Exception | None, took_s: float, outcome: ConsumeOutcome) -> None:
    observer = ConsumeObserver("g", ManualClock(), consume_timeout_s=60.0)
    context = await observer.before(MessageQueue("T", "b", 0), [])
    await observer.after(context, error, took_s)
    assert (context.outcome, context.success, context.duration_s) == (outcome, error is None, took_s)


async def test_a_hook_that_fails_hurts_nobody(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    after: list[ConsumeContext] = []
    handled: list[MessageView] = []

    def broken(context: ConsumeContext) -> None:
        raise ValueError("a broken hook")

    async def cancelled(context: ConsumeContext) -> None:
        raise asyncio.CancelledError

    def prepare(consumer: PushConsumer) -> None:
        consumer.add_hook(broken, broken)
        consumer.add_hook(cancelled)
        consumer.add_hook(after=after.append)

    with caplog.at_level(logging.WARNING, "rocketline.client.hooks"):
        async with consuming(cluster, handled.append, prepare):
            await until(lambda: bool(after))
    assert len(handled) == 1
    assert after[0].success
    assert not cluster.broker.sent_back
    assert "a broken hook" in caplog.text
    assert "cancelled itself" in caplog.text


async def test_cancelling_a_client_gets_through_its_hooks() -> None:
    hooks: Hooks[int] = Hooks()
    entered = asyncio.Event()

    async def wait(context: int) -> None:
        entered.set()
        await asyncio.Event().wait()

    hooks.add(wait)
    task = asyncio.create_task(hooks.before(1))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_hook_is_a_function() -> None:
    with pytest.raises(TypeError, match="hook"):
        Hooks[int]().add("nonsense")  # type: ignore[arg-type]


async def test_filters_take_messages_away_as_if_consumed(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_topic("T", 1)
    for body in (b"keep 1", b"drop", b"keep 2"):
        cluster.broker.store("T", 0, body)
    handled: list[bytes] = []

    def broken(message: MessageView) -> bool:
        raise ValueError("a broken filter")

    def prepare(consumer: PushConsumer) -> None:
        consumer.add_filter(broken)
        consumer.add_filter(lambda message: message.body != b"drop")

    async def handle(message: MessageView) -> None:
        handled.append(message.body)

    async with consuming(cluster, handle, prepare):
        await until(lambda: len(handled) == 2)
    assert handled == [b"keep 1", b"keep 2"]
    assert cluster.broker.committed["g", "T", 0] == 3
    assert "a broken filter" in caplog.text


async def test_statistics_are_shown_to_the_user_and_to_operators(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    clock = ManualClock()
    for number in range(20):
        cluster.broker.store("T", 0, b"%d" % number)

    async def handle(message: MessageView) -> None:
        clock.advance(0.002)
        if message.body == b"7":
            raise RetryLater

    async with consuming(
        cluster, handle, lambda _: None, concurrency=1, options=ClientOptions(clock=clock, timing=QUICK)
    ) as consumer:
        await until(lambda: cluster.broker.committed.get(("g", "T", 0)) == 20 or bool(cluster.broker.sent_back))
        await until(lambda: consumer.stats["T"].consume_failed_msgs == 1)
        await until(lambda: not any(loop.buffer for loop in consumer._started.queues.loops()))
        clock.advance(10)
        status = consumer.stats["T"]
        assert (status.pull_tps, status.consume_ok_tps, status.consume_failed_tps) == (2.0, 1.9, 0.1)
        assert status.consume_rt == pytest.approx(2.0)
        assert status.pull_rt > 0
        answer = await cluster.broker.ask_client(Command(INFO, {"consumerGroup": "g", "clientId": consumer.client_id}))
        info = decode_body(ConsumerRunningInfo, answer.body)
        assert info.status_table["T"] == status
        assert info.status_table["%RETRY%g"].consume_ok_tps == 0


async def test_send_hooks(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    seen: list[tuple[str, int, bool]] = []
    async with Producer(cluster.namesrv, group="shop", retries=0, options=QUICK_OPTIONS) as producer:
        producer.add_hook(
            lambda context: seen.append(("before", len(context.messages), bool(context.receipts))),
            lambda context: seen.append((type(context.error).__name__, len(context.receipts), context.duration_s >= 0)),
        )
        receipt = await producer.send(Message("T", b"x"))
        assert receipt.queue_offset == 0
        assert [r.queue_offset for r in await producer.send_batch([Message("T", b"y"), Message("T", b"z")])] == [1, 2]
        await producer.send_oneway(Message("T", b"w"))
        cluster.broker.on[RequestCode.SEND_MESSAGE_V2] = lambda r: r.reply(ResponseCode.SYSTEM_ERROR, remark="no")
        with pytest.raises(SendFailed):
            await producer.send(Message("T", b"x"))
    assert seen == [
        ("before", 1, False),
        ("NoneType", 1, True),
        ("before", 2, False),
        ("NoneType", 2, True),
        ("before", 1, False),
        ("NoneType", 0, True),
        ("before", 1, False),
        ("SendFailed", 0, True),
    ]


async def test_a_broken_send_hook_does_not_fail_the_send(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)

    def broken(context: SendContext) -> None:
        raise ValueError("a broken hook")

    async with Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as producer:
        producer.add_hook(broken, broken)
        assert (await producer.send(Message("T", b"x"))).queue.topic == "T"


async def test_a_hook_prepares_messages(cluster: FakeCluster) -> None:
    """Every way to send passes it; what it raises or returns in error changes nothing."""
    cluster.add_topic("T", 1)

    sent: list[Message] = []

    def marked(message: Message) -> Message:
        return msgspec.structs.replace(message, properties={**message.properties, "mark": "set"})

    def broken(message: Message) -> Message:
        raise ValueError("a broken hook")

    async with Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as producer:
        producer.add_hook(prepare=broken)
        producer.add_hook(prepare=lambda message: None)
        producer.add_hook(lambda context: sent.extend(context.messages), prepare=marked)
        with pytest.raises(TypeError, match="must be a function"):
            producer.add_hook(prepare="marked")
        await producer.send(Message("T", b"send"))
        await producer.send_oneway(Message("T", b"oneway"))
        await (await producer.submit(Message("T", b"submit")))
        await producer.send_batch([Message("T", b"batch"), Message("T", b"batch")])
        with pytest.raises(NoReply):
            await producer.request(Message("T", b"request"), timeout=1.0)
        queue = cluster.broker.queues["T", 0]
        await until(lambda: queue.end == 6)
    stored = [message for message in decode_messages(b"".join(queue.records)) if message.body != b"batch"]
    assert [message.properties.get("mark") for message in (*sent, *stored)] == ["set"] * (6 + 4)


async def test_a_handler_in_a_thread_sees_what_a_hook_has_set(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    variable: ContextVar[str] = ContextVar("variable")
    seen: list[str] = []

    def handle(message: MessageView) -> None:
        seen.append(variable.get())

    def before(context: ConsumeContext) -> None:
        variable.set(context.messages[0].body.decode())

    async with consuming(cluster, handle, lambda consumer: consumer.add_hook(before)):
        await until(lambda: bool(seen))
    assert seen == ["x"]
