"""The console on a large cluster: time per page, requests to a broker per page, and the cost of a live tail.

    python bench/console.py                      1,000 topics, 2,300 groups
    python bench/console.py --topics 50 --groups 100 --seconds 2

Times are of the whole request inside the console's process, with a broker on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import time
from collections import Counter

from tests.support.asgi import AsgiClient

from rocketline.admin import Admin
from rocketline.admin.progress import reset
from rocketline.client import Producer
from rocketline.client.middleware import Proceed
from rocketline.console.access import Person, Role
from rocketline.console.app import make_app
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.desk import Desk
from rocketline.message import Message
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.command import Command
from rocketline.testing import LocalCluster

PAGES = (
    "/",
    "/topics",
    "/topics?q=7",
    "/groups",
    "/groups?q=7",
    "/topics/t-0",
    "/groups/g-0",
    "/brokers",
    "/producers",
)
ROUNDS = 7
KEPT_S = 1.6
"""Longer than answers are used again, so that every round asks the broker."""


async def fill(namesrv: str, topics: int, groups: int) -> None:
    async with Admin(namesrv, timeout=60) as admin:
        for broker in await admin.brokers():
            await broker.put_topics([TopicConfig(f"t-{number}", 4, 4) for number in range(topics)])
            await broker.put_groups([SubscriptionGroupConfig(f"g-{number}") for number in range(groups)])
            async with Producer(namesrv, group="bench") as producer:
                await producer.send(Message("t-0", b"x"))
            for number in range(groups):
                await reset(admin, f"g-{number}", "t-0", 0)


async def pages(client: AsgiClient, asked: Counter[int]) -> None:
    print(f"{'page':<16} {'median ms':>10} {'worst ms':>10} {'requests':>9} {'KiB':>6}")
    for path in PAGES:
        times, size = [], 0
        before = sum(asked.values())
        for _ in range(ROUNDS):
            await asyncio.sleep(KEPT_S)
            began = time.perf_counter()
            answer = await client.get(f"/c/default{path}")
            times.append((time.perf_counter() - began) * 1000)
            size = len(answer.body)
            assert answer.status == 200, answer.shown
        requests = (sum(asked.values()) - before) / ROUNDS
        print(f"{path:<16} {statistics.median(times):10.1f} {max(times):10.1f} {requests:9.1f} {size / 1024:6.1f}")


async def tail(client: AsgiClient, namesrv: str, seconds: float, rate: int) -> None:
    async def send() -> None:
        async with Producer(namesrv, group="bench") as producer:
            while True:
                await asyncio.gather(*(producer.send(Message("t-0", b'{"n": 1}' * 12)) for _ in range(rate // 10)))
                await asyncio.sleep(0.1)

    sending = asyncio.create_task(send())
    began, cpu = time.monotonic(), time.process_time()
    events = await client.events("/c/default/topics/t-0/tail", int(seconds * 9))
    passed, spent = time.monotonic() - began, time.process_time() - cpu
    sending.cancel()
    shown = sum(len(content.get("items", [])) for _, content in events)
    print(
        f"tail: {shown / passed:.0f} messages a second shown, {spent / passed:.1%} of a core with producer and broker"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=2300)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=int, default=500)
    options = parser.parse_args()
    logging.getLogger("rocketline").setLevel(logging.ERROR)
    asked: Counter[int] = Counter()

    async def count(address: str, request: Command, proceed: Proceed) -> Command | None:
        asked[request.code] += 1
        return await proceed(request)

    with LocalCluster() as cluster:
        await fill(cluster.namesrv, options.topics, options.groups)
        place = ClusterPlace("default", cluster.namesrv, {"middleware": count})
        async with Desk(ConsoleConfig((place,))) as desk:
            for sampler in desk.samplers.values():
                await sampler.__aexit__()  # its requests are not those of pages
            desk.samplers.clear()
            client = AsgiClient(make_app(desk))
            client.cookies[desk.config.cookie] = desk.sessions.begin(Person("bench", Role.ADMIN))
            await pages(client, asked)
            await tail(client, cluster.namesrv, options.seconds, options.rate)


if __name__ == "__main__":
    asyncio.run(main())
