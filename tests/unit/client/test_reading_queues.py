"""Reading queues: before the start, settings, brokers that are away, queues that leave."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, FakeCluster, fake_cluster, own_tasks, until

from rocketline.client import (
    ClientOptions,
    ClientTiming,
    ConsumeFrom,
    MessageModel,
    PullConsumer,
    PullSettings,
    PushConsumer,
)
from rocketline.client.session import open_session
from rocketline.errors import ConfigError, RouteNotFound
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PullMessageHeader, UpdateConsumerOffsetHeader
from rocketline.protocol.headers.read import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND

PULL = RequestCode.PULL_MESSAGE
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


async def ignore(message: MessageView) -> None: ...


def of_topic(topic: str) -> Any:
    return lambda request: (request.ext or {})["topic"] == topic


def commits_queue_1(request: Command) -> bool:
    header = UpdateConsumerOffsetHeader.decode(request)
    return (header.topic, header.queue_id) == ("T", 1)


async def some_commits(cluster: FakeCluster) -> None:
    """A few rounds of the timer that commits the queue which stays."""
    so_far = len([request for request in cluster.broker.requests_of(COMMIT) if commits_queue_1(request)])
    await cluster.broker.request(COMMIT, so_far + 3, commits_queue_1)


def pulls_of(cluster: FakeCluster, topic: str = "T") -> list[PullMessageHeader]:
    headers = [PullMessageHeader.decode(request) for request in cluster.broker.requests_of(PULL)]
    return [header for header in headers if header.topic == topic]


# Starting


async def test_until_it_starts_a_consumer_says_nothing_to_anybody(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    before = own_tasks()
    consumer = PushConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS)
    consumer.subscribe("T", "*", ignore)
    assert own_tasks() == before
    async with consumer:
        for _ in range(20):
            await asyncio.sleep(0)
        assert not cluster.name_server.channels
        assert not cluster.broker.channels
        await consumer.start()
        assert cluster.broker.channels


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        *(
            (PushConsumer, option)
            for option in ("concurrency=0", "concurrency=1001", "batch_size=0", "batch_size=1025")
        ),
        *((PushConsumer, option) for option in ("max_reconsume_times=-2", "strategy=BY_GUESS")),
        *(
            (PullSettings, option)
            for option in ("max_span=0", "max_span=65536", "max_messages=0", "max_messages=65536")
        ),
        *((PullSettings, option) for option in ("max_mib=0", "max_mib=1025", "batch=0", "batch=1025")),
        *((PullSettings, option) for option in ("max_topic_messages=0", "max_topic_messages=6553501")),
        *((PullSettings, option) for option in ("max_topic_mib=0", "max_topic_mib=102401", "max_total_messages=0")),
        *((PullSettings, option) for option in ("interval_s=-0.001", "suspend_s=31.0")),
        (ClientTiming, "consume_timeout_s=0.0"),
    ],
)
def test_settings_out_of_their_range_are_named(kind: Any, option: str) -> None:
    name, _, text = option.partition("=")
    value = text if name == "strategy" else float(text) if "." in text else int(text)
    make = partial(kind, "127.0.0.1:1", group="g") if kind is PushConsumer else kind
    with pytest.raises(ConfigError, match=text):
        make(**{name: value})


async def test_a_broadcasting_consumer_has_no_retry_topic_and_the_same_name_every_time(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.add_topic("T", 1)
    options: dict[str, Any] = {"group": "g", "offsets": tmp_path, "options": QUICK_OPTIONS}
    everybody = PushConsumer(cluster.namesrv, model=MessageModel.BROADCASTING, **options)
    again = PushConsumer(cluster.namesrv, model=MessageModel.BROADCASTING, **options)
    assert everybody.client_id == again.client_id
    assert PushConsumer(cluster.namesrv, **options).client_id != PushConsumer(cluster.namesrv, **options).client_id
    async with everybody:
        everybody.subscribe("T", "*", ignore)
        await everybody.start()
        await cluster.broker.request(PULL)
    (data,) = cluster.broker.heartbeats[0].consumer_data_set
    assert [item.topic for item in data.subscription_data_set] == ["T"]


async def test_the_queues_to_read_are_the_read_queues(cluster: FakeCluster) -> None:
    queues = cluster.add_topic("T", 4, write_queues=8)
    async with PullConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as consumer:
        assert await consumer.queues("T") == tuple(queues)
    assert len(queues) == 4


# Pulling


async def test_pulls_may_carry_their_expression(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    seen: list[MessageView] = []
    async with PushConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        pull=PullSettings(post_subscription=True),
        options=QUICK_OPTIONS,
    ) as consumer:
        consumer.subscribe("T", "a || b", seen.append)
        await consumer.start()
        await cluster.broker.request(PULL, where=of_topic("T"))
        for count in (1, 2):  # the second one's pull has the progress of the first
            cluster.broker.store("T", 0, b"x", {"TAGS": "a"})
            await until(lambda count=count: len(seen) == count)  # type: ignore[misc]
        await until(lambda: pulls_of(cluster)[-1].commit_offset > 0)
        version = cluster.broker.heartbeats[0].consumer_data_set[0].subscription_data_set[0].sub_version
    first, last = pulls_of(cluster)[0], pulls_of(cluster)[-1]
    assert (first.sys_flag, first.subscription, first.sub_version) == (SUSPEND | SUBSCRIPTION, "a || b", version)
    assert last.sys_flag == SUSPEND | SUBSCRIPTION | COMMIT_OFFSET
    assert (first.expression_type, first.max_msg_bytes) == ("TAG", 262144)


async def test_a_broker_that_is_silent_does_not_keep_others_from_being_read() -> None:
    async with fake_cluster(2) as cluster:
        cluster.add_topic("T", 1)
        silent, other = cluster.brokers
        silent.on[PULL] = lambda request: None
        seen: list[str] = []

        async def handle(message: MessageView) -> None:
            seen.append(message.broker_name)

        async with PushConsumer(
            cluster.namesrv,
            group="g",
            from_where=ConsumeFrom.FIRST,
            options=ClientOptions(timing=replace(QUICK, stop_s=0.1)),
        ) as consumer:
            consumer.subscribe("T", "*", handle)
            await consumer.start()
            await silent.request(PULL)
            for count in range(1, 4):
                other.store("T", 0, b"x")
                await until(lambda count=count: len(seen) == count)  # type: ignore[misc]
        assert seen == [other.name] * 3


async def test_a_plain_handler_that_is_slow_delays_no_other_answer(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.add_topic("U", 1)
    release, others = threading.Event(), []

    def slow(message: MessageView) -> None:
        assert release.wait(PATIENCE_S)

    async with PushConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
    ) as consumer:
        consumer.subscribe("T", "*", slow)
        consumer.subscribe("U", "*", others.append)
        await consumer.start()
        cluster.broker.store("T", 0, b"x")
        for count in range(1, 6):
            cluster.broker.store("U", 0, b"y")
            await until(lambda count=count: len(others) == count)  # type: ignore[misc]
        release.set()


async def test_a_broker_the_route_does_not_name_is_looked_up_once_and_then_an_error(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    session = open_session("127.0.0.1@lookup", [cluster.namesrv], QUICK_OPTIONS)
    await session.routes.find("T")
    asked = len(cluster.name_server.requests)
    with pytest.raises(RouteNotFound, match="'ghost'"):
        await session.find_reader(MessageQueue("T", "ghost", 0))
    assert len(cluster.name_server.requests) == asked + 1
    await session.release()


async def test_a_paused_member_still_hands_over_the_queues_that_others_take(cluster: FakeCluster) -> None:
    """Java's paused client takes no part in rounds: it goes on committing its old offset over the new owner's."""
    cluster.add_topic("T", 2)
    timing = replace(QUICK, persist_s=0.01)
    async with PushConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        options=ClientOptions(timing=timing, instance_name="b"),
    ) as consumer:
        consumer.subscribe("T", "*", ignore)
        await consumer.start()
        await until(lambda: len(pulls_of(cluster)) == 2)
        consumer.pause()
        await some_commits(cluster)  # a round that began before the pause is over then
        cluster.broker.extra_members["g"] = ["0.0.0.0@first"]
        await cluster.broker.notify_members("g")
        await until(lambda: len([queue for queue in consumer.assigned if queue.topic == "T"]) == 1)
        await some_commits(cluster)  # a queue is committed once more when it leaves
        cluster.broker.committed["g", "T", 0] = 77
        await some_commits(cluster)
        assert cluster.broker.committed["g", "T", 0] == 77


async def test_a_queue_that_left_is_neither_pulled_nor_committed_again(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 2)
    timing = replace(QUICK, persist_s=0.01)
    seen: list[int] = []

    async def handle(message: MessageView) -> None:
        seen.append(message.queue_id)

    async with PushConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        options=ClientOptions(timing=timing, instance_name="b"),
    ) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        cluster.broker.extra_members["g"] = ["0.0.0.0@first"]
        await cluster.broker.notify_members("g")
        await until(lambda: {queue.queue_id for queue in consumer.assigned if queue.topic == "T"} == {1})
        await some_commits(cluster)  # a queue is committed once more when it leaves
        requests = len(cluster.broker.requests)
        cluster.broker.store("T", 0, b"for somebody else")
        cluster.broker.store("T", 1, b"for us")
        await until(lambda: seen == [1])
        await some_commits(cluster)
        since = cluster.broker.requests[requests:]
    pulled = [PullMessageHeader.decode(request) for request in since if request.code == PULL]
    commits = [UpdateConsumerOffsetHeader.decode(request) for request in since if request.code == COMMIT]
    assert {header.queue_id for header in pulled if header.topic == "T"} == {1}
    assert {header.queue_id for header in commits if header.topic == "T"} == {1}
    assert seen == [1]


async def test_a_failed_message_goes_back_to_the_broker_it_came_from() -> None:
    async with fake_cluster(2) as cluster:
        cluster.add_topic("T", 1)

        async def handle(message: MessageView) -> None:
            raise ValueError("no")

        async with PushConsumer(
            cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
        ) as consumer:
            consumer.subscribe("T", "*", handle)
            await consumer.start()
            cluster.brokers[1].store("T", 0, b"x")
            await until(lambda: len(cluster.brokers[1].sent_back) == 1)
        assert not cluster.brokers[0].sent_back


async def test_without_a_master_in_the_route_a_failed_message_goes_back_to_where_it_was_stored(
    cluster: FakeCluster,
) -> None:
    slave = await cluster.add_slave()
    cluster.add_topic("T", 1)
    for data in cluster.name_server.routes["T"].broker_datas:
        data.broker_addrs = {1: slave.address}

    async def handle(message: MessageView) -> None:
        message.store_host = cluster.broker.address  # a slave's copy names its master
        raise ValueError("no")

    slave.store("T", 0, b"x")
    async with PushConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
    ) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await until(lambda: len(cluster.broker.sent_back) == 1)
    assert not slave.sent_back


async def test_a_group_that_the_broker_does_not_know_keeps_asking_and_says_so(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_topic("T", 1)
    seen: list[bytes] = []

    async def handle(message: MessageView) -> None:
        seen.append(message.body)

    cluster.broker.script(PULL, 26, 26, 26)
    cluster.broker.store("T", 0, b"x")
    async with PushConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
    ) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await until(lambda: seen == [b"x"])
    assert "for group g failed" in caplog.text
    assert "as scripted" in caplog.text


async def test_a_topic_that_nobody_has_is_waited_for_and_named(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_topic("T", 1)
    seen: list[str] = []

    async def handle(message: MessageView) -> None:
        seen.append(message.topic)

    timing = replace(QUICK, route_refresh_s=0.01, rebalance_s=0.01)
    async with PushConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=timing)
    ) as consumer:
        consumer.subscribe("T", "*", handle)
        consumer.subscribe("missing", "*", handle)
        await consumer.start()
        assert "group g waits for topic missing" in caplog.text
        cluster.broker.store("T", 0, b"x")
        await until(lambda: seen == ["T"], "messages of the topic that is there")
        cluster.add_topic("missing", 1)
        cluster.broker.store("missing", 0, b"y")
        await until(lambda: seen == ["T", "missing"])
