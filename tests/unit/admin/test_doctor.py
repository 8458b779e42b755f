"""Every problem that `doctor` finds, provoked on a real cluster or, where a test cannot fill a disk or set a clock, by
changed answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.nameserver.brokers import body, header

from rocketline.admin import Admin
from rocketline.admin.doctor import MANY_BEHIND, Diagnosis, examine
from rocketline.broker import Broker
from rocketline.cli.servers.cluster import Cluster
from rocketline.client import ClientOptions, ClientTiming, Producer, PushConsumer
from rocketline.client.middleware import Proceed
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.protocol.bodies import (
    KVTable,
    SubscriptionGroupConfig,
    TopicConfig,
    decode_body,
    encode_body,
    encode_registration,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.testing import LocalCluster
from rocketline.transport import RemotingClient

QUICK = ClientTiming(heartbeat_s=0.1, persist_s=0.05)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
async def lonely() -> AsyncIterator[NameServer]:
    """A name server that no broker of ours knows."""
    async with NameServer(NameServerConfig(port=0)) as server:
        yield server


async def found_in(namesrv: str, **options: object) -> list[Diagnosis]:
    async with Admin(namesrv, **options) as admin:  # type: ignore[arg-type]
        return [finding async for finding in examine(admin, 0.0)]


async def the_one(namesrv: str, **options: object) -> Diagnosis:
    (finding,) = await found_in(namesrv, **options)
    assert finding.advice
    return finding


def saying(address: str = "", **facts: Callable[[str], str]) -> dict[str, object]:
    """Runtime infos of all brokers, or of one, with some values replaced on their way to the operator."""

    async def change(to: str, request: Command, proceed: Proceed) -> Command | None:
        answer = await proceed(request)
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO and answer is not None and address in ("", to):
            table = decode_body(KVTable, answer.body).table
            answer.body = encode_body(KVTable(table | {key: new(table[key]) for key, new in facts.items()}))
        return answer

    return {"middleware": change}


async def register(namesrv: str, name: str, address: str, broker_id: int = 0) -> RemotingClient:
    """A broker that says where it is; it is gone when the connection is closed."""
    client = RemotingClient()
    registration = encode_registration(body())
    command = Command(RequestCode.REGISTER_BROKER, header(name, address, broker_id).encode(), registration)
    assert (await client.call(namesrv, command, PATIENCE_S)).code == ResponseCode.SUCCESS
    return client


async def test_nothing_is_wrong_with_a_sound_cluster(cluster: Cluster) -> None:
    assert await found_in(cluster.namesrv) == []


# Name servers and addresses


async def test_a_name_server_that_does_not_answer(cluster: Cluster) -> None:
    finding = await the_one(f"127.0.0.1:1;{cluster.namesrv}")
    assert (finding.level, finding.where) == ("error", "127.0.0.1:1")
    assert "does not answer" in finding.problem


async def test_no_name_server_at_all() -> None:
    assert [finding.where for finding in await found_in("127.0.0.1:1;127.0.0.1:2")] == ["127.0.0.1:1", "127.0.0.1:2"]


async def test_a_name_server_that_does_not_know_a_broker(cluster: Cluster, lonely: NameServer) -> None:
    finding = await the_one(f"{cluster.namesrv};{lonely.address}")
    assert (finding.level, finding.where) == ("warning", lonely.address)
    assert f"does not know broker broker-a at {cluster.brokers[0].address}" in finding.problem


async def test_no_broker(lonely: NameServer) -> None:
    finding = await the_one(lonely.address)
    assert (finding.level, finding.problem) == ("error", "no broker is registered")


async def test_an_advertised_address_that_cannot_be_reached(cluster: Cluster) -> None:
    ghost = await register(cluster.namesrv, "ghost", "127.0.0.1:1")
    finding = await the_one(cluster.namesrv)
    assert (finding.level, finding.where) == ("error", "ghost 127.0.0.1:1")
    assert "brokerIP1" in finding.advice
    await ghost.close()


async def test_a_broker_without_a_master(cluster: Cluster) -> None:
    # The address answers: what is wrong is that nobody with this name is a master.
    slave = await register(cluster.namesrv, "headless", cluster.brokers[0].address, broker_id=1)
    finding = await the_one(cluster.namesrv)
    assert (finding.level, finding.where, "no master" in finding.problem) == ("error", "headless", True)
    await slave.close()


# Brokers


@pytest.mark.parametrize(("ratio", "level"), [("0.80", "warning"), ("0.93", "error")])
async def test_a_disk_that_fills(cluster: Cluster, ratio: str, level: str) -> None:
    finding = await the_one(cluster.namesrv, **saying(commitLogDiskRatio=lambda _: ratio))
    assert (finding.level, f"{float(ratio):.0%} full" in finding.problem) == (level, True)


@pytest.mark.parametrize(("skew_s", "word"), [(3600, "ahead of"), (-3600, "behind")])
async def test_a_clock_that_is_wrong(cluster: Cluster, skew_s: int, word: str) -> None:
    changed = saying(bootTimestamp=lambda ms: str(int(ms) + skew_s * 1000))
    finding = await the_one(cluster.namesrv, **changed)
    assert (finding.level, f"{word} this machine's" in finding.problem) == ("warning", True)


@pytest.mark.parametrize("key", ["bootTimestamp", "runtime"])
@pytest.mark.parametrize("text", ["?", f"[ {'9' * 5000} days, 1 hours, 1 minutes, 1 seconds ]"], ids=["?", "9..."])
async def test_a_broker_that_does_not_say_its_time_is_not_blamed(cluster: Cluster, key: str, text: str) -> None:
    assert await found_in(cluster.namesrv, **saying(**{key: lambda _: text})) == []


async def test_a_broker_that_set_something_aside(cluster: Cluster) -> None:
    cluster.brokers[0].parts.aside.item("timers", "an item", ValueError("it is none"))
    finding = await the_one(cluster.namesrv)
    assert (finding.level, finding.problem.startswith("1 messages or other items")) == ("warning", True)
    assert "rmq_sys_UNDELIVERABLE" in finding.advice


async def test_a_broker_that_is_not_active(cluster: Cluster) -> None:
    finding = await the_one(cluster.namesrv, **saying(brokerActive=lambda _: "false"))
    assert finding.problem == "says it is not active"


async def test_messages_that_are_stored_and_not_readable(cluster: Cluster) -> None:
    finding = await the_one(cluster.namesrv, **saying(dispatchBehindBytes=lambda _: str(1 << 30)))
    assert "not readable yet" in finding.problem


async def test_versions_that_differ() -> None:
    async with LocalCluster(brokers=2) as cluster:
        old = saying(cluster.brokers[1].address, brokerVersionDesc=lambda _: "V4_9_7")
        finding = await the_one(cluster.namesrv, **old)
    assert "broker-b" in finding.problem
    assert "V4_9_7" in finding.problem


# Topics and groups


async def test_a_topic_without_a_route(cluster: Cluster) -> None:
    async with Admin(cluster.namesrv) as admin:
        (broker,) = await admin.brokers()
        await broker.put_topic(TopicConfig("orders", 2, 2))
        await admin.ask_name_servers(lambda server: server.delete_topic("orders"))
    finding = await the_one(cluster.namesrv)
    assert (finding.level, finding.where) == ("warning", "topic orders")


async def test_a_broker_that_does_not_list_its_topics(cluster: Cluster) -> None:
    async def refuse(to: str, request: Command, proceed: Proceed) -> Command | None:
        if request.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark="no")
        return await proceed(request)

    finding = await the_one(cluster.namesrv, middleware=refuse)
    assert "does not list its topics" in finding.problem


async def test_a_group_with_two_subscriptions(cluster: Cluster) -> None:
    async def handle(message: MessageView) -> None: ...

    async with (
        Producer(cluster.namesrv, group="shop") as producer,
        PushConsumer(cluster.namesrv, group="torn", options=ClientOptions(timing=QUICK)) as one,
        PushConsumer(cluster.namesrv, group="torn", options=ClientOptions(timing=QUICK)) as other,
        PushConsumer(cluster.namesrv, group="whole", options=ClientOptions(timing=QUICK)) as third,
        PushConsumer(cluster.namesrv, group="whole", options=ClientOptions(timing=QUICK)) as fourth,
    ):
        await producer.send(Message("orders", b"x"))
        for consumer, tag in ((one, "even"), (other, "odd"), (third, "*"), (fourth, "*")):
            consumer.subscribe("orders", tag, handle)
            await consumer.start()
        finding = await the_one(cluster.namesrv)
    assert (finding.level, finding.where) == ("error", "group torn")
    assert "orders (even), orders (odd)" in finding.problem


class Lagging:
    """A group that is far behind; what happens between the doctor's two looks at it."""

    def __init__(self, cluster: Cluster, between: Callable[[], None]) -> None:
        self._between = between
        self._broker: Broker = cluster.brokers[0]
        self._looks = 0

    async def __call__(self, to: str, request: Command, proceed: Proceed) -> Command | None:
        if request.code == RequestCode.GET_BROKER_CONSUME_STATS:
            self._looks += 1
            if self._looks == 3:  # the first is for the subscriptions
                self._between()
        return await proceed(request)


