"""A cluster over the network: what is asked of whom, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.virtual import VirtualLoop

from rocketline.errors import ConnectFailed, ConnectionLost
from rocketline.grpc.steps import Steps
from rocketline.message import LogOffset
from rocketline.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    QueueData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRouteData,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetRouteHeader, ViewMessageByIdHeader
from rocketline.protocol.records import RecordHead, encode_record, topic_part
from rocketline.proxy import known
from rocketline.proxy.clients import Client, Clients
from rocketline.proxy.links import FrontChannel
from rocketline.proxy.problems import Problem
from rocketline.proxy.proto import ClientType, pb
from rocketline.proxy.remote import RemoteBackend, RemoteLink
from rocketline.transport import Channel, Router
from rocketline.transport.access import Access

NAMESRV = ("127.0.0.1", 9876)
NAMES = ("a", "b")
ADDRESSES = {name: ("127.0.0.1", 10_911 + number) for number, name in enumerate(NAMES)}
LATER_MASTER = "127.0.0.1", 10_920


def text(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


@dataclass
class Cluster:
    """A name server and two brokers, which count what they are asked."""

    loop: VirtualLoop
    asked: Counter[tuple[str, int]] = field(default_factory=Counter)
    routes: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"T": NAMES})
    topic_code: ResponseCode = ResponseCode.SUCCESS
    pops_after_s: float = 0.0
    heartbeats: list[str] = field(default_factory=list)
    masters: dict[str, tuple[str, int]] = field(default_factory=lambda: dict(ADDRESSES))

    def __post_init__(self) -> None:
        self.loop.servers[NAMESRV] = Router(
            {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route, RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster}
        )
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        answers: dict[int, Callable[[str, Command], Any]] = {
            RequestCode.GET_TOPIC_CONFIG: self._topic,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._group,
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.SEND_MESSAGE_V2: lambda _, request: request.reply(ResponseCode.SUCCESS),
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: lambda _, request: request.reply(ResponseCode.SUCCESS),
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
        }
        self.loop.servers[ADDRESSES[name]] = Router(
            {code: lambda channel, request, answer=answer: answer(name, request) for code, answer in answers.items()}
        )

    def kill(self, name: str) -> None:
        del self.loop.servers[ADDRESSES[name]]
        self.loop.cut_all()

    def hand_over(self, name: str, code: ResponseCode) -> None:
        """Another member leads this group; the former master goes on as a replica, and refuses."""
        self.masters[name] = LATER_MASTER
        self.loop.servers[LATER_MASTER] = self.loop.servers[ADDRESSES[name]]
        refuse = {RequestCode.SEND_MESSAGE_V2: lambda _, request: request.reply(code, remark="no master")}
        self.loop.servers[ADDRESSES[name]] = Router(refuse)
        self.loop.cut_all()

    def _note(self, where: str, request: Command) -> None:
        self.asked[where, request.code] += 1

    def _route(self, channel: Channel, request: Command) -> Command:
        self._note("ns", request)
        names = self.routes.get(GetRouteHeader.decode(request).topic)
        if names is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark="no")
        brokers = [BrokerData("c", name, {0: text(self.masters[name])}) for name in names]
        queues = [QueueData(name, 2, 2, 6) for name in names]
        return request.reply(ResponseCode.SUCCESS, body=encode_body(TopicRouteData(brokers, queues)))

    def _cluster(self, channel: Channel, request: Command) -> Command:
        self._note("ns", request)
        table = {name: BrokerData("c", name, {0: text(self.masters[name])}) for name in NAMES}
        return request.reply(ResponseCode.SUCCESS, body=encode_body(ClusterInfo(table, {"c": list(NAMES)})))

    def _topic(self, name: str, request: Command) -> Command:
        self._note(name, request)
        if self.topic_code != ResponseCode.SUCCESS:
            return request.reply(self.topic_code, remark="no right")
        return request.reply(
            ResponseCode.SUCCESS, body=encode_body(TopicConfig("T", attributes={"message.type": "FIFO"}))
        )

    def _group(self, name: str, request: Command) -> Command:
        self._note(name, request)
        return request.reply(ResponseCode.SUCCESS, body=encode_body(SubscriptionGroupConfig("g")))

    def _heartbeat(self, name: str, request: Command) -> Command:
        self.heartbeats.append(name)
        return request.reply(ResponseCode.SUCCESS)

    async def _pop(self, name: str, request: Command) -> Command:
        self._note(name, request)
        await asyncio.sleep(self.pops_after_s)
        return request.reply(ResponseCode.SUCCESS, remark="popped")

    def _view(self, name: str, request: Command) -> Command:
        if ViewMessageByIdHeader.decode(request).log_offset != 500:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark="there is none")
        return request.reply(ResponseCode.SUCCESS, body=RECORD)


HOST = b"\x7f\0\0\x01\0\0\0\x01"
RECORD = encode_record(RecordHead(*topic_part("T"), 3, 7, 500, 0, 0, 1000, HOST, 2000, HOST, 0, 0), b"body", b"")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    loop = VirtualLoop()
    yield Cluster(loop)
    loop.close()


def run(cluster: Cluster, scenario: Callable[[RemoteBackend], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with RemoteBackend([text(NAMESRV)], Access()) as backend:
            await scenario(backend)

    cluster.loop.run_until_complete(main())


def channel() -> FrontChannel:
    return FrontChannel("127.0.0.1:1", "127.0.0.1", 1)


def producer(channel: FrontChannel, *topics: str) -> Client:
    made = Client("c1", channel, SimpleNamespace(is_open=True))  # type: ignore[arg-type]
    made.settings, made.topics = pb.Settings(client_type=ClientType.PRODUCER), topics
    return made


def test_a_pop_goes_on_for_a_call_that_is_over_and_its_answer_is_told(cluster: Cluster) -> None:
    cluster.pops_after_s = 1.0
    late: list[Command] = []

    async def scenario(backend: RemoteBackend) -> None:
        link = await backend.link("a")
        assert link is not None
        pop = link.call(channel(), Command(RequestCode.POP_MESSAGE, {}), 3.0, late.append)
        ended: list[BaseException | None] = []
        steps = Steps(pop, lambda _, __, error: ended.append(error))
        steps.run([])
        await asyncio.sleep(0.5)
        steps.cancel()
        await asyncio.sleep(0)
        assert [type(error) for error in ended] == [asyncio.CancelledError]
        await asyncio.sleep(1.0)

    run(cluster, scenario)
    assert [answer.remark for answer in late] == ["popped"]


def test_names_that_nobody_has_are_asked_for_once_a_second(cluster: Cluster) -> None:
    async def scenario(backend: RemoteBackend) -> None:
        for _ in range(50):
            assert await backend.link("nobody") is None
            assert await backend.topic("nothing") is None
        await asyncio.sleep(known.NOTHING_S)
        assert await backend.link("nobody") is None
        assert await backend.topic("nothing") is None

    run(cluster, scenario)
    assert cluster.asked == {
        ("ns", RequestCode.GET_BROKER_CLUSTER_INFO): 2,
        ("ns", RequestCode.GET_ROUTEINFO_BY_TOPIC): 2,
    }


def test_one_dead_broker_harms_only_itself(cluster: Cluster) -> None:
    cluster.kill("a")

    async def scenario(backend: RemoteBackend) -> None:
        topic = await backend.topic("T")
        assert topic is not None
        assert topic.message_type == "FIFO"
        assert await backend.group("g") is not None
        clients = Clients(backend, 10, asyncio.get_running_loop().time)
        await clients.register(producer(channel(), "T"))
        assert cluster.heartbeats == ["b"]
        assert {topic.next_writable()[0].name for _ in range(8)} == {"b"}
        assert {topic.next_readable().name for _ in range(8)} == {"b"}
        cluster.start("a")
        await asyncio.sleep(30)
        assert {topic.next_writable()[0].name for _ in range(8)} == {"a", "b"}

    run(cluster, scenario)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
def test_another_master_is_found_as_soon_as_the_former_one_refuses(cluster: Cluster, code: ResponseCode) -> None:
    async def scenario(backend: RemoteBackend) -> None:
        link = await backend.link("a")
        assert link is not None
        send = Command(RequestCode.SEND_MESSAGE_V2, {})
        cluster.hand_over("a", code)
        for _ in range(20):
            await asyncio.sleep(known.NOTHING_S)
            answered = await link.call(channel(), send, 3.0)
        assert answered.code == ResponseCode.SUCCESS
        assert (
            cluster.asked["ns", RequestCode.GET_BROKER_CLUSTER_INFO] == 2
        )  # for the first link, and for the new master

    run(cluster, scenario)


def test_brokers_that_are_busy_are_looked_for_once_a_second(cluster: Cluster) -> None:
    async def scenario(backend: RemoteBackend) -> None:
        link = await backend.link("a")
        assert link is not None
        cluster.hand_over("a", ResponseCode.SYSTEM_BUSY)
        cluster.masters = dict(ADDRESSES)  # nobody else leads
        for _ in range(30):
            await asyncio.sleep(0.1)
            assert (await link.call(channel(), Command(RequestCode.SEND_MESSAGE_V2, {}), 3.0)).code
        assert cluster.asked["ns", RequestCode.GET_BROKER_CLUSTER_INFO] <= 5

    run(cluster, scenario)


def test_a_client_that_no_broker_takes_is_told_so(cluster: Cluster) -> None:
    async def scenario(backend: RemoteBackend) -> None:
        assert await backend.topic("T") is not None
        for name in NAMES:
            cluster.kill(name)
        clients = Clients(backend, 10, asyncio.get_running_loop().time)
        with pytest.raises(ConnectFailed):
            await clients.register(producer(channel(), "T"))

    run(cluster, scenario)


def test_queues_in_turn_are_at_other_brokers_each_time(cluster: Cluster) -> None:
    async def scenario(backend: RemoteBackend) -> None:
        topic = await backend.topic("T")
        assert topic is not None
        turns = [(link.name, queue_id) for link, queue_id in (topic.next_writable() for _ in range(4))]
        assert sorted(turns) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        assert [name for name, _ in turns] in (["a", "b"] * 2, ["b", "a"] * 2)

    run(cluster, scenario)


def test_a_front_whose_account_may_not_read_topics_says_so(cluster: Cluster) -> None:
    cluster.topic_code = ResponseCode.NO_PERMISSION

    async def scenario(backend: RemoteBackend) -> None:
        with pytest.raises(Problem, match=r"broker [ab] .* topic T .*innerClientAuthenticationCredentials"):
            await backend.topic("T")

    run(cluster, scenario)


def test_a_client_that_is_gone_leaves_no_connection_behind(cluster: Cluster) -> None:
    """A heartbeat may cross its goodbye."""

    async def scenario(backend: RemoteBackend) -> None:
        gone = channel()
        clients = Clients(backend, 10, asyncio.get_running_loop().time)
        await clients.register(client := producer(gone, "T"))
        assert len(backend._own) == 1
        await clients.remove(client)
        with pytest.raises(ConnectionLost):
            await clients.register(client)
        assert backend._own == {}

    run(cluster, scenario)


@pytest.mark.parametrize(
    ("place", "is_there"),
    [
        ((500, "T", 3, 7), True),
        ((500, "Other", 3, 7), False),
        ((500, "T", 2, 7), False),
        ((500, "T", 3, 8), False),
        ((501, "T", 3, 7), False),
    ],
)
def test_a_place_in_the_log_is_looked_up(cluster: Cluster, place: Any, is_there: bool) -> None:
    async def scenario(backend: RemoteBackend) -> None:
        link = await backend.link("a")
        assert isinstance(link, RemoteLink)
        assert await link.is_there(LogOffset(place[0]), *place[1:]) == is_there

    run(cluster, scenario)
