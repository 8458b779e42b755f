"""Topics that a producer creates, on real brokers; and where clients find their name servers when nobody names them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.client.fakes import FakeCluster, fake_cluster

from rocketline.admin import Admin
from rocketline.client import Producer, PullConsumer, PushConsumer, blocking
from rocketline.errors import ClientError, ConfigError, InvalidMessage
from rocketline.message import Message
from rocketline.testing import LocalCluster


async def test_a_topic_is_created_on_all_masters_and_can_be_used_at_once() -> None:
    async with LocalCluster(brokers=2, config={"autoCreateTopicEnable": False}) as cluster:
        async with Producer(cluster.namesrv, group="g") as producer:
            assert await producer.create_topic("orders", queues=3, message_type="FIFO")
            assert len(await producer.queues("orders")) == 6
            await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(10)))
            assert not await producer.create_topic("orders", queues=8), "it is left as it is"
            assert len(await producer.queues("orders")) == 6
            with pytest.raises(ClientError, match="no cluster 'other'; the name server knows: "):
                await producer.create_topic("more", cluster="other")
        async with Admin(cluster.namesrv) as admin:
            found = [await broker.topic("orders") for broker in await admin.brokers()]
        assert [(topic.write_queue_nums, topic.attributes) for topic in found] == [(3, {"message.type": "FIFO"})] * 2


def test_the_blocking_producer_creates_topics_too() -> None:
    with LocalCluster() as cluster, blocking.Producer(cluster.namesrv, group="g") as producer:
        assert producer.create_topic("orders")
        assert len(producer.queues("orders")) == 8
        for wrong in ({"name": "a b"}, {"name": "T", "queues": 0}):
            with pytest.raises(InvalidMessage):
                producer.create_topic(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("client", [Producer, PushConsumer, PullConsumer])
@pytest.mark.parametrize("arguments", [(), (None,)])
def test_without_an_address_the_error_says_what_to_do(
    client: Any, arguments: tuple[None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError, match=r"Producer\('127\.0\.0\.1:9876', .*NAMESRV_ADDR=127\.0\.0\.1:9876"):
        client(*arguments, group="g")
    monkeypatch.setenv("NAMESRV_ADDR", "nonsense")
    with pytest.raises(ConfigError, match="nonsense"):
        client(*arguments, group="g")


async def test_the_environment_names_the_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: FakeCluster
    async with fake_cluster() as cluster:
        cluster.add_topic("T")
        monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
        async with Producer(group="g") as producer:
            assert (await producer.send(Message("T", b"x"))).message_id
