"""A broker, a proxy or a client is killed: what was acknowledged is there, what was settled stays away, and clients go on.

Clients are not restarted. They try again what failed, as every client does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import grpc.aio
import pytest
from tests.support.apache import free_port
from tests.support.five_clients import CallRefused, FiveClient, languages, require_client
from tests.support.grpc_client import GrpcClient, consumer_settings, defs, message, producer_settings
from tests.support.grpc_front import Address, Front
from tests.support.patience import PATIENCE_S
from tests.support.proxy_process import ProxyProcess

from rocketline.cli.servers.child import ChildCluster

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("grpc faults")]

Code = defs.Code
SHORTEST_S = 10


class Site:
    """A name server, a broker and the front that clients know: in the broker's process, or in one of its own."""

    def __init__(self, folder: Path, *, with_proxy: bool) -> None:
        self._ports = free_port(), free_port(-2, 0, 1)
        self._arguments = ["--data", str(folder)]
        self._proxy: ProxyProcess | None = None
        if not with_proxy:
            self._arguments += ["--grpc-port", str(free_port())]
        self._start_broker()
        if with_proxy:
            self._proxy = ProxyProcess(self._cluster.namesrv)
            self._proxy.start()
        grpc_address = self._proxy.grpc if self._proxy else self._cluster.grpc
        self.address = Address(grpc_address, self._cluster.namesrv, is_ours=True, has_our_broker=True)

    def kill_broker(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Kill it and start it again; `meanwhile` is called while it is away."""
        self._cluster.kill()
        meanwhile()
        self._start_broker()

    def kill_proxy(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        assert self._proxy is not None
        self._proxy.kill()
        meanwhile()
        self._proxy.start()

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.kill()
        self._cluster.kill()

    def _start_broker(self) -> None:
        self._cluster = ChildCluster(self._arguments, ports=self._ports)
        self._cluster.start()


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path, with_proxy=request.param == "proxy")
    yield found
    found.close()


def fault_of(site: Site, name: str) -> Callable[..., None]:
    return {"broker": site.kill_broker, "proxy": site.kill_proxy}[name]


class Traffic:
    """A producer and a consumer that go on whatever happens, and what they know."""

    def __init__(self, address: Address, topic: str, group: str) -> None:
        self._address, self._topic, self._group = address, topic, group
        self.sending = True
        self.is_all_sent = False
        self.sent: set[bytes] = set()
        """Acknowledged by the server."""
        self.settled: set[bytes] = set()
        """Whose acknowledgement the server has taken."""
        self.received: Counter[bytes] = Counter()
        self.came_again: set[bytes] = set()
        """Received after they had been settled."""

    async def produce(self) -> None:
        async with GrpcClient(self._address.grpc) as client:
            number = 0
            while self.sending:
                body = b"%d" % number  # new for each attempt: one that failed may be stored all the same
                number += 1
                with suppress(grpc.aio.AioRpcError):
                    answer = await client.send(message(self._topic, body))
                    if answer.status.code == Code.OK:
                        self.sent.add(body)
                await asyncio.sleep(0.005)
        self.is_all_sent = True

    async def consume(self) -> None:
        async with GrpcClient(self._address.grpc) as client:
            while not (self.is_all_sent and self.received.keys() >= self.sent):
                try:
                    await self._consume_some(client)
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)

    async def _consume_some(self, client: GrpcClient) -> None:
        received = await client.receive(self._group, self._topic, invisible_s=SHORTEST_S)
        self.received.update(received.bodies)
        self.came_again |= self.settled & set(received.bodies)
        if received.messages:
            answer = await client.ack(self._group, self._topic, *received.messages)
            taken = {entry.message_id for entry in answer.entries if entry.status.code == Code.OK}
            self.settled |= {item.body for item in received.messages if item.system_properties.message_id in taken}

    async def more(self, count: int = 100) -> None:
        """Wait until so many more are settled."""
        wanted = len(self.settled) + count
        async with asyncio.timeout(PATIENCE_S):
            while len(self.settled) < wanted:
                await asyncio.sleep(0.05)


async def test_nothing_is_lost_and_nothing_settled_comes_again(tmp_path: Path) -> None:
    """Three sites at the same time, as most of it is waiting."""
    faults = [("broker", "broker"), ("proxy", "broker"), ("proxy", "proxy")]
    sites = [Site(tmp_path / str(number), with_proxy=where == "proxy") for number, (where, _) in enumerate(faults)]
    try:
        found = await asyncio.gather(
            *(through_faults(site, fault_of(site, fault)) for site, (_, fault) in zip(sites, faults, strict=True))
        )
    finally:
        for site in sites:
            site.close()
    for traffic, fault in zip(found, faults, strict=True):
        assert traffic.sent - traffic.received.keys() == set(), fault
        assert traffic.came_again == set(), fault


async def through_faults(site: Site, fault: Callable[..., None]) -> Traffic:
    async with Front(site.address) as front:
        topic, group = await front.topic(queues=4), await front.group()
    traffic = Traffic(site.address, topic, group)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(traffic.produce())
        consuming = tasks.create_task(traffic.consume())
        for _ in range(2):
            await traffic.more()
            await asyncio.to_thread(fault)
        await traffic.more()
        traffic.sending = False
        async with asyncio.timeout(PATIENCE_S):
            await consuming
    # What was settled would come again when its time is over.
    async with GrpcClient(site.address.grpc) as client:
        deadline = time.monotonic() + SHORTEST_S + 3
        while time.monotonic() < deadline:
            late = await client.receive(group, topic, invisible_s=SHORTEST_S)
            traffic.came_again |= traffic.settled & set(late.bodies)
    return traffic


@pytest.mark.parametrize(
    ("site", "fault"), [("broker", "broker"), ("proxy", "proxy"), ("proxy", "broker")], indirect=["site"]
)
def test_official_clients_go_on(site: Site, fault: str) -> None:
    """Producers and consumers of all languages, through one crash."""
    for language in languages():
        require_client(language)

    async def make(kind: str) -> tuple[str, str]:
        async with Front(site.address) as front:
            return await front.topic(kind), await front.group()

    problems: dict[str, BaseException] = {}
    ready, go_on = threading.Barrier(len(languages()) + 1), threading.Event()

    def run(language: str) -> None:
        try:
            topic, group = asyncio.run(make("NORMAL"))
            with FiveClient(language, endpoint=site.address.grpc) as client:
                producer = client.start("producer", topics=[topic])
                consumed = start_consumer(client, group, topic)
                for number in range(5):
                    send_somehow(client, producer, topic, str(number))
                await_bodies(consumed, {str(number) for number in range(5)})
                ready.wait(PATIENCE_S)
                go_on.wait(PATIENCE_S)
                for number in range(5, 10):
                    send_somehow(client, producer, topic, str(number))
                await_bodies(consumed, {str(number) for number in range(10)})
        except BaseException as error:
            problems[language] = error
            ready.abort()

    threads = [threading.Thread(target=run, args=(language,)) for language in languages()]
    for thread in threads:
        thread.start()
    with suppress(threading.BrokenBarrierError):
        ready.wait(PATIENCE_S)
        fault_of(site, fault)(go_on.set)  # the next sends find nobody there
    go_on.set()
    for thread in threads:
        thread.join()
    assert problems == {}


def send_somehow(client: FiveClient, producer: str, topic: str, body: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.call("send", name=producer, topic=topic, body=body)
            return
        except CallRefused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def start_consumer(client: FiveClient, group: str, topic: str) -> Callable[[], set[str]]:
    """Start a push consumer, or a simple one where a client has no other; the result tells the bodies that came so far."""
    if client.language in languages("start_push"):
        pushed = client.start("push", group=group, topic=topic)
        return lambda: {item["body"] for item in client.call("seen", name=pushed)}
    simple = client.start("simple", group=group, topic=topic)
    bodies: set[str] = set()

    def receive() -> set[str]:
        with suppress(CallRefused):
            for item in client.call("receive", name=simple, count=16, invisible_s=SHORTEST_S):
                client.call("ack", name=simple, id=item["id"])
                bodies.add(item["body"])
        return bodies

    return receive


def await_bodies(consumed: Callable[[], set[str]], wanted: set[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not consumed() >= wanted:
        assert time.monotonic() < deadline, wanted
        time.sleep(0.1)


@pytest.mark.parametrize("site", ["broker"], indirect=True)
async def test_what_a_killed_process_held_comes_to_another(site: Site) -> None:
    """Apache's Python push consumer, killed while its listener works on a message that the server would renew for hours."""
    require_client("python")
    async with Front(site.address) as front:
        topic, group = await front.topic(), await front.group()
        async with front.client() as producer:
            await producer.introduce(producer_settings(topic))
            (sent,) = await producer.send_all([message(topic)])
        dying = await asyncio.to_thread(FiveClient, "python", endpoint=site.address.grpc)
        consumer = await asyncio.to_thread(lambda: dying.start("push", group=group, topic=topic, holds=True))
        held = []
        while not held:
            held = await asyncio.to_thread(lambda: dying.call("seen", name=consumer))
        await asyncio.to_thread(dying.kill)
        async with front.client() as other:
            await other.introduce(consumer_settings(group, topic, kind="PUSH_CONSUMER"))
            (again,) = await other.receive_until(group, topic, 1, invisible_s=None, auto_renew=True)
    assert held[0]["id"] == sent.message_id == again.system_properties.message_id
    assert again.system_properties.delivery_attempt == 2
