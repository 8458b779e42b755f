"""Errors that name the cause: a wrong port, no broker, nobody at the default address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketline.cli.access import ClusterAccess
from rocketline.cli.explain import diagnosed
from rocketline.errors import ClientError, ConnectFailed, RouteNotFound
from rocketline.testing import LocalCluster

Called = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.mark.parametrize(
    "command",
    [("admin", "topicList"), ("produce", "orders", "x"), ("consume", "orders"), ("bench", "send", "--count", 1)],
)
def test_a_brokers_port_instead_of_a_name_servers(called: Called, cluster: LocalCluster, command: tuple[Any]) -> None:
    address = cluster.brokers[0].address
    result = called(*command, "--namesrv", address)
    assert result.returncode == 1
    assert f"error: {address} is the port of a broker, not of a name server" in result.stderr


def test_a_name_servers_port_instead_of_a_brokers(called: Called, cluster: LocalCluster) -> None:
    result = called("admin", "brokerStatus", "-b", cluster.namesrv, "-n", cluster.namesrv)
    assert result.returncode == 1
    assert f"error: {cluster.namesrv} is the port of a name server, not of a broker" in result.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("admin", "clusterList"), 0),
        (("admin", "topicList"), 0),
        (("admin", "groupList"), 1),
        (("admin", "topicStatus", "-t", "orders"), 1),
        (("admin", "doctor"), 1),
        (("produce", "orders", "x"), 1),
        (("consume", "orders"), 1),
        (("consume", "orders", "--group", "readers"), 1),
    ],
)
def test_a_cluster_without_brokers_says_so(called: Called, empty: str, command: tuple[Any], code: int) -> None:
    result = called(*command, "--namesrv", empty)
    assert result.returncode == code, result.stderr
    assert "no broker is registered" in (result.stderr if code and "doctor" not in command else result.stdout)


@pytest.fixture(scope="module")
def empty() -> Iterator[str]:
    """The name server of a cluster whose only broker has left."""
    with LocalCluster() as cluster:
        cluster.stop_broker("broker-a")
        yield cluster.namesrv


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("consumerProgress", "group 'nobody' is unknown"),
        ("consumerConnection", "group 'nobody' is unknown"),
        ("dlqShow", "group 'nobody' has no dead letters"),
    ],
)
def test_a_group_is_named_and_not_its_topics(called: Called, cluster: LocalCluster, verb: str, text: str) -> None:
    result = called("admin", verb, "-g", "nobody", "-n", cluster.namesrv)
    assert result.returncode == 1
    assert text in result.stderr
    assert "%" not in result.stderr


async def test_nobody_at_the_default_address_says_what_to_do() -> None:
    async def fails() -> None:
        raise RouteNotFound("no route") from ConnectFailed("cannot connect")

    with pytest.raises(ClientError, match=r"the default: give --namesrv HOST:PORT, set NAMESRV_ADDR, add a context"):
        await diagnosed(ClusterAccess("127.0.0.1:1", {}, is_default=True), fails())
