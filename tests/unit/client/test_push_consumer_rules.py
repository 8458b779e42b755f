"""Push consumers: defaults, pauses and limits, queues that leave, where progress goes."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, FakeCluster, until

from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, MessageModel, PullSettings, PushConsumer
from rocketline.client.consumer.push import pull_loop
from rocketline.clock import ManualClock
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.headers import PullMessageHeader

PULL = RequestCode.PULL_MESSAGE
MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP


def pull_count(cluster: FakeCluster) -> int:
    headers = [PullMessageHeader.decode(request) for request in cluster.broker.requests_of(PULL)]
    return len([header for header in headers if header.topic == "T"])


async def turns(count: int = 50) -> None:
    """Let everything that is ready happen."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_defaults_of_a_push_consumer_are_rocketmqs() -> None:
    parameters = inspect.signature(PushConsumer).parameters
    expected = {
        "model": MessageModel.CLUSTERING,
        "from_where": ConsumeFrom.LAST,
        "concurrency": 20,
        "batch_size": 1,
        "max_reconsume_times": -1,
    }
    assert {name: parameters[name].default for name in expected} == expected
    pull = parameters["pull"].default
    assert (pull.batch, pull.interval_s, pull.timeout_s, pull.suspend_s) == (32, 0, 30, 15)
    assert (pull.max_messages, pull.max_mib, pull.max_span) == (1000, 100, 2000)
    assert (pull.max_topic_messages, pull.max_topic_mib) == (None, None)
    # Read from the class: tests run with raised limits.
    timing = {item.name: item.default for item in fields(ClientTiming)}
    assert (timing["consume_timeout_s"], timing["pull_recheck_s"], timing["persist_s"]) == (15 * 60, 0.05, 5)
    assert (timing["lock_call_s"], timing["lock_s"], timing["lock_valid_s"]) == (1, 20, 30)


async def test_a_consumer_whose_rounds_fail_does_not_disturb_another_of_its_instance(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 2)

    def broken(group: str, own: str, queues: Sequence[MessageQueue], ids: Sequence[str]) -> list[MessageQueue]:
        raise ZeroDivisionError("a bug in a strategy")

    async def ignore(message: MessageView) -> None: ...

    timing = replace(QUICK, rebalance_s=0.01)
    async with (
        PushConsumer(
            cluster.namesrv, group="bad", strategy=broken, options=ClientOptions(instance_name="i", timing=timing)
        ) as bad,
        PushConsumer(cluster.namesrv, group="good", options=ClientOptions(instance_name="i", timing=timing)) as good,
    ):
        for consumer in (bad, good):
            consumer.subscribe("T", "*", ignore)
            await consumer.start()
        await cluster.broker.request(MEMBERS, 12)
        assert not bad.assigned
        assert len([queue for queue in good.assigned if queue.topic == "T"]) == 2


async def test_a_pause_between_pulls_is_kept_while_messages_flow(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    seen: list[int] = []

    async def handle(message: MessageView) -> None:
        seen.append(message.queue_offset)

    for _ in range(40):
        cluster.broker.store("T", 0, b"x")
    async with PushConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        pull=PullSettings(interval_s=1e6),
        options=QUICK_OPTIONS,
    ) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await until(lambda: len(seen) == 32)
        await turns()
        assert pull_count(cluster) == 1
    assert len(seen) == 32


async def test_a_throttled_queue_is_logged_now_and_then_and_counts_as_pulled(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pull_loop._LOG_EVERY == 1000
    monkeypatch.setattr(pull_loop, "_LOG_EVERY", 10)
    caplog.set_level(logging.WARNING, "rocketline.client.consumer.push.pull_loop")
    cluster.add_topic("T", 1)
    clock, release = ManualClock(), asyncio.Event()

    async def handle(message: MessageView) -> None:
        await release.wait()

    for _ in range(8):
        cluster.broker.store("T", 0, b"x")
    timing = replace(QUICK, pull_recheck_s=0.001)
    async with PushConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        pull=PullSettings(max_messages=1),
        options=ClientOptions(timing=timing, clock=clock),
    ) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        assert consumer._running is not None
        (loop,) = [loop for loop in consumer._running.queues.loops() if loop.queue.topic == "T"]
        await until(lambda: loop._full_count >= 25, "the rechecks")
        lines = [record.getMessage() for record in caplog.records if "pauses" in record.getMessage()]
        assert len(lines) == -(-loop._full_count // 10)
        assert "8 messages held, the limit is 1" in lines[0]
        clock.advance(60)
        await until(lambda: loop.last_pull_ms == clock.now_ms(), "the time of the last pull")
        assert pull_count(cluster) == 1
        release.set()


async def test_messages_that_wait_are_not_delivered_when_their_queue_leaves(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    started: list[int] = []
    release = asyncio.Event()

    async def handle(message: MessageView) -> None:
        started.append(message.queue_offset)
        await release.wait()

    for _ in range(5):
        cluster.broker.store("T", 0, b"x")
    async with PushConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        concurrency=1,
        options=ClientOptions(timing=QUICK, instance_name="zzz"),
    ) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await until(lambda: started == [0])
        cluster.broker.extra_members["g"] = ["0.0.0.0@first"]
        await cluster.broker.notify_members("g")
        await until(lambda: not [queue for queue in consumer.assigned if queue.topic == "T"])
        release.set()
        await turns()
    assert started == [0]
    assert cluster.broker.committed["g", "T", 0] == 1, "the one that ran counts"
    assert not cluster.broker.sent_back


async def test_the_owner_of_a_queue_commits_over_what_somebody_else_committed(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    seen: list[int] = []

    async def handle(message: MessageView) -> None:
        seen.append(message.queue_offset)

    async with PushConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        options=ClientOptions(timing=replace(QUICK, persist_s=0.01)),
    ) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        cluster.broker.store("T", 0, b"x")
        await until(lambda: cluster.broker.committed.get(("g", "T", 0)) == 1)
        cluster.broker.committed["g", "T", 0] = 77
        await until(lambda: cluster.broker.committed["g", "T", 0] == 1, "the owner's own commit")
    assert seen == [0]


async def test_without_a_master_progress_goes_to_a_slave(cluster: FakeCluster) -> None:
    slave = await cluster.add_slave()
    cluster.add_topic("T", 1)
    for data in cluster.name_server.routes["T"].broker_datas:
        data.broker_addrs = {1: slave.address}

    async def ignore(message: MessageView) -> None: ...

    timing = replace(QUICK, persist_s=0.01)
    async with PushConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=timing)
    ) as consumer:
        consumer.subscribe("T", "*", ignore)
        slave.store("T", 0, b"x")
        await consumer.start()
        await until(lambda: slave.committed.get(("g", "T", 0)) == 1, "the commit")
    assert not cluster.broker.requests
