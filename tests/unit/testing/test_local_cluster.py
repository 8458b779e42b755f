"""`LocalCluster`: real servers with small files, removed afterwards."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.support.leftovers import threads_since
from tests.support.patience import PATIENCE_S
from tests.support.replicas import WANTING_REPLICAS

from rocketline.client import ConsumeFrom, Producer, PullConsumer
from rocketline.errors import ConfigError, RouteNotFound
from rocketline.message import Message
from rocketline.testing import LocalCluster


async def send_and_read(namesrv: str, topic: str, body: bytes) -> list[bytes]:
    """Send a message, then everything the topic holds."""
    async with Producer(namesrv, group="writers") as producer:
        receipt = await producer.send(Message(topic, body))
    async with PullConsumer(namesrv, group="readers", from_where=ConsumeFrom.FIRST) as consumer:
        consumer.assign([receipt.queue])
        bodies: list[bytes] = []
        while body not in bodies:
            bodies += [message.body for message in await consumer.poll(timeout=5.0)]
        return bodies


async def test_on_the_loop_of_the_caller() -> None:
    async with LocalCluster(brokers=2) as cluster:
        assert [broker.name for broker in cluster.brokers] == ["broker-a", "broker-b"]
        assert await send_and_read(cluster.namesrv, "orders", b"hello") == [b"hello"]
        data = cluster.data
        assert (data / "broker-a" / "abort").exists()
    assert not data.exists()


async def test_in_a_thread_of_its_own() -> None:
    before = threading.enumerate()
    with LocalCluster() as cluster:
        assert await send_and_read(cluster.namesrv, "orders", b"hello") == [b"hello"]
        data = cluster.data
    assert threads_since(before) == []
    assert not data.exists()


async def test_messages_survive_a_restart(tmp_path: Path) -> None:
    with LocalCluster(data=tmp_path) as cluster:
        async with Producer(cluster.namesrv, group="writers") as producer:
            receipt = await producer.send(Message("orders", b"before"))
        address = cluster.brokers[0].address
        cluster.restart_broker("broker-a")
        assert cluster.brokers[0].address == address
        async with PullConsumer(cluster.namesrv, group="readers", from_where=ConsumeFrom.FIRST) as consumer:
            consumer.assign([receipt.queue])
            assert [message.body for message in await consumer.poll(timeout=PATIENCE_S)] == [b"before"]
    assert (tmp_path / "commitlog").is_dir()


async def test_a_stopped_broker_is_gone_until_it_is_started() -> None:
    with LocalCluster() as cluster:
        cluster.stop_broker("broker-a")
        assert cluster.brokers == []
        with pytest.raises(RouteNotFound):
            await send_and_read(cluster.namesrv, "orders", b"x")
        cluster.start_broker("broker-a")
        assert await send_and_read(cluster.namesrv, "orders", b"y") == [b"y"]


async def test_settings_go_by_rocketmqs_names() -> None:
    async with LocalCluster(config={"autoCreateTopicEnable": False, "brokerName": "shop"}) as cluster:
        assert [broker.name for broker in cluster.brokers] == ["shop"]
        with pytest.raises(RouteNotFound, match="orders"):
            await send_and_read(cluster.namesrv, "orders", b"x")


@pytest.mark.parametrize("config", [{"autocreate": True}, {"listenPort": "x"}])
def test_settings_that_cannot_be_are_refused_by_name(config: dict[str, str | int | bool]) -> None:
    with pytest.raises(ConfigError, match=next(iter(config))):
        LocalCluster(config=config)


@pytest.mark.parametrize(("settings", "words"), WANTING_REPLICAS)
async def test_what_only_replication_could_do_is_refused(settings: dict[str, str], words: list[str]) -> None:
    before = threading.enumerate()
    with pytest.raises(ConfigError) as caught, LocalCluster(config=settings):
        pass
    assert threads_since(before) == []
    assert all(word in str(caught.value) for word in words), caught.value
    with pytest.raises(ConfigError, match=words[0]):
        async with LocalCluster(config=settings):
            pass


def test_two_clusters_do_not_meet() -> None:
    with LocalCluster() as first, LocalCluster() as second:
        assert first.namesrv != second.namesrv
        assert first.data != second.data


def test_outside_the_context_there_is_nothing() -> None:
    cluster = LocalCluster()
    with pytest.raises(ConfigError, match="not running"):
        _ = cluster.namesrv
    with cluster, pytest.raises(ConfigError, match="running already"):
        cluster.__enter__()


async def test_the_blocking_methods_say_so_inside_an_async_context() -> None:
    outer = LocalCluster()
    async with outer as cluster:
        with pytest.raises(ConfigError, match="async with"):
            outer.restart_broker("broker-a")
        await cluster.restart_broker("broker-a")


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    before = threading.enumerate()
    with LocalCluster(data=tmp_path), pytest.raises(Exception, match=str(tmp_path)):
        LocalCluster(data=tmp_path).__enter__()
    assert threads_since(before) == []
