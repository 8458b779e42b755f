"""A real cluster inside a test: the servers that `rocketline up` runs, on free ports and in a temporary folder.

    with LocalCluster() as cluster:                 # its own thread and event loop: for plain and async tests alike
        print(cluster.namesrv)

    async with LocalCluster(brokers=2) as cluster:  # on the event loop of the caller; its methods are awaited
        await cluster.restart_broker("broker-a")

Store files are small, so that hundreds of clusters need little disk; everything else is as in production.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Self

import msgspec

from rocketline.broker import Broker
from rocketline.broker.config import BrokerConfig
from rocketline.cli.servers.cluster import Cluster, plan_cluster
from rocketline.errors import ConfigError
from rocketline.files import OWNER_ONLY, replace_file
from rocketline.settings import load
from rocketline.transport.tls import Tls

SMALL_FILES = {
    "mappedFileSizeCommitLog": "8388608",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
}
CALL_LIMIT_S = 60.0
CERTIFICATES = "tls"
"""Folder of certificates in that of the data."""


class LocalCluster:
    """A name server and brokers; both a context manager and an async one."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        config: Mapping[str, str | int | bool] | None = None,
        data: Path | None = None,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
        grpc: bool = False,
    ) -> None:
        """`config` holds RocketMQ settings by key; `data` is a folder to use and keep instead of a temporary one. With
        `users`, administrators by name with their passwords, all servers ask for accounts. With `tls` they take only TLS,
        with certificates made for them (the extra `certs`). With `grpc` they serve RocketMQ 5.x clients too."""
        self._broker_count = brokers
        self._values = {**SMALL_FILES, **{key: _text(value) for key, value in (config or {}).items()}}
        if grpc:
            self._values.setdefault("grpcServerPort", "0")
        self._users = users or {}
        if self._users:
            self._values["authenticationEnabled"] = "true"
        _, unknown = load(BrokerConfig, self._values, "config")
        if unknown:
            raise ConfigError(f"config: there is no setting {', '.join(unknown)}; names are RocketMQ's, case included")
        self._given_data = data
        self._has_tls = tls
        self._temporary: TemporaryDirectory[str] | None = None
        self._cluster: Cluster | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server, as clients take it."""
        return self._running.namesrv

    @property
    def brokers(self) -> list[Broker]:
        """The running brokers; each has a `name` and an `address`."""
        return self._running.brokers

    @property
    def grpc_address(self) -> str:
        """`host:port` for RocketMQ 5.x clients; "" when they are not served."""
        return self._running.grpc_address

    @property
    def data(self) -> Path:
        """The folder of all data; with one broker also its store."""
        return self._running.data

    @property
    def tls(self) -> Tls | None:
        """The TLS that clients of this cluster need; None when it is plain."""
        return Tls(ca_file=self.data / CERTIFICATES / "ca.pem") if self._has_tls else None

    def start_broker(self, name: str) -> None:
        """Start a broker that was stopped, on the port it had."""
        self._call(self._running.start_broker(name))

    def stop_broker(self, name: str) -> None:
        """Stop a broker cleanly and leave it stopped."""
        self._call(self._running.stop_broker(name))

    def restart_broker(self, name: str) -> None:
        """Stop a broker cleanly and start it again on the same port and data."""
        self._call(self._running.restart_broker(name))

    def __enter__(self) -> Self:
        self._cluster = self._planned()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=_run_loop, args=(self._loop,), name="rocketline-cluster", daemon=True)
        self._thread.start()
        try:
            self._call(self._cluster.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call(self._running.close())
        finally:
            self._end()

    async def __aenter__(self) -> Cluster:
        self._cluster = self._planned()
        try:
            await self._cluster.start()
        except BaseException:
            self._end()
            raise
        return self._cluster

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._running.close()
        finally:
            self._end()

    def _planned(self) -> Cluster:
        if self._cluster is not None:
            raise ConfigError("this cluster is running already: create one for each use")
        data = self._given_data
        if data is None:
            self._temporary = TemporaryDirectory(prefix="rocketline-test-", ignore_cleanup_errors=True)
            data = Path(self._temporary.name)
        try:
            values = (_certificates(data / CERTIFICATES) if self._has_tls else {}) | self._values
            if self._users:
                values["rocketline.initUserFile"] = str(_user_file(data, self._users))
            return Cluster(plan_cluster(data, values, count=self._broker_count))
        except BaseException:
            self._end()
            raise

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            work.close()
            raise ConfigError("inside 'async with', await the methods of the cluster that it returns")
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result(CALL_LIMIT_S)

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CALL_LIMIT_S)
        if self._temporary is not None:
            self._temporary.cleanup()
        self._cluster = self._loop = self._thread = self._temporary = None

    @property
    def _running(self) -> Cluster:
        if self._cluster is None:
            raise ConfigError("this cluster is not running: use it inside 'with' or 'async with'")
        return self._cluster


def _user_file(data: Path, users: Mapping[str, str]) -> Path:
    data.mkdir(parents=True, exist_ok=True)
    path = data / "first-users.json"
    accounts = [{"username": name, "password": password} for name, password in users.items()]
    replace_file(path, msgspec.json.encode(accounts), mode=OWNER_ONLY)
    return path


def _certificates(folder: Path) -> dict[str, str]:
    from rocketline.transport.certificates import CertificateFolder

    return CertificateFolder(folder).make_server((), days=1)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
