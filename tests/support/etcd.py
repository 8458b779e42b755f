"""Real etcd servers for tests: one or three processes on loopback, each in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S


class EtcdUnavailable(RuntimeError):
    """There is no etcd on this machine."""


def need_etcd() -> None:
    """Skip the test on a machine without etcd; in CI fail."""
    if shutil.which("etcd") is None:
        problem = "etcd is not on PATH: tools/ensure-etcd installs it"
        if os.environ.get("CI") == "true":
            raise EtcdUnavailable(problem)
        pytest.skip(problem)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


class EtcdServer:
    """One etcd process."""

    def __init__(self, name: str, folder: Path, ports: tuple[int, int], peers: str, *extra: str) -> None:
        self.name, self.folder = name, folder
        self.port, self._peer_port = ports
        self._peers = peers
        self._extra = extra
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        scheme = "https" if "--cert-file" in self._extra else "http"
        peer = f"http://127.0.0.1:{self._peer_port}"
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "etcd", "--name", self.name, "--data-dir", str(self.folder / "data"),
                    "--listen-client-urls", f"{scheme}://{self.address}", "--advertise-client-urls", f"{scheme}://{self.address}",
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                    "--initial-cluster", self._peers, "--log-level", "error", *self._extra,
                ],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class EtcdServers:
    """A group of one or three; a context manager. `extra` are more arguments of the program."""

    def __init__(self, folder: Path, count: int = 1, *extra: str) -> None:
        ports = free_ports(2 * count)
        pairs = list(zip(ports[:count], ports[count:]))
        peers = ",".join(f"e{number}=http://127.0.0.1:{peer}" for number, (_, peer) in enumerate(pairs))
        self.servers = [
            EtcdServer(f"e{number}", folder / f"e{number}", pair, peers, *extra) for number, pair in enumerate(pairs)
        ]
        self._is_secured = "--cert-file" in extra

    @property
    def url(self) -> str:
        scheme = "etcds" if self._is_secured else "etcd"
        return f"{scheme}://" + ",".join(server.address for server in self.servers)

    def __enter__(self) -> EtcdServers:
        for server in self.servers:
            server.start()
        if not self._is_secured:
            self.wait_healthy()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()

    def wait_healthy(self) -> None:
        """Until each has a leader."""
        limit = time.monotonic() + PATIENCE_S
        for server in self.servers:
            while not _is_healthy(server.address):
                assert time.monotonic() < limit, (server.folder / "log").read_text()
                time.sleep(0.02)

    @property
    def leader(self) -> EtcdServer:
        statuses = {server.name: _ask(server.address, "/v3/maintenance/status") for server in self.servers}
        return next(
            server
            for server in self.servers
            if statuses[server.name]["header"]["member_id"] == statuses[server.name]["leader"]
        )


def _is_healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/health", timeout=2) as answer:
            return bool(json.load(answer)["health"] == "true")
    except (OSError, ValueError):
        return False


def _ask(address: str, path: str) -> dict[str, Any]:
    request = urllib.request.Request(f"http://{address}{path}", data=b"{}", method="POST")
    with urllib.request.urlopen(request, timeout=5) as answer:
        found: dict[str, Any] = json.load(answer)
        return found
