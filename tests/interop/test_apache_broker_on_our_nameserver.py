"""Apache's broker registers with our name server, and Apache's Java client finds it there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java
from tests.support.java_client import JavaClient
from tests.support.java_driver import CLIENT_VERSIONS, JavaCallError
from tests.support.patience import PATIENCE_S
from tests.support.reading import push_all

from rocketline.nameserver import NameServer, NameServerConfig

pytestmark = pytest.mark.interop

LOOPBACK = NameServerConfig(host="127.0.0.1", port=0)
CLUSTER = "DefaultCluster"
TOPIC_NOT_EXIST = 17


@asynccontextmanager
async def apache_broker(server: NameServer, folder: Path, **conf: str) -> AsyncIterator[ApacheCluster]:
    """Apache's broker, whose only name server is ours."""
    require_java(*server_coordinates(SERVER_VERSION))
    folder.mkdir()
    broker = ApacheCluster(
        folder, namesrv=False, namesrv_addr=server.address, broker_conf=conf or None, jvm_options=QUICK_START
    )
    await asyncio.to_thread(broker.start)
    try:
        yield broker
    finally:
        broker.kill()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


def members(server: NameServer, broker_name: str = "broker-a") -> dict[int, str]:
    return server.routes.member_group(CLUSTER, broker_name).broker_addrs


async def test_routes_come_with_the_broker_change_with_it_and_leave_with_it(tmp_path: Path, java_clients, name):
    java: JavaClient = java_clients("5.4.0")
    topic = name("routed")
    async with NameServer(LOOPBACK) as server, apache_broker(server, tmp_path / "a") as broker:
        assert members(server) == {0: broker.broker}
        info = await asyncio.to_thread(java.cluster_info, server.address)
        assert info["clusterAddrTable"] == {CLUSTER: ["broker-a"]}
        known = await asyncio.to_thread(java.topic_list, server.address)
        assert {"TBW102", "SELF_TEST_TOPIC", "broker-a", CLUSTER, "RMQ_SYS_TRANS_HALF_TOPIC"} <= known

        await asyncio.to_thread(java.create_topic, server.address, topic, 3)
        route = await asyncio.to_thread(java.route, server.address, topic)
        (queues,) = route["queueDatas"]
        assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 3, 6)
        assert {"TBW102", topic} <= set(server.routes.all_topics().topic_list)

        await asyncio.to_thread(java.delete_topic, server.address, topic)
        with pytest.raises(JavaCallError) as refused:
            await asyncio.to_thread(java.route, server.address, topic)
        assert refused.value.code == TOPIC_NOT_EXIST
        await asyncio.to_thread(java.release, server.address)

        broker.kill()
        await until(lambda: not members(server))
        assert server.routes.all_topics().topic_list == []


async def test_messages_flow_through_routes_of_ours(tmp_path: Path, java_clients, name):
    """Every client version, in both header encodings."""

    def journey(java: JavaClient, namesrv: str) -> None:
        topic, bodies = name("flow"), [b"one", b"two", b"three"]
        java.create_topic(namesrv, topic)
        with java.producer(namesrv, name("pg")) as producer:
            for body in bodies:
                producer.send(topic, body)
        seen = push_all(java, namesrv, name("cg"), topic, len(bodies))
        assert sorted(message.body for message in seen) == sorted(bodies)
        java.release(namesrv)

    async with NameServer(LOOPBACK) as server, apache_broker(server, tmp_path / "a"):
        for version in CLIENT_VERSIONS:
            for encoding in ("JSON", "ROCKETMQ"):
                await asyncio.to_thread(journey, java_clients(version, encoding), server.address)


async def test_a_slave_learns_its_master_and_acts_for_it(tmp_path: Path):
    """A pair in acting-master mode: the master is killed, and the route shows the slave, read-only, in its place."""
    config = NameServerConfig(host="127.0.0.1", port=0, support_acting_master=True, scan_interval_ms=500)
    pair = {"enableSlaveActingMaster": "true"}
    async with (
        NameServer(config) as server,
        apache_broker(server, tmp_path / "m", brokerRole="ASYNC_MASTER", **pair) as master,
        apache_broker(server, tmp_path / "s", brokerRole="SLAVE", brokerId="1", **pair) as slave,
    ):
        assert members(server) == {0: master.broker, 1: slave.broker}
        master.kill()
        await until(lambda: members(server) == {1: slave.broker})
        route = server.routes.route_of("TBW102")
        assert route is not None
        assert route.broker_datas[0].broker_addrs == {0: slave.broker}
        assert all(not queues.perm & 2 for queues in route.queue_datas)
        # The slave would find out by asking, too; this line is only written when it is told.
        await until(lambda: bool(re.search(r"min broker id changed, prev \d, new 1", slave.log_tail("broker", 200))))


async def test_a_compressed_registration_is_read_and_a_clean_stop_unregisters(tmp_path: Path):
    """Apache's own name server cannot read such a registration: the broker compresses, and forgets to say so."""
    async with (
        NameServer(LOOPBACK) as server,
        apache_broker(server, tmp_path / "a", compressedRegister="true") as broker,
    ):
        assert members(server) == {0: broker.broker}
        assert server.routes.route_of("TBW102") is not None
        await asyncio.to_thread(broker.stop)
        assert members(server) == {}
