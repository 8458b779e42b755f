"""Our broker at Apache's name server: it is taken although it names no address for replication, and Java clients find it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java
from tests.support.java_client import JavaClient
from tests.support.reading import push_all

from rocketline.broker import Broker, BrokerConfig
from rocketline.broker.config import RegistrationConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import RegisterBrokerHeader
from rocketline.store.config import StoreConfig
from rocketline.transport import RemotingClient

pytestmark = pytest.mark.interop

SMALL = StoreConfig(log_segment_bytes=8 << 20, queue_segment_bytes=20_000, index_slots=5000, index_entries=20_000)
SLAVE = RegisterBrokerHeader("broker-a", "127.0.0.1:1", "DefaultCluster", 1, ha_server_addr="127.0.0.1:2")


async def test_it_is_found_and_a_slave_is_told_no_address_to_copy_from(tmp_path: Path, java_clients, name):
    require_java(*server_coordinates(SERVER_VERSION))
    java = java_clients("5.4.0")
    names = ApacheCluster(tmp_path / "names", broker=False, jvm_options=QUICK_START)
    await asyncio.to_thread(names.start)
    try:
        registration = RegistrationConfig(namesrv=names.namesrv)
        config = BrokerConfig(port=0, store_root=str(tmp_path / "data"), registration=registration, store=SMALL)
        async with Broker(config) as broker, RemotingClient() as client:
            # In a thread, all of it: this one must be free to answer.
            await asyncio.to_thread(_produce_and_consume, java, names.namesrv, name)
            answer = await client.call(names.namesrv, Command(RequestCode.REGISTER_BROKER, SLAVE.encode()), 10.0)
            assert answer.code == ResponseCode.SUCCESS
            assert answer.ext == {"haServerAddr": "", "masterAddr": broker.address}
            await asyncio.to_thread(java.release, names.namesrv)
    finally:
        names.kill()


def _produce_and_consume(java: JavaClient, namesrv: str, name: Callable[[str], str]) -> None:
    topic, bodies = name("orders"), [b"one", b"two"]
    java.create_topic(namesrv, topic, 2)
    with java.producer(namesrv, name("pg")) as producer:
        for body in bodies:
            producer.send(topic, body)
    seen = push_all(java, namesrv, name("cg"), topic, len(bodies))
    assert sorted(message.body for message in seen) == bodies