@pytest.fixture
async def behind(cluster: Cluster) -> Cluster:
    async with Admin(cluster.namesrv) as admin, Producer(cluster.namesrv, group="shop") as producer:
        (broker,) = await admin.brokers()
        for topic in ("orders", "%RETRY%billing"):
            await broker.put_topic(TopicConfig(topic, 1, 1))
        await broker.put_group(SubscriptionGroupConfig("billing"))
        queue = MessageQueue("orders", "broker-a", 0)
        for _ in range(0, MANY_BEHIND + 100, 100):
            await producer.send_batch([Message("orders", b"x") for _ in range(100)], queue=queue)
    cluster.brokers[0].parts.offsets.commit("test", "billing", "orders", 0, 0)
    cluster.brokers[0].parts.offsets.commit("test", "billing", "%RETRY%billing", 0, 0)  # where nothing waits
    return cluster


async def test_lag_that_does_not_shrink(behind: Cluster) -> None:
    finding = await the_one(behind.namesrv)
    assert (finding.level, finding.where) == ("warning", "group billing")
    assert finding.problem == f"is {MANY_BEHIND + 100} messages behind in orders, and the lag does not shrink"


async def test_lag_that_grows(behind: Cluster) -> None:
    def lose_ground() -> None:
        behind.brokers[0].parts.offsets.commit("test", "billing", "orders", 0, 40)

    behind.brokers[0].parts.offsets.commit("test", "billing", "orders", 0, 50)
    finding = await the_one(behind.namesrv, middleware=Lagging(behind, lose_ground))
    assert f"is {MANY_BEHIND + 60} messages behind in orders, and the lag grew by 10 in" in finding.problem


async def test_lag_that_shrinks_is_no_complaint(behind: Cluster) -> None:
    def catch_up() -> None:
        behind.brokers[0].parts.offsets.commit("test", "billing", "orders", 0, 50)

    assert await found_in(behind.namesrv, middleware=Lagging(behind, catch_up)) == []
