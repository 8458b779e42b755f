"""Two brokers behind proxies of our own: one turns slow, then dies, then returns. Sends keep flowing and none is lost.

The producer has a clock that stands still but when an answer of the slow broker passes, or a test says so: how quick the
machine is does not matter. What counts is where messages went, and that each is found again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.admin import create_topic
from tests.support.patience import PATIENCE_S
from tests.support.slow_proxy import SlowProxy
from tests.unit.client.fakes import FakeNameServer

from rocketline.cli.servers.cluster import Cluster
from rocketline.client import ClientOptions, ClientTiming, Producer, PullConsumer, Retries, SendStatus, SlowBrokers
from rocketline.clock import ManualClock
from rocketline.message import Message
from rocketline.protocol.bodies import BrokerData, QueueData, TopicRouteData
from rocketline.testing import LocalCluster

TOPIC, QUEUES = "orders", 4
SLOW_S = 0.6
REST_S = 1.0
STEPS = ((SLOW_S / 2, REST_S),)
NEVER_S = 3600.0


@dataclass
class World:
    cluster: Cluster
    name_server: FakeNameServer
    proxies: dict[str, SlowProxy]
    clock: ManualClock = field(default_factory=ManualClock)
    sent: set[str] = field(default_factory=set)

    def producer(self, **options: Any) -> Producer:
        timing = ClientTiming(heartbeat_s=NEVER_S, probe_s=0.1, probe_call_s=PATIENCE_S, send_again_s=0.01)
        options = {"avoid_slow_brokers": SlowBrokers(STEPS), "timeout": PATIENCE_S, **options}
        shared = ClientOptions(timing=timing, clock=self.clock)
        return Producer(self.name_server.address, group="g", options=shared, **options)

    async def send(self, producer: Producer, count: int) -> Counter[str]:
        """Messages one by one; how many each broker got."""
        where: Counter[str] = Counter()
        for _ in range(count):
            receipt = await producer.send(Message(TOPIC, b"x"))
            assert receipt.status is SendStatus.OK
            self.sent.add(receipt.message_id)
            where[receipt.queue.broker_name] += 1
        return where

    async def until_both_are_used(self, producer: Producer) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(await self.send(producer, 8)) < 2:
                self.clock.advance(REST_S)  # an attempt that failed has its broker avoided once more
                await asyncio.sleep(0.05)

    async def stored(self) -> set[str]:
        """The unique ids of everything in the brokers, read without the proxies."""
        found: set[str] = set()
        async with PullConsumer(self.cluster.namesrv, group="checker") as consumer:
            queues = await consumer.queues(TOPIC)
            consumer.assign(queues)
            ends = {queue: await consumer.end_offset(queue) for queue in queues}
            for queue in queues:
                await consumer.seek(queue, 0)
            left = sum(ends.values())
            async with asyncio.timeout(PATIENCE_S):
                while left > 0:
                    messages = await consumer.poll(32, 1.0)
                    left -= len(messages)
                    found |= {message.message_id for message in messages}
        return found


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with LocalCluster(brokers=2) as cluster:
        slow = {broker.name: SlowProxy(broker.address) for broker in cluster.brokers}
        for broker in cluster.brokers:
            await asyncio.to_thread(create_topic, broker.address, TOPIC, QUEUES)
        name_server = FakeNameServer()
        await name_server.start()
        try:
            for proxy in slow.values():
                await proxy.revive()
            name_server.routes[TOPIC] = TopicRouteData(
                [BrokerData("cluster", name, {0: proxy.address}) for name, proxy in slow.items()],
                [QueueData(name, QUEUES, QUEUES, 6) for name in slow],
            )
            yield World(cluster, name_server, slow)
        finally:
            for proxy in slow.values():
                await proxy.die()
            await name_server.close()


@pytest.mark.parametrize("probes", [False, True], ids=["by penalty", "with probes"])
async def test_slow_dead_and_back_again(probes: bool) -> None:
    async with world() as it:
        bad, good = it.proxies
        async with it.producer(avoid_slow_brokers=SlowBrokers(STEPS, probe=probes)) as producer:
            await it.until_both_are_used(producer)

            it.proxies[bad].on_answer = lambda: it.clock.advance(SLOW_S)
            slow: Counter[str] = Counter()
            for _ in range(5):
                slow += await it.send(producer, 40)
                it.clock.advance(REST_S)
            assert slow == {bad: 5, good: 195}, "it is tried after each rest, and no more"

            await it.proxies[bad].die()
            dead = await it.send(producer, 200)
            assert dead == {good: 200}

            it.proxies[bad].on_answer = lambda: None
            await it.proxies[bad].revive()
            it.clock.advance(REST_S)
            await it.until_both_are_used(producer)
        assert it.sent <= await it.stored(), "every receipt has its message"


async def test_many_in_flight_when_a_broker_dies() -> None:
    async with world() as it:
        bad, _ = it.proxies
        async with it.producer() as producer:
            await it.send(producer, 8)
            it.proxies[bad].delay_s = NEVER_S  # so that some wait for their answers when it dies
            sends = [asyncio.ensure_future(producer.send(Message(TOPIC, b"x"))) for _ in range(400)]
            await asyncio.wait(sends, return_when=asyncio.FIRST_COMPLETED)
            await it.proxies[bad].die()
            it.sent |= {receipt.message_id for receipt in await asyncio.gather(*sends)}
        assert len(it.sent) == 408
        assert it.sent <= await it.stored()


async def test_a_broker_that_hangs_does_not_use_up_the_time_of_the_other() -> None:
    async with world() as it:
        bad, good = it.proxies
        # The other broker may be late now and then too, on a busy machine: it gets more than one chance.
        async with it.producer(retries=Retries(20, attempt_timeout_s=1.0)) as producer:
            await it.send(producer, 8)
            it.proxies[bad].delay_s = NEVER_S
            where = await it.send(producer, 40)
            assert where == {good: 40}
        assert it.sent <= await it.stored()
