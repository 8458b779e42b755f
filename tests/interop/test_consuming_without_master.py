"""Consumers go on without the master they began with: Apache's push consumer and ours, at a replica and after an election.

The master dies (SIGKILL) when most messages are still to be fetched: consumers read ahead by 1,000 of one queue at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.crash.child import BrokerChild
from tests.crash.plan import plan_for
from tests.replication.group import ReplicatedGroup
from tests.support.apache import SERVER_VERSION
from tests.support.etcd import need_etcd
from tests.support.java import require_java
from tests.support.java_client import JavaClient
from tests.support.java_driver import client_coordinates
from tests.support.patience import PATIENCE_S
from tests.support.replica_group import NAME, group_config, name_server, until

from rocketline.broker.broker import Broker
from rocketline.client import ConsumeFrom, Producer, PullSettings, PushConsumer
from rocketline.message import Message, MessageView

pytestmark = pytest.mark.interop

TOPIC = "orders"
BODIES = {b"%d" % number for number in range(3000)}
AFTERWARDS = {b"later %d" % number for number in range(50)}
SEEN_BEFORE = 100
"""As many each consumer has got when the master dies."""
ONE_QUEUE = {"defaultTopicQueueNums": "1", "slaveReadEnable": "true"}

Got = Callable[[set[bytes]], Awaitable[None]]
"""Wait until every consumer has these."""


async def send(names: str, bodies: set[bytes]) -> None:
    async with Producer(names, group="pg") as producer:
        rest = sorted(bodies)
        while rest:
            await producer.send_batch([Message(TOPIC, body) for body in rest[:500]])
            rest = rest[500:]


@asynccontextmanager
async def consumers(names: str) -> AsyncIterator[Got]:
    """One of Apache's and one of ours, each in a group of its own; each has got a few messages."""
    ours: set[bytes] = set()
    theirs: set[bytes] = set()
    go_on = asyncio.Event()

    async def take(message: MessageView) -> None:
        if len(ours) >= SEEN_BEFORE:
            await go_on.wait()
        ours.add(bytes(message.body))

    with JavaClient(SERVER_VERSION) as java:
        async with PushConsumer(
            names, group="ours", from_where=ConsumeFrom.FIRST, pull=PullSettings(max_messages=200)
        ) as mine:
            mine.subscribe(TOPIC, take)
            running = asyncio.create_task(mine.run())
            pushed = await asyncio.to_thread(java.push_consumer, names, "theirs", {TOPIC: "*"}, work_ms=10)

            async def got(wanted: set[bytes]) -> None:
                go_on.set()
                async with asyncio.timeout(PATIENCE_S):
                    while not wanted <= theirs:
                        theirs.update(seen.body for seen in await asyncio.to_thread(pushed.poll, 1))
                await until(lambda: wanted <= ours, "all messages at our consumer")

            theirs.update(seen.body for seen in await asyncio.to_thread(pushed.poll, SEEN_BEFORE))
            await until(lambda: len(ours) >= SEEN_BEFORE, "a few messages at our consumer")
            try:
                yield got
            finally:
                await asyncio.to_thread(pushed.stop)
                running.cancel()
                await asyncio.wait([running])


async def test_consumers_go_on_at_a_replica(tmp_path: Path) -> None:
    """Roles are fixed: nobody leads any more, and the replica is read."""
    require_java(*client_coordinates(SERVER_VERSION))
    async with name_server() as names:
        settings = {"brokerName": NAME, "namesrvAddr": names, "brokerId": "0", "brokerRole": "SYNC_MASTER"}
        settings |= {"inSyncReplicas": "2", "haListenPort": "0", **ONE_QUEUE}
        sizes = {"mappedFileSizeCommitLog": str(16 << 20), "mappedFileSizeConsumeQueue": str(20 * 10_000)}
        master = BrokerChild(plan_for(tmp_path / "master", settings, sizes))
        await master.start()
        try:
            async with Broker(group_config(tmp_path, names, 1, **ONE_QUEUE)) as replica:
                await until(lambda: replica.parts.roles.has_master, "a connection to the master")
                await send(names, BODIES)
                await until(lambda: replica.parts.store.max_offset(TOPIC, 0) == len(BODIES), "all messages")
                await until(lambda: replica.parts.topics.get(TOPIC), "the topic")
                async with consumers(names) as got:
                    master.kill()
                    await got(BODIES)
        finally:
            master.kill()


async def test_consumers_go_on_with_the_next_master(tmp_path: Path) -> None:
    need_etcd()
    require_java(*client_coordinates(SERVER_VERSION))
    async with ReplicatedGroup(tmp_path, settings=ONE_QUEUE) as group:
        names = group.name_server_address
        record = await group.all_in_sync()
        await send(names, BODIES)
        async with consumers(names) as got:
            (await group.master()).kill()
            await got(BODIES)
            assert (await group.record()).epoch > record.epoch
            await send(names, AFTERWARDS)
            await got(BODIES | AFTERWARDS)
