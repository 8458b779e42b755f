"""The programs of the simulated day: producers that send now and then, and consumers with handlers that misbehave."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.sim.ledger import GroupLedger, OrderJudge, Sends, Sent

from rocketline.client import (
    ByBrokers,
    ClientOptions,
    ClientTiming,
    ConsumeFrom,
    MessageModel,
    Producer,
    PullSettings,
    PushConsumer,
    SendStatus,
)
from rocketline.errors import RocketlineError
from rocketline.message import Message, MessageView
from rocketline.testing.sim import ProcessDied, SimWorld

TOPIC = "orders"
TIMING = ClientTiming(rebalance_s=100.0, route_refresh_s=100.0, heartbeat_s=50.0, persist_s=50.0)
"""Rarer than by default where nothing but the cost of a simulated day depends on it."""
SUSPEND_S, PULL_TIMEOUT_S = 90.0, 100.0
MAX_RECONSUME_TIMES = 3
CONSUME_TIMEOUT_S = 300.0
HURRIED_SENDS = 5


class Failed(Exception):
    """What handlers of the simulation raise."""


@dataclass(frozen=True)
class GroupPlan:
    name: str
    most: int
    """Members at once."""
    ordered: bool = False
    broadcasting: bool = False
    by_brokers: bool = False
    """Whether brokers share the queues out."""
    failing: float = 0.0
    """Share of calls that raise."""
    poison: float = 0.0
    """Share of messages that always fail."""
    hanging: float = 0.0
    """Share of calls that take longer than the time limit."""


@dataclass
class Member:
    """A consumer on a host of its own; after a crash its successor has the same client id."""

    world: SimWorld
    plan: GroupPlan
    host: str
    ledger: GroupLedger
    judge: OrderJudge | None
    offsets_folder: Path
    process: str = ""
    consumer: PushConsumer | None = None
    chance: Random = field(default_factory=Random)

    async def start(self) -> None:
        """Join; tried again while no broker or name server can be reached."""
        world = self.world
        self.process = world.new_process(self.host)
        while not world.network.is_dead(self.process):
            consumer = PushConsumer(world.namesrv, **self._arguments())
            world.owns_client(self.process, consumer.client_id)
            try:
                await world.inside(self.process, self._join(consumer))
                self.consumer = consumer
                return
            except ProcessDied:
                return
            except RocketlineError:
                await world.inside(self.process, consumer.close())
                await asyncio.sleep(10)

    def _arguments(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "group": plan.name,
            "from_where": ConsumeFrom.FIRST,
            "model": MessageModel.BROADCASTING if plan.broadcasting else MessageModel.CLUSTERING,
            "ordered": plan.ordered,
            "strategy": ByBrokers() if plan.by_brokers else "AVG",
            "concurrency": 4,
            "max_reconsume_times": -1 if plan.ordered else MAX_RECONSUME_TIMES,
            "pull": PullSettings(suspend_s=SUSPEND_S, timeout_s=PULL_TIMEOUT_S),
            "offsets": self.offsets_folder,
            "options": ClientOptions(
                instance_name=self.host,
                client_ip=self.world.address_of(self.host),
                timing=replace(TIMING, consume_timeout_s=CONSUME_TIMEOUT_S),
                clock=self.world.clock,
            ),
        }

    async def _join(self, consumer: PushConsumer) -> None:
        await consumer.__aenter__()
        process = self.process

        async def handle(message: MessageView) -> None:
            await self._handle(process, message)

        consumer.subscribe(TOPIC, "*", handle)
        await consumer.start()

    async def _handle(self, process: str, message: MessageView) -> None:
        plan, chance, judge = self.plan, self.chance, self.judge
        name = self.ledger.begins(message)
        if judge is not None:
            judge.begins(self.world.loop.time(), process, message)
        done = False
        try:
            hangs = chance.random() < plan.hanging
            await asyncio.sleep(chance.uniform(0, 2) if not hangs else chance.uniform(0.5, 3) * CONSUME_TIMEOUT_S)
            if Random(f"{self.world.seed} {name}").random() < plan.poison or chance.random() < plan.failing:
                self.ledger.failed[name] += 1
                raise Failed(name)
            done = not self.world.network.is_dead(process)
        finally:
            if judge is not None:
                judge.ends(process, message, done=done)
        if done:
            self.ledger.finished(name)

    async def leave(self) -> None:
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            try:
                await self.world.inside(self.process, consumer.close())
            except ProcessDied:
                return

    def crash(self, *, power: bool) -> None:
        self.consumer = None
        self.world.crash(self.host, power=power)
        if self.judge is not None:
            self.judge.forgive(self.process)


@dataclass
class Sender:
    """A producer that sends a message every `pause_s` or so, each after the answer to the one before; `hurry` has it send
    many in a row, so that what is about to happen meets sends under way."""

    world: SimWorld
    host: str
    sends: Sends
    pause_s: float
    chance: Random
    number: int = 0
    process: str = ""
    stopping: bool = False
    _hurried: asyncio.Event = field(default_factory=asyncio.Event)

    def hurry(self) -> None:
        self._hurried.set()

    async def run(self) -> None:
        """A life: until stopped or killed."""
        self.process = self.world.new_process(self.host)
        try:
            await self.world.inside(self.process, self._send_all())
        except ProcessDied:
            return

    async def _send_all(self) -> None:
        world = self.world
        producer = Producer(
            world.namesrv,
            group="shop",
            options=ClientOptions(
                instance_name=self.host, client_ip=world.address_of(self.host), timing=TIMING, clock=world.clock
            ),
        )
        world.owns_client(self.process, producer.client_id)
        async with producer:
            while not self.stopping:
                self._hurried.clear()
                try:
                    async with asyncio.timeout(self.chance.expovariate(1 / self.pause_s)):
                        await self._hurried.wait()
                except TimeoutError:
                    await self._send(producer)
                else:
                    for _ in range(HURRIED_SENDS):
                        await self._send(producer)

    async def _send(self, producer: Producer) -> None:
        self.number += 1
        number, name = self.number, f"{self.host}-{self.number}"
        self.sends.begin(name)
        try:
            receipt = await producer.send(Message(TOPIC, name.encode(), keys=[name]))
        except RocketlineError:
            return
        if receipt.status is SendStatus.OK and not self.world.network.is_dead(self.process):
            self.sends.acknowledged(Sent(name, self.host, number, receipt.queue, receipt.queue_offset))

    def crash(self, *, power: bool) -> None:
        self.world.crash(self.host, power=power)
