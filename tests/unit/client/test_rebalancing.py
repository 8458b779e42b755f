"""When the queues of a consumer are shared out anew, and what makes a queue be taken again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, FakeCluster, until

from rocketline.client import ClientOptions, ConsumeFrom, PullSettings, PushConsumer, by_config
from rocketline.clock import ManualClock
from rocketline.errors import ConfigError
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PullMessageHeader

MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP
PULL = RequestCode.PULL_MESSAGE
UNHURRIED = replace(QUICK, rebalance_soon_s=3600.0, rebalance_s=7200.0)


async def ignore(message: MessageView) -> None: ...


@asynccontextmanager
async def consuming(cluster: FakeCluster, expression: str = "*", **options: Any) -> AsyncIterator[PushConsumer]:
    arguments = {"from_where": ConsumeFrom.FIRST, "group": "g", "options": QUICK_OPTIONS, **options}
    async with PushConsumer(cluster.namesrv, **arguments) as consumer:
        consumer.subscribe("T", expression, ignore)
        await consumer.start()
        yield consumer


def pulls(cluster: FakeCluster) -> list[PullMessageHeader]:
    headers = [PullMessageHeader.decode(request) for request in cluster.broker.requests_of(PULL)]
    return [header for header in headers if header.topic == "T"]


def of_topic(request: Command) -> bool:
    return PullMessageHeader.decode(request).topic == "T"


async def test_a_strategy_is_asked_for_by_name(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 5)
    cluster.broker.extra_members["g"] = ["zzz"]
    async with consuming(cluster, strategy="AVG_BY_CIRCLE") as consumer:
        assert sorted(queue.queue_id for queue in consumer.assigned if queue.topic == "T") == [0, 2, 4]


async def test_configured_queues_are_taken_once_and_only_in_their_topics_turn(cluster: FakeCluster) -> None:
    """The strategy names the same queues for the retry topic too; that must not look like a change in every round."""
    cluster.add_topic("T", 4)
    cluster.add_topic("%RETRY%g", 1)
    wanted = [MessageQueue("T", cluster.broker.name, 2)]
    async with consuming(
        cluster, strategy=by_config(wanted), options=ClientOptions(timing=replace(QUICK, rebalance_s=0.01))
    ) as consumer:
        await cluster.broker.request(MEMBERS, 4)
        beats = len(cluster.broker.heartbeats)
        await cluster.broker.request(MEMBERS, 12)
        assert (consumer.assigned, len(cluster.broker.heartbeats)) == (set(wanted), beats)


async def test_rounds_keep_their_distance_however_many_members_come(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 2)
    async with consuming(cluster, options=ClientOptions(timing=UNHURRIED)):
        asked = len(cluster.broker.requests_of(MEMBERS))
        for _ in range(20):
            await cluster.broker.notify_members("g")
        ask = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "x"})
        answer = await cluster.broker.ask_client(ask)
        assert answer.code == ResponseCode.SUCCESS, "the notices before it have arrived"
        assert len(cluster.broker.requests_of(MEMBERS)) == asked


async def test_resuming_shares_out_anew_at_once(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 2)
    async with consuming(cluster, options=ClientOptions(timing=UNHURRIED)) as consumer:
        consumer.pause()
        asked = len(cluster.broker.requests_of(MEMBERS))
        consumer.resume()
        await cluster.broker.request(MEMBERS, asked + 1)


async def test_a_queue_whose_offset_moved_starts_again_without_waiting(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.queues["T", 0].first = 7
    async with consuming(cluster, options=ClientOptions(timing=UNHURRIED)):
        again = await cluster.broker.request(PULL, 2, of_topic)
        assert PullMessageHeader.decode(again).queue_offset == 7


async def test_a_time_to_begin_at_is_given_as_such() -> None:
    with pytest.raises(ConfigError, match="give the time itself"):
        PushConsumer("127.0.0.1:9876", group="g", from_where=ConsumeFrom.TIMESTAMP)


async def test_a_queue_nobody_asked_for_in_two_minutes_is_taken_anew(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_topic("T", 1)
    clock = ManualClock()
    async with consuming(cluster, options=ClientOptions(clock=clock, timing=QUICK)) as consumer:
        await cluster.broker.request(PULL, 1, of_topic)
        clock.advance(119)
        await cluster.broker.notify_members("g")
        asked = len(cluster.broker.requests_of(MEMBERS))
        await cluster.broker.request(MEMBERS, asked + 1)
        assert len(pulls(cluster)) == 1
        clock.advance(2)
        await cluster.broker.notify_members("g")
        await cluster.broker.request(PULL, 2, of_topic)
        assert "stands still, it is dropped and taken anew" in caplog.text
        assert len([queue for queue in consumer.assigned if queue.topic == "T"]) == 1


async def test_neither_a_pause_nor_a_long_pull_is_a_standstill(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    clock = ManualClock()
    async with consuming(
        cluster, pull=PullSettings(suspend_s=100, timeout_s=200), options=ClientOptions(clock=clock, timing=QUICK)
    ) as consumer:
        await cluster.broker.request(PULL, 1, of_topic)
        clock.advance(250)
        for paused in (False, True):
            if paused:
                consumer.pause()
                clock.advance(10_000)
            asked = len(cluster.broker.requests_of(MEMBERS))
            await cluster.broker.notify_members("g")
            await cluster.broker.request(MEMBERS, asked + 1)
        assert len(pulls(cluster)) == 1


async def test_a_loop_that_ended_by_itself_is_started_again(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with consuming(cluster) as consumer:
        await cluster.broker.request(PULL, 1, of_topic)
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == f"pull T@{cluster.broker.name}:0"]
        task.cancel()
        await until(task.done)
        await cluster.broker.notify_members("g")
        await cluster.broker.request(PULL, 2, of_topic)
        assert len([queue for queue in consumer.assigned if queue.topic == "T"]) == 1


async def test_a_conflict_the_broker_tells_of_is_warned_about_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_topic("T", 1)
    said = "subscription conflict in group g: a subscribes to T with TAG 'x' and b to nothing of that"
    cluster.broker.on[RequestCode.HEART_BEAT] = lambda request: request.reply(ResponseCode.SUCCESS, remark=said)
    cluster.broker.extra_members["g"] = ["somebody"]
    async with consuming(cluster, options=ClientOptions(timing=replace(QUICK, heartbeat_s=0.01))):
        await cluster.broker.request(RequestCode.HEART_BEAT, 5)
    warned = [record for record in caplog.records if said in record.getMessage()]
    assert [record.levelno for record in warned] == [logging.WARNING]


async def test_tags_that_nobody_here_wanted_make_the_consumer_doubt_its_group(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache's broker says nothing; but messages of another member's tags give it away."""
    cluster.add_topic("T", 1)
    async with consuming(cluster, "mine"):
        for number in range(6):
            cluster.broker.store("T", 0, b"x", {"TAGS": "theirs"})
            await until(lambda number=number: any(pull.queue_offset > number for pull in pulls(cluster)))  # type: ignore[misc]
        text = "brings messages of tags we do not want: do all members of group g subscribe"
        assert len([record for record in caplog.records if text in record.getMessage()]) == 1
