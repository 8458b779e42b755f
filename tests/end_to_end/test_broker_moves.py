"""A broker that comes back at another address: clients find it by themselves, however seldom they refresh all routes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.support.patience import PATIENCE_S

from rocketline.broker import Broker
from rocketline.cli.servers.cluster import Cluster
from rocketline.client import (
    ClientOptions,
    ClientTiming,
    ConsumeFrom,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
)
from rocketline.message import Message
from rocketline.testing import LocalCluster

HOUR_S = 3600.0
OPTIONS = ClientOptions(timing=ClientTiming(route_refresh_s=HOUR_S, heartbeat_s=HOUR_S, rebalance_s=HOUR_S))

Told = Callable[[str, bytes], None]


@asynccontextmanager
async def at_another_port(cluster: Cluster) -> AsyncIterator[Broker]:
    """The only broker of a cluster, stopped and started again with its data at a port that it did not have."""
    (old,) = cluster.brokers
    config, address = old.config, old.address
    await cluster.stop_broker(old.name)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(address.rpartition(":")[2])))  # nobody listens there
        async with Broker(replace(config, port=0)) as moved:
            assert moved.address != address
            yield moved


async def push(namesrv: str, told: Told) -> None:
    async with PushConsumer(namesrv, group="push", from_where=ConsumeFrom.FIRST, options=OPTIONS) as consumer:
        stream = consumer.messages("orders")
        await consumer.start()
        async for message in stream:
            told("push", message.body)


async def pull(namesrv: str, told: Told) -> None:
    async with PullConsumer(namesrv, group="pull", from_where=ConsumeFrom.FIRST, options=OPTIONS) as consumer:
        await consumer.subscribe("orders")
        async for message in consumer:
            told("pull", message.body)


async def pop(namesrv: str, told: Told) -> None:
    async with PopConsumer(namesrv, group="pop", from_where=ConsumeFrom.FIRST, options=OPTIONS) as consumer:
        await consumer.subscribe("orders")
        async for message in consumer:
            told("pop", message.body)


async def test_clients_find_a_broker_at_its_new_address() -> None:
    heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

    async def everybody_hears(body: bytes) -> None:
        missing = {"push", "pull", "pop"}
        while missing:
            who, what = await heard.get()
            if what == body:
                missing.discard(who)

    def told(who: str, body: bytes) -> None:
        heard.put_nowait((who, body))

    async with (
        LocalCluster() as cluster,
        Producer(cluster.namesrv, group="writers", timeout=PATIENCE_S, options=OPTIONS) as producer,
        asyncio.timeout(PATIENCE_S),
    ):
        await producer.send(Message("orders", b"before"))
        consuming = [asyncio.create_task(consume(cluster.namesrv, told)) for consume in (push, pull, pop)]
        await everybody_hears(b"before")
        async with at_another_port(cluster) as moved:
            receipt = await producer.send(Message("orders", b"after"))
            assert receipt.queue.broker_name == moved.name
            await everybody_hears(b"after")
            for task in consuming:
                task.cancel()
            await asyncio.wait(consuming)
