"""Copies of a log on Apache's brokers and ours: either as master, either as slave, with equal bytes in their files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, free_port, request, server_coordinates
from tests.support.java import require_java
from tests.support.patience import PATIENCE_S
from tests.support.replica_group import consume, group_config, log_bytes, name_server, send_all, stored_log, until

from rocketline.broker.broker import Broker
from rocketline.client import SendStatus
from rocketline.protocol.codes import RequestCode

pytestmark = pytest.mark.interop

BODIES = [b"%d " % number * 50 for number in range(200)]
LARGE = [b"x" * 200_000] * 3


async def test_our_slave_follows_apaches_master(tmp_path: Path) -> None:
    require_java(*server_coordinates(SERVER_VERSION))
    async with name_server() as names:
        apache = ApacheCluster(
            tmp_path / "apache",
            broker_conf={"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveReadEnable": "true"},
            namesrv=False,
            namesrv_addr=names,
            jvm_options=QUICK_START,
        )
        await asyncio.to_thread(apache.start)
        try:
            config = group_config(tmp_path, names, 1, slaveReadEnable="true")
            async with Broker(config) as slave:
                await until(lambda: slave.parts.roles.has_master, "a connection to Apache's master")
                # The answers say that our slave has the messages.
                receipts = await send_all(names, "orders", BODIES + LARGE)
                assert {receipt.status for receipt in receipts} == {SendStatus.OK}
                store = slave.parts.store
                await until(lambda: sum(store.max_offset("orders", queue) for queue in range(8)) == len(receipts))
                await until(lambda: slave.parts.topics.get("orders") is not None, "the topic")
                theirs = await asyncio.to_thread(log_bytes, apache.store)
                assert theirs.startswith(stored_log(slave))
                # The master dies: its slave is read, and has everything.
                await asyncio.to_thread(apache.kill)
                assert sorted(await consume(names, "orders", len(receipts))) == sorted(BODIES + LARGE)
        finally:
            apache.kill()


async def test_apaches_slave_follows_our_master(tmp_path: Path) -> None:
    require_java(*server_coordinates(SERVER_VERSION))
    port = free_port(-2, 0, 1)
    async with name_server() as names:
        settings = {"listenPort": str(port), "haListenPort": str(port + 1), "rocketline.haTrusted": "127.0.0.1"}
        config = group_config(tmp_path, names, 0, brokerRole="SYNC_MASTER", inSyncReplicas="2", **settings)
        apache = ApacheCluster(
            tmp_path / "apache",
            broker_conf={"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"},
            namesrv=False,
            namesrv_addr=names,
            jvm_options=QUICK_START,
        )
        async with Broker(config) as master:
            try:
                await asyncio.to_thread(apache.start)
                await until(lambda: master.parts.roles.acks.replicas, "Apache's slave")
                receipts = await send_all(names, "orders", BODIES + LARGE)
                assert {receipt.status for receipt in receipts} == {SendStatus.OK}
                expected = stored_log(master)
                theirs = await asyncio.to_thread(log_bytes, apache.store)
                assert theirs.startswith(expected)
                # It got the topic at port - 2.
                await until(
                    lambda: b'"orders"' in request(apache.broker, RequestCode.GET_ALL_TOPIC_CONFIG), "the topic"
                )
            finally:
                apache.kill()


async def test_a_group_moves_from_apache_to_us_with_its_folders(tmp_path: Path) -> None:
    """Apache's master dies, our slave leads; Apache's broker comes back on its folder as our slave, and then leads alone."""
    require_java(*server_coordinates(SERVER_VERSION))
    port = free_port(-2, 0, 1)
    async with name_server() as names:

        def apache(number: int, **settings: str) -> ApacheCluster:
            return ApacheCluster(
                tmp_path / f"apache-{number}",
                broker_conf=settings,
                namesrv=False,
                namesrv_addr=names,
                store=tmp_path / "store",
                jvm_options=QUICK_START,
            )

        first = apache(1, brokerRole="SYNC_MASTER", inSyncReplicas="2")
        await asyncio.to_thread(first.start)
        brokers = [first]
        try:
            settings = {"listenPort": str(port), "haListenPort": str(port + 1), "rocketline.haTrusted": "127.0.0.1"}
            async with Broker(group_config(tmp_path, names, 1, **settings)) as ours:
                await until(lambda: ours.parts.roles.has_master, "a connection to Apache's master")
                receipts = await send_all(names, "orders", BODIES)
                assert {receipt.status for receipt in receipts} == {SendStatus.OK}
                await until(lambda: ours.parts.topics.get("orders") is not None, "the topic")
                await asyncio.to_thread(first.kill)
                await ours.parts.roles.become_master(0)
                brokers.append(apache(2, brokerRole="SLAVE", brokerId="1"))
                await asyncio.to_thread(brokers[-1].start)
                await until(lambda: ours.parts.roles.acks.replicas, "Apache's broker as a slave")
                await send_all(names, "orders", LARGE)
                expected = stored_log(ours)
                async with asyncio.timeout(PATIENCE_S):
                    while not (await asyncio.to_thread(log_bytes, tmp_path / "store")).startswith(expected):
                        await asyncio.sleep(0.1)
            await asyncio.to_thread(brokers[-1].kill)
            brokers.append(apache(3))
            await asyncio.to_thread(brokers[-1].start)
            assert sorted(await consume(names, "orders", len(BODIES + LARGE))) == sorted(BODIES + LARGE)
        finally:
            for broker in brokers:
                broker.kill()
