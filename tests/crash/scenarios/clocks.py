"""S15: wall clocks that jump or drift, of the broker, of all hosts, or of all but the broker, while messages are under way.

Passes when, in every variant,

* no delayed message is early: when it comes, either its delay has passed or the broker's clock says that it is time;
* every delayed message comes, not much later than both;
* nobody is thrown out: connections stay, and ordinary messages go on arriving within moments;
* times in a queue never go back, so that a search by time finds the first message of that time.

Runs in the simulated world: a clock that was set back a day is waited for.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, Producer, PullSettings, PushConsumer
from rocketline.client.remote_broker import RemoteBroker
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.testing.sim import SimWorld, run_world
from rocketline.transport import RemotingClient

from ..outcome import Outcome

JUMPS_S = {"+1 h": 3600, "-1 h": -3600, "+1 day": 86_400, "-1 day": -86_400}
DRIFT = "drift"
VARIANTS = (*JUMPS_S, DRIFT)
WHO = (("broker-a",), ("broker-a", "name-1", "shop", "till"), ("name-1", "shop", "till"))
TOPIC, QUEUES = "orders", 2
LEVELS_S = (1, 5, 10, 30)
SETTINGS = {
    "defaultTopicQueueNums": str(QUEUES),
    "timerFlushIntervalMs": "60000",  # a save compares all of the wheel, which is what a simulated second would cost
    "mappedFileSizeTimerLog": "1048576",
}
BEFORE_S, AFTER_S = 20.0, 60.0
MOST_DRIFT = 0.05
AT_ONCE_S = 3.0
"""An ordinary message is there by then; a delayed one comes so much after its time at most, or after twice its delay."""
TIMING = ClientTiming(rebalance_s=100.0, route_refresh_s=100.0, heartbeat_s=30.0, persist_s=50.0)


@dataclass
class Sent:
    """A message, and when it is due: by how much time has passed, or by the broker's clock."""

    body: bytes
    delay_s: float
    kind: str
    at_s: float
    due_ms: float


