"""Apache's gRPC proxy in local mode: proxy and broker in one JVM, on free loopback ports.

    with ApacheProxy(tmp_path) as proxy:
        ...  # 5.x clients use proxy.grpc, others proxy.namesrv

`ApacheCluster` says how servers are started and ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .apache import SERVER_VERSION, ApacheCluster, free_port, server_coordinates

READY = b"rocketmq-proxy startup successfully"


def proxy_coordinates(version: str) -> tuple[str, ...]:
    """The Maven coordinates of a version's name server, broker and proxy."""
    return (*server_coordinates(version), f"org.apache.rocketmq:rocketmq-proxy:{version}")


class ApacheProxy(ApacheCluster):
    """A name server, and a broker with the proxy in its process. `proxy_conf` are settings of the proxy; the others are
    those of `ApacheCluster`."""

    def __init__(
        self,
        directory: Path,
        version: str = SERVER_VERSION,
        proxy_conf: Mapping[str, str | int | bool] | None = None,
        **cluster: Any,
    ) -> None:
        super().__init__(directory, version, **cluster)
        self._proxy_conf = dict(proxy_conf or {})
        self._port = 0

    @property
    def grpc(self) -> str:
        """Where 5.x clients connect, "127.0.0.1:port"."""
        return f"127.0.0.1:{self._port}"

    @property
    def coordinates(self) -> Sequence[str]:
        return proxy_coordinates(self.version)

    def _broker_command(self, conf_path: str) -> Sequence[str]:
        self._port = self._port or free_port()
        settings = {
            "rocketMQClusterName": "DefaultCluster",
            "proxyMode": "LOCAL",
            "grpcServerPort": self._port,
            "remotingListenPort": free_port(),
            "localServeAddr": "127.0.0.1",
            **self._proxy_conf,
        }
        path = self.directory / "proxy.json"
        path.write_text(json.dumps(settings), encoding="utf-8")
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        return (main, "-pm", "local", "-bc", conf_path, "-pc", str(path), "-n", self.namesrv)

    def _ready_text(self, name: str) -> bytes:
        return READY if name == "broker" else super()._ready_text(name)
