"""`rocketline up`: a name server and its brokers, in this process or in a process each.

Safe by default: it listens on loopback only, whatever a settings file says, unless `--host` is given. Without a data folder
it uses a temporary one and says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from errno import EACCES
from pathlib import Path
from typing import Protocol

from rocketline.broker.config import BrokerConfig
from rocketline.cli.logs import LoggingOptions, log_server_to_stderr
from rocketline.cli.servers.config_sources import log, merged_values
from rocketline.cli.servers.flags import BROKER_PORT, LOOPBACK, FlushMode, ServerFlags, common_settings
from rocketline.cli.servers.plan import ADVERTISED_PORT, ClusterPlan, plan_cluster
from rocketline.errors import ConfigError
from rocketline.system.files import private_folder
from rocketline.system.sockets import is_loopback


def up(
    common: ServerFlags,
    *,
    data: Path | None,
    namesrv_port: int,
    broker_port: int | None,
    brokers: int,
    replicas: int,
    secure: bool,
    processes: bool,
    flush: FlushMode | None,
    grpc_port: int | None,
    console: bool,
    console_port: int,
) -> None:
    """Run a name server and brokers until Ctrl-C or SIGTERM."""
    log_server_to_stderr(common.logs)
    flags = common_settings(BrokerConfig, common)
    if flush is not None:
        flags["flushDiskType"] = flush.disk_type
    if grpc_port is not None:
        flags["grpcServerPort"] = str(grpc_port)
    values = merged_values(BrokerConfig, common.config, os.environ, flags)
    with _data_folder(data, values, is_private=secure or values.get("authenticationEnabled") == "true") as folder:
        ready: ReadyLine = ready_line
        if secure:
            values, ready = _secured(folder, values, common.host)
        plan = _plan(folder, values, common.host, namesrv_port, broker_port, brokers, replicas)
        if replicas:
            engine = (
                values.get("rocketline.coordination") or "nobody, roles are fixed (rocketline.coordination is not set)"
            )
            print(
                f"{replicas} replicas of each broker; who decides which one leads: {engine}",
                file=sys.stderr,
                flush=True,
            )
        beside = _console(console_port, folder if secure else None) if console else nothing_beside
        if processes or replicas:
            _run_processes(plan, ready, common.logs, beside)
        else:
            _run_here(plan, ready, beside)


def _secured(folder: Path, values: Mapping[str, str], host: str | None) -> tuple[dict[str, str], ReadyLine]:
    """The settings with accounts and TLS, and a ready line that shows how to get in."""
    from rocketline.broker.address import own_host
    from rocketline.cli.servers.secure import secured

    bind = host or values.get("bindAddress", LOOPBACK)
    account = secured(folder, filter(None, (host, values.get("bindAddress"), values.get("brokerIP1"), own_host(bind))))
    return {
        **values,
        **account.settings,
    }, lambda cluster: f"{ready_line(cluster)}\n{account.introduction(cluster.namesrv)}"


def _run_here(plan: ClusterPlan, ready: ReadyLine, beside: Beside) -> None:
    from rocketline.cli.servers.cluster import Cluster
    from rocketline.cli.servers.serving import forever, run, serve

    async def until(cluster: Cluster) -> None:
        async with beside(cluster.namesrv):
            await forever(cluster)

    run(serve(Cluster(plan), ready, until))


def _run_processes(plan: ClusterPlan, ready: ReadyLine, logs: LoggingOptions, beside: Beside) -> None:
    from rocketline.cli.servers.processes import ProcessCluster
    from rocketline.cli.servers.serving import run, serve

    async def until(cluster: ProcessCluster) -> None:
        async with beside(cluster.namesrv):
            await cluster.watch()

    run(serve(ProcessCluster(plan, logs), ready, until))


Beside = Callable[[str], AbstractAsyncContextManager[object]]
"""What runs with a cluster, from the address of its name server."""


def nothing_beside(_: str) -> AbstractAsyncContextManager[object]:
    return nullcontext()


def _console(port: int, secured_folder: Path | None) -> Beside:
    from rocketline.cli.servers.console_process import console_process

    contexts = None
    if secured_folder is not None:
        from rocketline.cli.servers.secure import CONTEXT_FILE

        contexts = secured_folder / CONTEXT_FILE
    return lambda namesrv: console_process(namesrv, port, contexts)


class RunningBroker(Protocol):
    """A broker as the ready line shows it."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def metrics_address(self) -> str: ...


