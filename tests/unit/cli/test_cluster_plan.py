"""Names, folders and ports of a cluster, decided before anything starts; then the cluster itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketline.cli.servers.cluster import Cluster, plan_cluster
from rocketline.errors import ConfigError

DATA = Path("/data")
SMALL = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}


def test_one_broker_uses_the_folder_and_its_own_name() -> None:
    plan = plan_cluster(DATA, {"brokerName": "shop"}, broker_port=10911, namesrv_port=9876)
    (broker,) = plan.brokers
    assert (broker.name, broker.port, broker.store_root) == ("shop", 10911, "/data")
    assert plan.name_server.port == 9876


def test_several_brokers_follow_each_other() -> None:
    plan = plan_cluster(DATA, {"brokerName": "shop"}, count=3, broker_port=10911)
    assert [(broker.name, broker.port, broker.store_root) for broker in plan.brokers] == [
        ("broker-a", 10911, "/data/broker-a"),
        ("broker-b", 10912, "/data/broker-b"),
        ("broker-c", 10913, "/data/broker-c"),
    ]


def test_the_ports_that_clients_are_told_follow_each_other_too() -> None:
    plan = plan_cluster(DATA, {"rocketline.advertisedPort": "20911"}, count=2, broker_port=10911)
    assert [(broker.port, broker.advertised_port) for broker in plan.brokers] == [(10911, 20911), (10912, 20912)]


def test_port_0_leaves_every_port_free() -> None:
    plan = plan_cluster(DATA, {"listenPort": "10911"}, count=2)
    assert [broker.port for broker in plan.brokers] == [0, 0]


def test_only_the_host_asked_for_is_bound() -> None:
    plan = plan_cluster(DATA, {"bindAddress": "0.0.0.0"}, host="127.0.0.1")
    assert (plan.name_server.host, plan.brokers[0].bind_host) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("count", [0, 27])
def test_more_brokers_than_names_are_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=f"{count} brokers"):
        plan_cluster(DATA, {}, count=count)


def test_ports_beyond_the_last_are_refused() -> None:
    with pytest.raises(ConfigError, match="65535"):
        plan_cluster(DATA, {}, count=2, broker_port=65535)


async def test_what_had_started_is_stopped_when_the_rest_cannot(tmp_path: Path) -> None:
    plan = plan_cluster(tmp_path, SMALL, count=2)
    (tmp_path / "broker-b").write_text("in the way")
    cluster = Cluster(plan)
    with pytest.raises(Exception, match="broker-b"):
        await cluster.start()
    assert cluster.brokers == []
    (tmp_path / "broker-b").unlink()
    async with Cluster(plan) as again:
        assert [broker.name for broker in again.brokers] == ["broker-a", "broker-b"]


async def test_a_restarted_broker_keeps_its_port(tmp_path: Path) -> None:
    async with Cluster(plan_cluster(tmp_path, SMALL, count=2)) as cluster:
        before = {broker.name: broker.address for broker in cluster.brokers}
        await cluster.stop_broker("broker-a")
        assert [broker.name for broker in cluster.brokers] == ["broker-b"]
        await cluster.start_broker("broker-a")
        assert {broker.name: broker.address for broker in cluster.brokers} == before


async def test_an_unknown_broker_is_refused_by_name(tmp_path: Path) -> None:
    async with Cluster(plan_cluster(tmp_path, SMALL)) as cluster:
        with pytest.raises(ConfigError, match=r"no broker 'broker-x'.*broker-a"):
            await cluster.restart_broker("broker-x")


def test_replicas_have_the_name_of_their_broker_and_folders_of_their_own() -> None:
    plan = plan_cluster(DATA, {"brokerRole": "SYNC_MASTER"}, count=2, broker_port=10911, replicas=2)
    found = [(config.name, config.broker_id, config.replication.role.value, config.port) for config in plan.brokers]
    assert found[:3] == [
        ("broker-a", 0, "SYNC_MASTER", 10911),
        ("broker-a", 1, "SLAVE", 0),
        ("broker-a", 2, "SLAVE", 0),
    ]
    assert [entry[0] for entry in found[3:]] == ["broker-b"] * 3
    folders = {config.store_root for config in plan.brokers}
    assert len(folders) == 6
    assert all(Path(folder).parent == DATA for folder in folders)
    elected = plan_cluster(DATA, {"rocketline.coordination": "etcd://127.0.0.1"}, replicas=1)
    assert {config.replication.role.value for config in elected.brokers} == {"ASYNC_MASTER"}
