"""Client instances: what they share, their timers, and the start of a consumer."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, FakeCluster, fake_cluster, until

from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, MessageModel, Producer, PushConsumer
from rocketline.client.identity import client_id
from rocketline.errors import ClientError, ConsumerClosed, RouteNotFound
from rocketline.message import Message, MessageView
from rocketline.protocol.bodies import ResetOffsetBody, decode_file
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.headers import GetRouteHeader, PullMessageHeader

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
BEAT = RequestCode.HEART_BEAT
PULL = RequestCode.PULL_MESSAGE
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP


async def ignore(message: MessageView) -> None:
    """A handler."""


def test_intervals_are_rocketmqs() -> None:
    timing = {item.name: item.default for item in fields(ClientTiming)}
    assert [timing[name] for name in ("route_refresh_s", "heartbeat_s", "persist_s")] == [30, 30, 5]
    assert [timing[name] for name in ("rebalance_s", "call_s", "pull_retry_s", "retry_here_s")] == [20, 3, 1, 5]


def test_a_unit_can_be_said_as_part_of_the_instance_name() -> None:
    assert client_id("worker@unit-1", ip="10.0.0.7") == "10.0.0.7@worker@unit-1"
    assert client_id("worker@unit-1", ip="10.0.0.7", stream=True) == "10.0.0.7@worker@unit-1@STREAM"


async def test_a_producer_and_a_consumer_of_one_instance_share_connections_and_heartbeat(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with (
        Producer(
            cluster.namesrv, group="makers", options=ClientOptions(instance_name="same", timing=QUICK)
        ) as producer,
        PushConsumer(
            cluster.namesrv, group="takers", options=ClientOptions(instance_name="same", timing=QUICK)
        ) as consumer,
    ):
        consumer.subscribe("T", "*", ignore)
        await consumer.start()
        await producer.send(Message("T", b"x"))
        await cluster.broker.request(PULL)
        assert (len(cluster.broker.channels), len(cluster.name_server.channels)) == (1, 1)
        beat = cluster.broker.heartbeats[-1]
        assert beat.client_id == producer.client_id == consumer.client_id
        assert [item.group_name for item in beat.producer_data_set] == ["makers"]
        assert [item.group_name for item in beat.consumer_data_set] == ["takers"]


async def test_a_start_that_failed_can_be_made_again(cluster: FakeCluster) -> None:
    """Java's client stays in START_FAILED for ever; here nothing is left of the attempt."""
    cluster.add_topic("T", 1)
    await cluster.name_server.close()
    async with PushConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as consumer:
        consumer.subscribe("T", "*", ignore)
        with pytest.raises(RouteNotFound):
            await consumer.start()
        assert not consumer.assigned
        await cluster.name_server.start(int(cluster.namesrv.rpartition(":")[2]))

        async def starts() -> bool:
            try:
                await consumer.start()
            except RouteNotFound:  # the pause after a refused connection is not over yet
                return False
            return True

        async with asyncio.timeout(PATIENCE_S):
            while not await starts():
                await asyncio.sleep(0.01)
        await cluster.broker.request(PULL)


async def test_a_consumer_that_ended_or_runs_cannot_be_started_and_says_so(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    consumer = PushConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS)
    consumer.subscribe("T", "*", ignore)
    async with consumer:
        await consumer.start()
        with pytest.raises(ClientError, match="'g' was started already"):
            await consumer.start()
    with pytest.raises(ConsumerClosed, match="'g' is not open"):
        await consumer.start()


async def test_routes_come_before_the_heartbeat_and_tags_need_no_check(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    asked_before_beat: list[str] = []

    async with PushConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as consumer:
        consumer.subscribe("T", "a || b", ignore)
        starting = asyncio.ensure_future(consumer.start())
        await cluster.broker.request(BEAT)
        asked_before_beat += [GetRouteHeader.decode(r).topic for r in cluster.name_server.requests_of(ROUTE)]
        await starting
        await cluster.broker.request(PULL)
    assert sorted(asked_before_beat)[-2:] == ["%RETRY%g", "T"]
    assert not cluster.broker.requests_of(RequestCode.CHECK_CLIENT_CONFIG)


async def test_the_first_share_is_there_without_waiting_for_a_round(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 3)
    never = replace(QUICK, rebalance_s=1e6, rebalance_soon_s=1e6)
    async with PushConsumer(cluster.namesrv, group="g", options=ClientOptions(timing=never)) as consumer:
        consumer.subscribe("T", "*", ignore)
        await consumer.start()
        assert len([queue for queue in consumer.assigned if queue.topic == "T"]) == 3


async def test_many_rounds_leave_one_pull_under_way_per_queue(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 2)
    timing = replace(QUICK, rebalance_s=0.005)
    async with PushConsumer(cluster.namesrv, group="g", options=ClientOptions(timing=timing)) as consumer:
        consumer.subscribe("T", "*", ignore)
        await consumer.start()
        await cluster.broker.request(MEMBERS, 20)
        headers = [PullMessageHeader.decode(request) for request in cluster.broker.requests_of(PULL)]
        held = [(header.topic, header.queue_id) for header in headers]
        assert sorted(set(held)) == sorted(held)
        assert len(held) == len(consumer.assigned)


async def test_a_broker_that_left_the_routes_gets_no_heartbeat_of_the_tick_that_notices() -> None:
    async with fake_cluster(2) as cluster:
        cluster.add_topic("T", 1)
        timing = replace(QUICK, heartbeat_s=0.01, route_refresh_s=0.01)
        stays, leaves = cluster.brokers
        async with Producer(cluster.namesrv, group="g", options=ClientOptions(timing=timing)) as producer:
            await producer.queues("T")
            await leaves.request(BEAT)
            cluster.add_topic("T", 1, brokers=[stays])
            await until(lambda: not leaves.channels, "the connection being closed")
            before = len(leaves.requests_of(BEAT))
            await stays.request(BEAT, len(stays.requests_of(BEAT)) + 5)
            assert len(leaves.requests_of(BEAT)) == before


async def test_a_name_server_that_comes_back_is_used_again(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with Producer(
        cluster.namesrv, group="g", options=ClientOptions(timing=replace(QUICK, route_refresh_s=0.01))
    ) as producer:
        await producer.send(Message("T", b"before"))
        await cluster.name_server.close()
        await producer.send(Message("T", b"the route is known"))
        cluster.add_topic("T", 2)
        await cluster.name_server.start(int(cluster.namesrv.rpartition(":")[2]))

        async def sees_the_change() -> bool:
            return len(await producer.queues("T")) == 2

        async with asyncio.timeout(PATIENCE_S):
            while not await sees_the_change():
                await asyncio.sleep(0.01)


async def test_broadcasting_progress_goes_to_a_file_by_the_timer_and_never_to_a_broker(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    async with PushConsumer(
        cluster.namesrv,
        group="g",
        model=MessageModel.BROADCASTING,
        from_where=ConsumeFrom.FIRST,
        offsets=tmp_path,
        options=ClientOptions(timing=replace(QUICK, persist_s=0.01)),
    ) as consumer:
        consumer.subscribe("T", "*", ignore)
        await consumer.start()
        file = tmp_path / consumer.client_id / "g" / "offsets.json"

        def saved() -> list[int]:
            try:
                return list(decode_file(ResetOffsetBody, file.read_bytes()).offset_table.values())
            except FileNotFoundError:  # not yet, or just being replaced
                return []

        await until(lambda: saved() == [1], "the file")
        assert consumer.client_id.endswith("@DEFAULT")
    assert not cluster.broker.requests_of(COMMIT)
