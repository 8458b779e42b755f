"""Settings of the front in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rocketline.auth.config import AuthConfig
from rocketline.broker.grpc_config import GrpcConfig
from rocketline.metrics.config import MetricsConfig
from rocketline.settings import section, setting
from rocketline.system.sockets import is_loopback
from rocketline.transport.server_config import ConnectionsConfig, TlsConfig

PORT = 8081
"""Where it listens unless told otherwise, as RocketMQ's proxy."""


@dataclass(frozen=True)
class ProxyConfig:
    """All settings of a front in a process of its own."""

    IGNORED: ClassVar[Mapping[str, str]] = {
        "rocketline.adminFrom": "A proxy takes no operators' requests.",
        "rocketline.auth.readOnly": "A proxy never changes accounts.",
        "enableRemotingMetrics": "A proxy counts calls; how long requests take is measured by the brokers.",
        "rocketline.slowRequestMs": "Slow requests are logged by the brokers.",
        "metricsOtelCardinalityLimit": "No metric of a proxy has a series for each topic or group.",
        "rocketMQClusterName": "The name servers say which brokers there are; for metrics it is proxyClusterName.",
        "proxyMode": "A proxy is always before a cluster; a broker has the front in its process by grpcServerPort.",
        "remotingListenPort": "A proxy serves gRPC; clients that speak remoting go to the brokers.",
    }
    """Keys that servers share and that change nothing here, with the reason."""

    host: str = setting("127.0.0.1", "bindAddress", "Address to listen on; loopback unless told otherwise.")
    namesrv: str = setting("", "namesrvAddr", "Name servers of the cluster, `host:port` separated by `;`.")
    cluster: str = setting("DefaultCluster", "proxyClusterName", "Name of the proxies of a cluster, for metrics.")
    name: str = setting("rocketline-proxy", "proxyName", "Name of this one, for metrics.")
    max_message_bytes: int = setting(
        4 * 1024 * 1024,
        "maxMessageSize",
        "Longest body of a message; that of the cluster's brokers is to be no smaller.",
    )
    grpc: GrpcConfig = section(GrpcConfig)
    auth: AuthConfig = section(AuthConfig)
    metrics: MetricsConfig = section(MetricsConfig)
    connections: ConnectionsConfig = section(ConnectionsConfig)
    tls: TlsConfig = section(TlsConfig)

    @property
    def is_open(self) -> bool:
        """Whether other machines are served, and no accounts asked for."""
        return not (self.auth.enabled or is_loopback(self.host))

    @property
    def name_servers(self) -> list[str]:
        return [address for item in self.namesrv.split(";") if (address := item.strip())]
