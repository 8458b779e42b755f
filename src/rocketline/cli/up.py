"""`rocketline up`: a name server and its brokers in this process, ready in a moment.

Safe by default: it listens on loopback only, whatever a settings file says, until `--host` asks for more; without a data
folder it uses a temporary one and says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketline.cli.logs import LogFormat
from rocketline.cli.options import (
    ConfigFile,
    Flush,
    LogFormatOption,
    LogLevelOption,
    MetricsPort,
    Settings,
    Verbose,
    given_settings,
    metrics_settings,
)

if TYPE_CHECKING:
    from rocketline.cli.cluster import Cluster, ClusterPlan

NAMESRV_PORT = 9876
BROKER_PORT = 10911
LOOPBACK = "127.0.0.1"


def up(
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the messages; without it a temporary one.")
    ] = None,
    namesrv_port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = NAMESRV_PORT,
    broker_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of the first broker, 0: any free ones.", show_default="10911"),
    ] = None,
    brokers: Annotated[int, typer.Option(min=1, max=26, help="How many brokers.")] = 1,
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0: all.", show_default=LOOPBACK)] = None,
    flush: Annotated[
        Flush | None, typer.Option(help="sync: a send is answered when the disk has it.", show_default="async")
    ] = None,
    settings: Settings = None,
    metrics_port: MetricsPort = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.text,
    verbose: Verbose = 0,
) -> None:
    """Run a name server and brokers in one process.

    Prints one line, `ready namesrv=HOST:PORT brokers=NAME@HOST:PORT` (and `metrics=HOST:PORT`), when they serve.
    Ctrl-C or SIGTERM stops them.
    """
    from rocketline.broker.config import BrokerConfig
    from rocketline.cli.cluster import Cluster
    from rocketline.cli.config_sources import merged_values
    from rocketline.cli.logs import log_to_stderr
    from rocketline.cli.serving import run, serve

    log_to_stderr(verbose, log_level, log_format)
    flags = given_settings(BrokerConfig, settings) | metrics_settings(metrics_port)
    if flush is not None:
        flags["flushDiskType"] = flush.disk_type
    values = merged_values(BrokerConfig, config, os.environ, flags)
    with _data_folder(data, values) as folder:
        plan = _plan(folder, values, host, namesrv_port, broker_port, brokers)
        run(serve(Cluster(plan), ready_line))


def ready_line(cluster: Cluster) -> str:
    """What scripts wait for.

    >>> from types import SimpleNamespace as Some
    >>> ready_line(Some(namesrv="127.0.0.1:1", brokers=[Some(name="a", address="127.0.0.1:2", metrics_address="")]))
    'ready namesrv=127.0.0.1:1 brokers=a@127.0.0.1:2'
    """
    brokers = ",".join(f"{broker.name}@{broker.address}" for broker in cluster.brokers)
    pages = ",".join(broker.metrics_address for broker in cluster.brokers if broker.metrics_address)
    return f"ready namesrv={cluster.namesrv} brokers={brokers}" + (f" metrics={pages}" if pages else "")


def _plan(
    folder: Path,
    values: Mapping[str, str],
    host: str | None,
    namesrv_port: int,
    broker_port: int | None,
    count: int,
) -> ClusterPlan:
    from rocketline.cli.cluster import plan_cluster

    if broker_port is None:
        broker_port = int(values.get("listenPort", BROKER_PORT))
    return plan_cluster(
        folder,
        _local_only(values) if host is None else values,
        count=count,
        host=host or LOOPBACK,
        namesrv_port=namesrv_port,
        broker_port=broker_port,
    )


def _local_only(values: Mapping[str, str]) -> dict[str, str]:
    """The settings without what would open them to the network; nobody asked for that on the command line."""
    from rocketline.cli.config_sources import is_loopback, log
    from rocketline.errors import ConfigError

    local = dict(values)
    bind = local.pop("bindAddress", LOOPBACK)
    if not is_loopback(bind):
        raise ConfigError(f"bindAddress={bind} would open this to the network: if you want that, say --host {bind}")
    page = local.get("metricsPromExporterHost", "")
    if page and not is_loopback(page):
        raise ConfigError(f"metricsPromExporterHost={page} would show metrics to the network: that needs --host")
    advertised = local.pop("brokerIP1", LOOPBACK)
    if not is_loopback(advertised):
        log.warning(
            "brokerIP1=%s is ignored: nobody there can reach %s; --host opens the servers", advertised, LOOPBACK
        )
    return local


@contextmanager
def _data_folder(given: Path | None, values: Mapping[str, str]) -> Iterator[Path]:
    if given is not None or values.get("storePathRootDir"):
        folder = (given or Path(values["storePathRootDir"])).absolute()
        _check_writable(folder)
        yield folder
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="rocketline-", ignore_cleanup_errors=True) as temporary:
        print(f"no --data: messages are in {temporary}, which is removed at the end", file=sys.stderr, flush=True)
        yield Path(temporary)


def _check_writable(folder: Path) -> None:
    """Said before anything starts, so that the error names the folder and not one of the files in it."""
    from rocketline.errors import ConfigError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(EACCES, "no permission to write there")
    except OSError as error:
        raise ConfigError(f"the data folder {folder} cannot be used: {error.strerror}; choose another one") from error