class RunningCluster(Protocol):
    """A cluster as the ready line shows it."""

    @property
    def namesrv(self) -> str: ...

    @property
    def brokers(self) -> Sequence[RunningBroker]: ...

    @property
    def grpc_address(self) -> str: ...


ReadyLine = Callable[[RunningCluster], str]


def ready_line(cluster: RunningCluster) -> str:
    """The line that scripts wait for.

    >>> from types import SimpleNamespace as Some
    >>> brokers = [Some(name="a", address="127.0.0.1:2", metrics_address="")]
    >>> ready_line(Some(namesrv="127.0.0.1:1", brokers=brokers, grpc_address="127.0.0.1:3"))
    'ready namesrv=127.0.0.1:1 brokers=a@127.0.0.1:2 grpc=127.0.0.1:3'
    """
    brokers = ",".join(f"{broker.name}@{broker.address}" for broker in cluster.brokers)
    pages = ",".join(broker.metrics_address for broker in cluster.brokers if broker.metrics_address)
    grpc = f" grpc={cluster.grpc_address}" if cluster.grpc_address else ""
    return f"ready namesrv={cluster.namesrv} brokers={brokers}{grpc}" + (f" metrics={pages}" if pages else "")


def _plan(
    folder: Path,
    values: Mapping[str, str],
    host: str | None,
    namesrv_port: int,
    broker_port: int | None,
    count: int,
    replicas: int,
) -> ClusterPlan:
    if broker_port is None:
        broker_port = int(values.get("listenPort", BROKER_PORT))
    return plan_cluster(
        folder,
        _local_only(values) if host is None else values,
        count=count,
        host=host or LOOPBACK,
        namesrv_port=namesrv_port,
        broker_port=broker_port,
        replicas=replicas,
    )


def _local_only(values: Mapping[str, str]) -> dict[str, str]:
    """The settings without those that open servers to the network; ConfigError for one that asks for it explicitly."""
    local = dict(values)
    bind = local.pop("bindAddress", LOOPBACK)
    if not is_loopback(bind):
        raise ConfigError(f"bindAddress={bind} would open this to the network: if you want that, say --host {bind}")
    page = local.get("metricsPromExporterHost", "")
    if page and not is_loopback(page):
        raise ConfigError(f"metricsPromExporterHost={page} would show metrics to the network: that needs --host")
    for key in ("brokerIP1", ADVERTISED_PORT):
        told = local.pop(key, "")
        if told and not is_loopback(told):
            log.warning("%s=%s is ignored: only this machine reaches %s; --host opens the servers", key, told, LOOPBACK)
    return local


@contextmanager
def _data_folder(given: Path | None, values: Mapping[str, str], *, is_private: bool) -> Iterator[Path]:
    if given is not None or values.get("storePathRootDir"):
        folder = (given or Path(values["storePathRootDir"])).absolute()
        _check_writable(folder, is_private=is_private)
        yield folder
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="rocketline-", ignore_cleanup_errors=True) as temporary:
        print(f"no --data: messages are in {temporary}, which is removed at the end", file=sys.stderr, flush=True)
        yield Path(temporary)


def _check_writable(folder: Path, *, is_private: bool) -> None:
    """Checked before anything starts, so that the error names the folder and not one of the files in it."""
    try:
        if is_private:
            private_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(EACCES, "no permission to write there")
    except OSError as error:
        raise ConfigError(f"the data folder {folder} cannot be used: {error.strerror}; choose another one") from error
