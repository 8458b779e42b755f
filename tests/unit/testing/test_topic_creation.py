"""Automatic topic creation and independent name servers, on whole clusters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.broker import Broker
from rocketline.broker.config import BrokerConfig
from rocketline.client import ClientOptions, ClientTiming, Producer
from rocketline.errors import RouteNotFound
from rocketline.message import Message
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.settings import load
from rocketline.testing import LocalCluster
from rocketline.testing.local_cluster import SMALL_FILES
from rocketline.transport import RemotingClient


async def route_of(namesrv: str, topic: str) -> dict[str, Any] | None:
    """What a name server says of a topic; None when it does not know it."""
    async with RemotingClient() as client:
        answer = await client.call(namesrv, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}), PATIENCE_S)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert answer.code == ResponseCode.SUCCESS
    route: dict[str, Any] = json.loads(answer.body)
    return route


async def route_when_told(namesrv: str, topic: str) -> dict[str, Any]:
    """The same, once the broker has told the name server: it does so right after the send was answered."""
    async with asyncio.timeout(PATIENCE_S):
        while (route := await route_of(namesrv, topic)) is None:
            await asyncio.sleep(0.005)
        return route


def saved_topics(store: Path) -> dict[str, Any]:
    topics: dict[str, Any] = json.loads((store / "config" / "topics.json").read_text())["topicConfigTable"]
    return topics


async def saved_when_written(store: Path, topic: str) -> dict[str, Any]:
    """What the table says of a topic, once a thread has saved it: clients do not wait for that."""
    async with asyncio.timeout(PATIENCE_S):
        while topic not in (topics := saved_topics(store)):
            await asyncio.sleep(0.005)
        saved: dict[str, Any] = topics[topic]
        return saved


async def test_a_send_makes_the_topic_through_the_template() -> None:
    async with LocalCluster() as cluster:
        assert await route_of(cluster.namesrv, "orders") is None
        async with Producer(cluster.namesrv, group="g") as producer:
            await producer.send(Message("orders", b"x"))
        route = await route_when_told(cluster.namesrv, "orders")
        (queues,) = route["queueDatas"]
        assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (4, 4, 6)
        assert (await saved_when_written(cluster.data, "orders"))["writeQueueNums"] == 4


async def test_without_auto_creation_a_send_fails_and_makes_nothing() -> None:
    async with LocalCluster(config={"autoCreateTopicEnable": False}) as cluster:
        assert await route_of(cluster.namesrv, "TBW102") is None
        async with Producer(cluster.namesrv, group="g") as producer:
            with pytest.raises(RouteNotFound, match="no route to topic 'orders'"):
                await producer.send(Message("orders", b"x"))
        assert "orders" not in saved_topics(cluster.data)
        assert await route_of(cluster.namesrv, "orders") is None


async def test_an_auto_created_topic_is_only_where_a_message_went() -> None:
    async with LocalCluster(brokers=2) as cluster:
        async with Producer(cluster.namesrv, group="g") as producer:
            receipt = await producer.send(Message("orders", b"x"))
        route = await route_when_told(cluster.namesrv, "orders")
        assert [queues["brokerName"] for queues in route["queueDatas"]] == [receipt.queue.broker_name]
        await saved_when_written(cluster.data / receipt.queue.broker_name, "orders")
        have = [broker.name for broker in cluster.brokers if "orders" in saved_topics(cluster.data / broker.name)]
        assert have == [receipt.queue.broker_name]


@asynccontextmanager
async def broker_of(namesrv: str, store: Path) -> AsyncIterator[Broker]:
    values = {**SMALL_FILES, "listenPort": "0", "storePathRootDir": str(store), "namesrvAddr": namesrv}
    config, _ = load(BrokerConfig, values)
    async with Broker(config) as broker:
        yield broker


async def test_name_servers_know_nothing_of_each_other_and_one_is_enough(tmp_path: Path) -> None:
    first = NameServer(NameServerConfig(host="127.0.0.1", port=0))
    async with NameServer(NameServerConfig(host="127.0.0.1", port=0)) as second:
        await first.start()
        address, both = first.address, f"{first.address};{second.address}"
        timing = ClientTiming(next_server_s=0.05)
        async with (
            broker_of(both, tmp_path),
            Producer(both, group="g", options=ClientOptions(timing=timing)) as producer,
        ):
            await producer.send(Message("early", b"x"))
            assert await route_when_told(address, "early") == await route_when_told(second.address, "early")
            await first.close()
            await producer.send(Message("late", b"x"))
            await route_when_told(second.address, "late")
            async with NameServer(NameServerConfig(host="127.0.0.1", port=int(address.rpartition(":")[2]))):
                assert await route_of(address, "late") is None
                assert await route_of(second.address, "late") is not None
                await producer.send(Message("early", b"clients go on"))
