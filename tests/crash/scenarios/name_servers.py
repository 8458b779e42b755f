"""S13: name servers that are gone, silent, out of date or back with nothing in them, and a broker that restarts meanwhile.

Clients that run go on with the routes they have; new ones are told that nobody could be reached. When a name server is back
it knows everything again within half a minute (here the brokers register every two seconds).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

from tests.support.patience import PATIENCE_S

from rocketline.client import ClientOptions, Producer, PushConsumer
from rocketline.client.remote_nameserver import RemoteNameServer
from rocketline.errors import RocketlineError, RouteNotFound
from rocketline.message import Message
from rocketline.protocol.bodies import TopicRouteData
from rocketline.transport import RemotingClient

from ..outcome import Outcome
from ..plan import SETTINGS
from ..servers import ServerChild
from ..traffic import QUICK, NeverHappened, Traffic

GONE, STALE = "all gone", "one stale"
VARIANTS = (GONE, STALE)
TOPIC, LATE_TOPIC = "orders", "late"
SOME = 100
BROKER = {**SETTINGS, "registerNameServerPeriod": "2000", "registerBrokerTimeoutMills": "1000"}
del BROKER["listenPort"]


class Site:
    """Two name servers and a broker, a process each."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.random = random
        self._folder = folder
        self.name_servers = [ServerChild(folder / f"n{number}.log", "nameserver") for number in (1, 2)]

    @property
    def namesrv(self) -> str:
        return ";".join(server.address for server in self.name_servers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as undo:
            for server in self.name_servers:
                undo.push_async_callback(server.kill)
                await server.start()
            settings = [part for key, value in BROKER.items() for part in ("--set", f"{key}={value}")]
            settings += ["--namesrv", self.namesrv, "--data", str(self._folder / "store")]
            self.broker = ServerChild(self._folder / "broker.log", "broker", *settings)
            undo.push_async_callback(self.broker.kill)
            await self.broker.start()
            yield

    async def restart_broker(self, *, new_port: bool = False) -> None:
        """Cleanly or not, as chance has it."""
        await (self.broker.kill() if self.random.random() < 0.5 else self.broker.stop())
        await self.broker.start(new_port=new_port)

    def shuffled(self) -> list[ServerChild]:
        return self.random.sample(self.name_servers, 2)


async def run(folder: Path, seed: int, variant: str = GONE, runs: int = 1) -> Outcome:
    outcome = Outcome("S13", variant, seed)
    random = Random(seed)
    for number in range(runs):
        site = Site(folder / str(number), random)
        try:
            async with site.running(), Traffic(site.namesrv, TOPIC) as traffic:
                await traffic.flow(SOME)
                await (_all_gone if variant == GONE else _one_stale)(outcome, site, traffic)
                await traffic.settle(outcome)
        except NeverHappened as error:
            outcome.violations.append(f"S13 {variant}: {error}")
        outcome.runs += 1
        if not outcome.violations:
            shutil.rmtree(folder / str(number), ignore_errors=True)
    return outcome


async def _all_gone(outcome: Outcome, site: Site, traffic: Traffic) -> None:
    first, last = site.shuffled()
    for server in (first, last):
        await server.kill()
        await asyncio.sleep(site.random.uniform(0, 0.5))
    await traffic.flow(SOME)
    outcome.require(not traffic.failures, f"S13: sends failed without name servers: {traffic.failures[:3]}")
    await _require_clear_refusals(outcome, site)

    await site.restart_broker()
    await traffic.flow(SOME)

    failed = len(traffic.failures)
    await first.start()  # it knows nothing: "no such topic" is not to be believed by those who know better
    outcome.note("seconds to a full route", await _route_is_back(first, TOPIC, site.broker.address))
    await traffic.flow(SOME)
    outcome.require(
        len(traffic.failures) == failed, f"S13: sends failed at the return: {traffic.failures[failed:][:3]}"
    )
    await _require_service(outcome, site.namesrv)
    await last.start()
    await _route_is_back(last, TOPIC, site.broker.address)


async def _one_stale(outcome: Outcome, site: Site, traffic: Traffic) -> None:
    stale, good = site.shuffled()
    stale.pause()
    await traffic.flow(SOME)
    outcome.require(not traffic.failures, f"S13: sends failed with one silent name server: {traffic.failures[:3]}")
    await _require_service(outcome, f"{stale.address};{good.address}")
    await site.restart_broker(new_port=True)
    await traffic.flow(SOME)

    # What it knows is a topic short and names an address where nobody listens any more; and it is the only one now.
    await good.kill()
    stale.resume()
    for topic in (TOPIC, LATE_TOPIC):
        outcome.note("seconds to a full route", await _route_is_back(stale, topic, site.broker.address))
    await traffic.flow(SOME)
    await _require_service(outcome, stale.address)
    outcome.note("failed sends", len(traffic.failures))


async def _require_clear_refusals(outcome: Outcome, site: Site) -> None:
    """A new producer, when its time is over, and a new consumer, at once, say what is wrong, and with whom."""

    async def send() -> None:
        async with Producer(
            site.namesrv, group="newcomers", timeout=2.0, options=ClientOptions(instance_name="new-producer")
        ) as producer:
            await producer.send(Message(TOPIC, b"x"))

    async def consume() -> None:
        async with PushConsumer(
            site.namesrv, group="newcomers", options=ClientOptions(instance_name="new-consumer")
        ) as consumer:
            consumer.subscribe(TOPIC, "*", print)
            await consumer.start()

    for client in (send, consume):
        try:
            await client()
        except RouteNotFound as error:
            text = str(error)
            clear = "no name server could be reached" in text and all(s.address in text for s in site.name_servers)
            outcome.require(clear, f"S13: an unclear error without name servers: {text}")
        except RocketlineError as error:
            outcome.violations.append(f"S13: {client.__name__} without name servers failed with {error!r}")
        else:
            outcome.violations.append(f"S13: {client.__name__} without name servers did not fail")


async def _require_service(outcome: Outcome, namesrv: str) -> None:
    """A new client can work, with a topic that may be new as well."""
    async with Producer(
        namesrv, group="newcomers", options=ClientOptions(instance_name="new-producer", timing=QUICK)
    ) as producer:
        try:
            await producer.send(Message(LATE_TOPIC, b"x"))
        except RocketlineError as error:
            outcome.violations.append(f"S13: a new producer failed: {error}")


async def _route_is_back(server: ServerChild, topic: str, broker_address: str) -> float:
    """Seconds until a name server names the broker, and only where it is now."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    remoting = RemotingClient()
    found: object = None
    try:
        while loop.time() - started < PATIENCE_S:
            try:
                found = route = await RemoteNameServer(remoting, [server.address]).route(topic)
                if _addresses(route) == {broker_address}:
                    return loop.time() - started
            except RocketlineError as error:
                found = error
            await asyncio.sleep(0.05)
    finally:
        await remoting.close()
    raise NeverHappened(f"{server.address} gave no full route of {topic} in {PATIENCE_S:g} s, but {found}")


def _addresses(route: TopicRouteData) -> set[str]:
    return {address for broker in route.broker_datas for address in broker.broker_addrs.values()}
