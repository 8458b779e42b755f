"""The plan of a cluster on this machine: names, folders and ports, decided before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase

import msgspec

from rocketline.auth.config import AuthConfig
from rocketline.auth.model import UserType
from rocketline.broker.config import BrokerConfig
from rocketline.cli.servers.flags import MAX_BROKERS, MAX_PORT
from rocketline.errors import ConfigError
from rocketline.metrics.config import MetricsConfig
from rocketline.nameserver.config import NameServerConfig
from rocketline.settings import load

METRICS_PORT = MetricsConfig().port
INNER_ACCOUNT = "innerClientAuthenticationCredentials"
INNER_ACCOUNT_FILE = "rocketline.innerCredentialsFile"
ADVERTISED_PORT = "rocketline.advertisedPort"


@dataclass(frozen=True)
class ClusterPlan:
    """The settings of all servers of a cluster, and the folder for their data."""

    data: Path
    name_server: NameServerConfig
    brokers: tuple[BrokerConfig, ...]


def plan_cluster(
    data: Path,
    values: Mapping[str, str],
    *,
    count: int = 1,
    host: str = "127.0.0.1",
    namesrv_port: int = 0,
    broker_port: int = 0,
    replicas: int = 0,
) -> ClusterPlan:
    """The plan for `count` brokers with the same settings (`values` by RocketMQ key).

    A single broker has `data` itself as its store, as with Apache; several are called broker-a, broker-b, ... and have a
    folder each. Their ports follow each other, and so do those that clients are told; with `broker_port` 0 each takes any
    free one. `replicas` of each broker have its name, folders of their own, and any free ports.
    """
    if not 1 <= count <= MAX_BROKERS:
        raise ConfigError(f"{count} brokers: a number from 1 to {MAX_BROKERS} is expected")
    if broker_port + count - 1 > MAX_PORT:
        raise ConfigError(f"{count} brokers do not fit behind port {broker_port}: the last port is {MAX_PORT}")
    _refuse_replica(values)
    brokers = []
    for position in range(count):
        own = _with_inner_account(values)
        if count > 1:
            own["brokerName"] = f"broker-{ascii_lowercase[position]}"
        own["bindAddress"] = host
        own["listenPort"] = str(broker_port + position if broker_port else 0)
        if advertised := int(own.get(ADVERTISED_PORT, 0)):
            own[ADVERTISED_PORT] = str(advertised + position)
        if (page := int(own.get("metricsPromExporterPort", METRICS_PORT))) and position:
            own["metricsPromExporterPort"] = str(page + position)
        name = own.get("brokerName", BrokerConfig().name)
        own["storePathRootDir"] = str(data / name if count > 1 or replicas else data)
        if count > 1 or replicas:
            own.setdefault("haListenPort", "0")  # the next port may be another broker's
        brokers.append(load(BrokerConfig, own)[0])
        brokers += [load(BrokerConfig, _replica_of(own, number))[0] for number in range(1, replicas + 1)]
    # The accounts of the first broker count for the name server too.
    name_server = NameServerConfig(
        host=host,
        port=namesrv_port,
        kv_config_path=str(data / "namesrv" / "kvConfig.json"),
        connections=brokers[0].connections,
        tls=brokers[0].tls,
        auth=replace(brokers[0].auth, path=brokers[0].auth_folder, is_follower=True),
    )
    return ClusterPlan(data, name_server, tuple(brokers))


def _refuse_replica(values: Mapping[str, str]) -> None:
    """A cluster begins with masters; a replica alone would start and take nothing."""
    number, role = values.get("brokerId", "0"), values.get("brokerRole", "ASYNC_MASTER")
    if not values.get("rocketline.coordination") and (role == "SLAVE" or number != "0"):
        wrong = "brokerRole=SLAVE" if role == "SLAVE" else f"brokerId={number}"
        raise ConfigError(
            f"{wrong} is a replica's, and a cluster begins with masters: set brokerId=0 and leave brokerRole=SLAVE out. "
            "Replicas come with `rocketline up --replicas`, or start this one with `rocketline broker`"
        )


def _replica_of(master: Mapping[str, str], number: int) -> dict[str, str]:
    """The settings of a replica beside its master. With elections all members are alike."""
    own = {key: value for key, value in master.items() if key != ADVERTISED_PORT}
    if not own.get("rocketline.coordination"):
        own |= {"brokerRole": "SLAVE", "brokerId": str(number)}
    return own | {
        "listenPort": "0",
        "metricsPromExporterPort": "0",
        "storePathRootDir": f"{master['storePathRootDir']}-replica-{number}",
        "slaveReadEnable": own.get("slaveReadEnable", "true"),
    }


def _with_inner_account(values: Mapping[str, str]) -> dict[str, str]:
    """The settings with an account for brokers, which register with a name server that asks for one: the administrator's."""
    if values.get("authenticationEnabled") != "true" or INNER_ACCOUNT in values or values.get(INNER_ACCOUNT_FILE):
        return dict(values)
    users = load(AuthConfig, values)[0].first_users()
    admin = next((user for user in users.values() if user.type is UserType.SUPER), None)
    if admin is None:
        return dict(values)
    account = {"accessKey": admin.name, "secretKey": admin.password}
    return {**values, INNER_ACCOUNT: msgspec.json.encode(account).decode()}
