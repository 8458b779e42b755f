"""`rocketline nameserver` and `rocketline broker`: each alone in its process, as in a real installation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rocketline.cli.logs import LogFormat
from rocketline.cli.options import (
    ConfigFile,
    LogFormatOption,
    LogLevelOption,
    MetricsPort,
    Port,
    Settings,
    UsageError,
    Verbose,
    given_settings,
    metrics_settings,
)

LOOPBACK = "127.0.0.1"


def nameserver(
    host: Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0: all.", show_default=LOOPBACK)] = None,
    port: Port = None,
    config: ConfigFile = None,
    settings: Settings = None,
    metrics_port: MetricsPort = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.text,
    verbose: Verbose = 0,
) -> None:
    """Run a name server until Ctrl-C or SIGTERM."""
    from rocketline.cli.config_sources import merged_values
    from rocketline.cli.logs import log_to_stderr
    from rocketline.cli.serving import run, serve
    from rocketline.nameserver import NameServer, NameServerConfig
    from rocketline.settings import load

    log_to_stderr(verbose, log_level, log_format)
    flags = given_settings(NameServerConfig, settings)
    flags |= _given(bindAddress=host, listenPort=port) | metrics_settings(metrics_port)
    values = {"bindAddress": LOOPBACK, **merged_values(NameServerConfig, config, os.environ, flags)}
    name_server = NameServer(load(NameServerConfig, values)[0])
    run(serve(name_server, lambda running: f"ready namesrv={running.address}{_metrics(running.metrics_address)}"))


def broker(
    config: ConfigFile = None,
    namesrv: Annotated[
        str | None, typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, separated by `;`.")
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the messages.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the broker.", show_default="broker-a")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0: all.", show_default=LOOPBACK)] = None,
    port: Port = None,
    settings: Settings = None,
    metrics_port: MetricsPort = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.text,
    verbose: Verbose = 0,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    Flags win over the environment (ROCKETLINE_FLUSH_DISK_TYPE for flushDiskType, and so on; NAMESRV_ADDR), the
    environment over the file.
    """
    from rocketline.broker import Broker
    from rocketline.broker.config import BrokerConfig
    from rocketline.cli.config_sources import merged_values
    from rocketline.cli.logs import log_to_stderr
    from rocketline.cli.serving import run, serve
    from rocketline.settings import load

    log_to_stderr(verbose, log_level, log_format)
    flags = given_settings(BrokerConfig, settings)
    flags |= _given(namesrvAddr=namesrv, storePathRootDir=data, brokerName=name, bindAddress=host, listenPort=port)
    flags |= metrics_settings(metrics_port)
    values = merged_values(BrokerConfig, config, os.environ, flags)
    if not values.get("storePathRootDir"):
        raise UsageError("the broker needs a folder for its messages: --data DIR, or storePathRootDir in the file")
    if not values.get("namesrvAddr"):
        raise UsageError("the broker needs a name server to register with: --namesrv HOST:PORT, or namesrvAddr")
    server = Broker(load(BrokerConfig, values)[0])
    run(
        serve(
            server,
            lambda running: f"ready brokers={running.name}@{running.address}{_metrics(running.metrics_address)}",
        )
    )


def _metrics(address: str) -> str:
    return f" metrics={address}" if address else ""


def _given(**flags: object) -> dict[str, str]:
    return {key: str(value) for key, value in flags.items() if value is not None}
