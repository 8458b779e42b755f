"""Handlers that return nonsense, keep the event loop for themselves, or never end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.unit.client.fakes import QUICK, FakeCluster, until
from tests.unit.client.ordered_group import OrderedGroup, on_virtual_time

from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, OrderedResult, PushConsumer
from rocketline.client.consumer.push.loop_pulse import BEAT_S, LoopPulse
from rocketline.clock import ManualClock
from rocketline.message import MessageView

DELIVERY = "rocketline.client.consumer.push.delivery"


@asynccontextmanager
async def consuming(cluster: FakeCluster, handler: Callable[..., Any], **options: Any) -> AsyncIterator[PushConsumer]:
    timing = replace(QUICK, persist_s=0.01)
    arguments = {"from_where": ConsumeFrom.FIRST, "group": "g", "concurrency": 1, **options}
    async with PushConsumer(cluster.namesrv, options=ClientOptions(timing=timing), **arguments) as consumer:
        consumer.subscribe("T", "*", handler)
        await consumer.start()
        yield consumer


def nothing() -> None: ...


def one(message: MessageView) -> None: ...


def two(order: object, message: MessageView) -> None: ...


def named(message: MessageView, *, database: object) -> None: ...


@pytest.mark.parametrize(
    ("handler", "options", "called_with"),
    [
        (nothing, {}, "message"),
        (two, {}, "message"),
        (named, {}, "message"),
        (one, {"deserializer": "json"}, "object, message"),
    ],
)
async def test_a_function_that_cannot_be_called_is_refused_before_it_fails_for_every_message(
    cluster: FakeCluster, handler: Callable[..., Any], options: dict[str, Any], called_with: str
) -> None:
    async with PushConsumer(cluster.namesrv, group="g") as consumer:
        with pytest.raises(TypeError, match=rf"{handler.__name__} cannot be called with \({called_with}\)"):
            consumer.subscribe("T", handler, **options)
    async with PushConsumer(cluster.namesrv, group="g", batch_size=2) as consumer:
        with pytest.raises(TypeError, match=rf"with \({called_with.replace('object', 'objects')}s\)"):
            consumer.subscribe("T", handler, **options)


@pytest.mark.parametrize(
    "handler", [one, two, partial(named, database=None), print, dict, lambda *all_of_it: None, asyncio.Queue().put]
)
async def test_any_function_that_can_be_called_is_taken(cluster: FakeCluster, handler: Callable[..., Any]) -> None:
    async with PushConsumer(cluster.namesrv, group="g") as consumer:
        consumer.subscribe("T", handler, deserializer="json" if handler is two else None)


@pytest.mark.parametrize("result", [False, "RECONSUME_LATER", OrderedResult.COMMIT, object()])
async def test_a_result_means_nothing_and_that_is_said_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, result: object
) -> None:
    caplog.set_level(logging.WARNING, DELIVERY)
    cluster.add_topic("T", 1)
    for _ in range(3):
        cluster.broker.store("T", 0, b"x")

    async def billing(message: MessageView) -> object:
        return result

    async with consuming(cluster, billing):
        await until(lambda: cluster.broker.committed.get(("g", "T", 0)) == 3, "the commit")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "group g: handler " in line
    assert "billing of topic T returned " in line
    assert "one that raises gets them again" in line
    assert not cluster.broker.sent_back


async def test_a_long_result_does_not_fill_the_log(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, DELIVERY)
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    async with consuming(cluster, lambda message: b"y" * 100_000):
        await until(lambda: cluster.broker.committed.get(("g", "T", 0)) == 1)
    assert len(caplog.records[0].getMessage()) < 1000


async def test_an_exception_that_is_returned_is_a_failure(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    async with consuming(cluster, lambda message: ValueError("forgot to raise it")):
        await until(lambda: len(cluster.broker.sent_back) == 1)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_handler_that_keeps_the_loop_is_named_with_the_time(ordered: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, DELIVERY)

    @on_virtual_time
    async def scenario(group: OrderedGroup) -> None:
        async def crunching(message: MessageView) -> None:
            await asyncio.sleep(1)
            group.loop.block(5)
            await asyncio.sleep(1)

        await group.join(crunching, ordered=ordered)
        group.send(0)
        await asyncio.sleep(60)

    scenario()
    (line,) = [record.getMessage() for record in caplog.records if "stood still" in record.getMessage()]
    assert "crunching" in line
    assert "stood still for 4." in line or "stood still for 5." in line
    assert "plain function, which runs in a thread" in line


def test_a_handler_that_keeps_the_loop_to_its_end_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, DELIVERY)

    @on_virtual_time
    async def scenario(group: OrderedGroup) -> None:
        await group.join(lambda message: group.loop.block(10), ordered=False)
        group.send(0)
        await asyncio.sleep(60)

    scenario()
    assert len([record for record in caplog.records if "stood still" in record.getMessage()]) == 1


def test_a_handler_that_waits_as_it_should_is_not_accused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, DELIVERY)

    @on_virtual_time
    async def scenario(group: OrderedGroup) -> None:
        async def patient(message: MessageView) -> None:
            await asyncio.sleep(20)

        await group.join(patient, ordered=False)
        group.send(0)
        await asyncio.sleep(5)
        group.loop.block(2)  # not long, and whose fault it is nobody knows
        await asyncio.sleep(60)

    scenario()
    assert "stood still" not in caplog.text


async def test_quiet_times_are_no_standstill() -> None:
    clock = ManualClock()
    pulse = LoopPulse(clock, 3.0)
    clock.advance(3600)
    pulse.begin()
    started = clock.monotonic()
    assert pulse.standstill_since(started) == 0
    clock.advance(5)
    assert pulse.standstill_since(started) == pytest.approx(5 - BEAT_S)
    assert pulse.standstill_since(started + 3) == 2, "who began in the middle of it can be blamed for the rest only"
    pulse.rest()


def test_while_nothing_runs_nothing_beats() -> None:
    @on_virtual_time
    async def scenario(group: OrderedGroup) -> None:
        seen: list[int] = []
        await group.join(lambda message: seen.append(message.queue_offset), ordered=False)
        group.send(0)
        await asyncio.sleep(10)
        (consumer,) = group.members.values()
        last_s = consumer._started._delivery._pulse._last_s
        await asyncio.sleep(3600)
        assert consumer._started._delivery._pulse._last_s == last_s
        assert seen == [0]

    scenario()


@on_virtual_time
async def test_a_handler_that_never_ends_holds_up_nobody_after_its_time(group: OrderedGroup) -> None:
    """After 15 minutes its message goes back, progress moves on, and so do the other messages."""
    hangs, done = asyncio.Event(), []

    async def handle(message: MessageView) -> None:
        if message.queue_offset == 0 and not message.reconsume_times:
            await hangs.wait()
        done.append((message.queue_offset, message.reconsume_times))

    await group.join(handle, ordered=False, timing=ClientTiming(stop_s=1.0))
    for _ in range(3):
        group.send(0)
    await asyncio.sleep(14 * 60)
    assert done == [(1, 0), (2, 0)]
    assert group.broker.offsets.get("g", "T", 0) == 0
    await asyncio.sleep(17 * 60)
    assert group.broker.offsets.get("g", "T", 0) == 3
    group.broker.delays.deliver_due()
    group.broker.dispatch()
    await asyncio.sleep(60)
    assert done[2] == (0, 1)
