"""`rocketline nameserver`, `rocketline broker` and `rocketline proxy`: each in a process of its own, as in production."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rocketline.cli.logs import log_server_to_stderr
from rocketline.cli.servers.config_sources import merged_values
from rocketline.cli.servers.flags import LOOPBACK, ServerFlags, common_settings
from rocketline.cli.usage import UsageProblem

if TYPE_CHECKING:
    from rocketline.cli.servers.fronts import FrontedBroker


def nameserver(common: ServerFlags, *, port: int | None) -> None:
    """Run a name server until Ctrl-C or SIGTERM."""
    from rocketline.cli.servers.serving import run, serve
    from rocketline.nameserver import NameServer, NameServerConfig
    from rocketline.settings import load

    log_server_to_stderr(common.logs)
    flags = common_settings(NameServerConfig, common) | _given(bindAddress=common.host, listenPort=port)
    values = {"bindAddress": LOOPBACK, **merged_values(NameServerConfig, common.config, os.environ, flags)}
    name_server = NameServer(load(NameServerConfig, values)[0])
    run(serve(name_server, lambda running: f"ready namesrv={running.address}{_metrics(running.metrics_address)}"))


def broker(
    common: ServerFlags,
    *,
    namesrv: str | None,
    data: Path | None,
    name: str | None,
    port: int | None,
    grpc_port: int | None,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM."""
    from rocketline.broker.config import BrokerConfig
    from rocketline.cli.servers.fronts import FrontedBroker
    from rocketline.cli.servers.serving import run, serve
    from rocketline.settings import load

    log_server_to_stderr(common.logs)
    flags = common_settings(BrokerConfig, common)
    flags |= _given(
        namesrvAddr=namesrv,
        storePathRootDir=data,
        brokerName=name,
        bindAddress=common.host,
        listenPort=port,
        grpcServerPort=grpc_port,
    )
    values = merged_values(BrokerConfig, common.config, os.environ, flags)
    if not values.get("storePathRootDir"):
        raise UsageProblem("the broker needs a folder for its messages: --data DIR, or storePathRootDir in the file")
    if not values.get("namesrvAddr"):
        raise UsageProblem("the broker needs a name server to register with: --namesrv HOST:PORT, or namesrvAddr")
    run(serve(FrontedBroker(load(BrokerConfig, values)[0]), _broker_line))


def _broker_line(running: FrontedBroker) -> str:
    grpc = f" grpc={running.grpc_address}" if running.grpc_address else ""
    return f"ready brokers={running.name}@{running.address}{grpc}{_metrics(running.metrics_address)}"


def proxy(common: ServerFlags, *, namesrv: str | None, grpc_port: int | None) -> None:
    """Serve RocketMQ 5.x clients before a cluster until Ctrl-C or SIGTERM."""
    from rocketline.cli.servers.serving import run, serve
    from rocketline.proxy.config import ProxyConfig
    from rocketline.proxy.server import Proxy
    from rocketline.settings import load

    log_server_to_stderr(common.logs)
    flags = common_settings(ProxyConfig, common)
    flags |= _given(namesrvAddr=namesrv, bindAddress=common.host, grpcServerPort=grpc_port)
    values = merged_values(ProxyConfig, common.config, os.environ, flags)
    if not values.get("namesrvAddr"):
        raise UsageProblem("the proxy needs a name server to find brokers by: --namesrv HOST:PORT, or namesrvAddr")
    server = Proxy(load(ProxyConfig, values)[0])
    run(serve(server, lambda running: f"ready grpc={running.address}{_metrics(running.metrics_address)}"))


def _metrics(address: str) -> str:
    return f" metrics={address}" if address else ""


def _given(**flags: object) -> dict[str, str]:
    return {key: str(value) for key, value in flags.items() if value is not None}