class Site:
    """One broker, a producer and a consumer, each on a host with a clock of its own."""

    def __init__(self, world: SimWorld, outcome: Outcome, variant: str) -> None:
        self.world, self.outcome, self.variant = world, outcome, variant
        self.chance = Random(world.chance.randrange(1 << 32))
        self.clock = world.clock_of("broker-a")
        self.sent: dict[bytes, Sent] = {}
        self.seen: dict[bytes, MessageView] = {}

    async def live(self) -> None:
        world = self.world
        await world.start_name_server("name-1")
        await world.start_broker("broker-a", SETTINGS)
        producer = Producer(world.namesrv, group="senders", options=self._options("shop"))
        consumer = PushConsumer(
            world.namesrv,
            group="takers",
            from_where=ConsumeFrom.FIRST,
            pull=PullSettings(suspend_s=90.0, timeout_s=100.0),
            options=self._options("till"),
        )
        await world.inside(world.new_process("shop"), producer.__aenter__())
        await self._send(producer, "plain")  # makes the topic
        await world.inside(world.new_process("till"), self._consume(consumer))
        await self._traffic(producer, BEFORE_S + self.chance.random())
        before = set(world.network.connections)
        self._trouble()
        await self._traffic(producer, AFTER_S)
        self._require(set(world.network.connections) == before, "connections were lost")
        await self._wait_for_all()
        await self._check_search()
        for host, client in (("shop", producer), ("till", consumer)):
            await world.inside(world.process_of(host), client.close())
        self.outcome.acked += len(self.sent)

    def _options(self, host: str) -> ClientOptions:
        world = self.world
        return ClientOptions(
            instance_name=host, client_ip=world.address_of(host), clock=world.clock_of(host), timing=TIMING
        )

    def _require(self, is_so: bool, otherwise: str) -> None:
        self.outcome.require(is_so, f"S15 {self.variant}: {otherwise}")

    def _trouble(self) -> None:
        for host in self.chance.choice(WHO):
            clock = self.world.clock_of(host)
            if self.variant == DRIFT:
                clock.drift(self.chance.uniform(-MOST_DRIFT, MOST_DRIFT))
            else:
                clock.jump(JUMPS_S[self.variant])

    async def _traffic(self, producer: Producer, seconds: float) -> None:
        end = self.world.loop.time() + seconds
        while self.world.loop.time() < end:
            await self.world.inside(
                self.world.process_of("shop"), self._send(producer, self.chance.choice(("plain", "level", "timer")))
            )
            await asyncio.sleep(self.chance.uniform(0, 0.5))

    async def _send(self, producer: Producer, kind: str) -> None:
        body = f"{kind} {len(self.sent)}".encode()
        message, delay_s = Message(TOPIC, body), 0.0
        if kind == "level":
            level = self.chance.randrange(len(LEVELS_S))
            message, delay_s = Message(TOPIC, body, delay_level=level + 1), float(LEVELS_S[level])
        elif kind == "timer":
            delay_s = self.chance.uniform(0.5, 30)
            message = Message(TOPIC, body, delay=timedelta(seconds=delay_s))
        due_ms = self.clock.now_ms() + delay_s * 1000
        self.sent[body] = Sent(body, delay_s, kind, self.world.loop.time(), due_ms)
        await producer.send(message)

    async def _consume(self, consumer: PushConsumer) -> None:
        async def handle(message: MessageView) -> None:
            self._arrived(message)

        await consumer.__aenter__()
        consumer.subscribe(TOPIC, "*", handle)
        await consumer.start()

    def _arrived(self, message: MessageView) -> None:
        sent = self.sent[message.body]
        if message.body in self.seen:
            self.outcome.duplicates += 1
            return
        self.seen[message.body] = message
        passed_s = self.world.loop.time() - sent.at_s
        past_s = min(passed_s - sent.delay_s, (self.clock.now_ms() - sent.due_ms) / 1000)
        early_s = -max(passed_s - sent.delay_s, (self.clock.now_ms() - sent.due_ms) / 1000)
        self._require(early_s <= 0.001, f"{message.body!r} came {early_s:.3f} s before its time")
        limit_s = AT_ONCE_S + sent.delay_s
        self._require(past_s <= limit_s, f"{message.body!r} came {past_s:.3f} s after its time")
        self.outcome.note(f"{sent.kind} late s", past_s)

    async def _wait_for_all(self) -> None:
        """A timer set before its clock went back comes when that clock is there again."""
        limit = self.world.loop.time() + max(0, -JUMPS_S.get(self.variant, 0)) + 2 * max(LEVELS_S) + AT_ONCE_S
        while len(self.seen) < len(self.sent) and self.world.loop.time() < limit:
            await asyncio.sleep(1.0)
        missing = self.sent.keys() - self.seen.keys()
        self._require(not missing, f"{len(missing)} of {len(self.sent)} never came: {sorted(missing)[:5]}")
        self._require(self.outcome.duplicates == 0, f"{self.outcome.duplicates} came twice")

    async def _check_search(self) -> None:
        async with RemotingClient() as remoting:
            broker = RemoteBroker(remoting, self.world.broker_address("broker-a"), "broker-a", 10.0)
            for queue_id in range(QUEUES):
                await self._check_queue(broker, MessageQueue(TOPIC, "broker-a", queue_id))

    async def _check_queue(self, broker: RemoteBroker, queue: MessageQueue) -> None:
        there = [message for message in self.seen.values() if message.queue_id == queue.queue_id]
        there.sort(key=lambda message: message.queue_offset)
        times = [message.store_ms for message in there]
        self._require(all(one <= next_one for one, next_one in pairwise(times)), f"times of {queue} go back")
        for number, message in enumerate(there):
            if number == 0 or times[number - 1] < times[number]:
                found = await broker.offset_at(queue, times[number])
                self._require(found == message.queue_offset, f"{queue} at {times[number]}: {found}")


async def run(folder: Path, seed: int, variant: str = "-1 h", runs: int = 1) -> Outcome:
    outcome = Outcome("S15", variant, seed)
    for number in range(runs):
        # A world has a loop of its own, and there is one in this thread already.
        await asyncio.to_thread(run_world, lambda world: Site(world, outcome, variant).live(), seed * 1000 + number)
        outcome.runs += 1
    return outcome
