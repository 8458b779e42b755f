"""Other Python producers with their servers, for `bench/producing.py --against`.

| rival | client, from PyPI | server |
| --- | --- | --- |
| official | Apache's rocketmq-python-client (gRPC) | Apache's name server; its proxy and broker in one process ("local") |
| official-cluster | the same | name server, broker and proxy, a process each (the proxy's default) |
| nats | nats-py | nats-server with JetStream, streams in files |
| redis | redis-py | redis-server, XADD to streams, append-only file, fsync once a second |

Durability is the same in all: acknowledged when the operating system has the data, flushed later. Clients are installed
in an environment of their own under build/; servers come from Maven, and from PATH (`apt-get install nats-server
redis-server`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from bench import machine, wire
from bench.sides import PATIENCE, SideFailed
from bench.stopwatch import Produced
from tests.support.apache import (
    AS_SHIPPED,
    DISK_OPTIONS,
    LOGBACK,
    MODULE_OPTIONS,
    QUICK_START,
    SERVER_VERSION,
    TETHER,
    ApacheCluster,
    free_port,
)
from tests.support.java import BUILD, classpath, compile_java, tool

CLIENTS = ("rocketmq-python-client==5.1.2", "nats-py==2.16.0", "redis==8.1.0", "uvloop==0.23.0")
PROXY = f"org.apache.rocketmq:rocketmq-proxy:{SERVER_VERSION}"
LOAD = Path(__file__).with_name("rival_load.py")
QUEUES = 8
START_TIMEOUT_S = 90.0
RUN_TIMEOUT_S = 180.0


def client_python() -> Path:
    """The interpreter of the environment that has the rivals' clients, which is created on first use."""
    folder = BUILD / "bench" / "clients"
    python, stamp = folder / "bin" / "python", folder / "stamp"
    if not stamp.exists() or stamp.read_text() != " ".join(CLIENTS):
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=120)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *CLIENTS], check=True, timeout=600)
        except (OSError, subprocess.SubprocessError) as error:
            raise SideFailed(f"the rivals' clients ({', '.join(CLIENTS)}) cannot be installed: {error}") from error
        stamp.write_text(" ".join(CLIENTS))
    return python


class Rival(ABC):
    """A server on the server core, and its client's load on the load core. Stopped while others are measured."""

    label: str
    load: str
    """The name of its client in `rival_load.py`."""
    warm_up_s = 0.0

    def __init__(self, server_core: int, load_core: int, loop: str = "asyncio") -> None:
        self._server_core, self._load_core, self._loop = server_core, load_core, loop
        self._directory = Path()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.address = ""

    @abstractmethod
    def _launch(self, directory: Path) -> None:
        """Start what is needed and set the address once it serves."""

    def create(self, topic: str) -> None:
        """Make a topic, where the load does not do so itself."""

    def stored(self, topic: str) -> int | None:
        """How many messages the server has, where the load has not asked for that itself."""
        return None

    def start(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._launch(directory)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        self._processes.clear()

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            os.kill(pid, number)

    def produce(self, case: str, run: str, seconds: float) -> Produced:
        """One run into a topic of its own; SideFailed when something failed or is missing."""
        topic = f"bench-{case}-{run}"
        self.create(topic)
        before = machine.cpu_seconds(self.pids())
        arguments = [self.load, self.address, topic, case, str(seconds), str(self._load_core), self._loop]
        environment = os.environ | {"HOME": str(self._directory)}  # Apache's client writes its log there
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            [str(client_python()), str(LOAD), *arguments],
            capture_output=True, text=True, timeout=RUN_TIMEOUT_S, env=environment,
        )  # fmt: skip
        if done.returncode != 0:
            raise SideFailed(f"{self.label} {case}: its load failed: {done.stderr[-2000:]}")
        found = Produced(*json.loads(done.stdout.splitlines()[-1]))
        broker_s = machine.cpu_seconds(self.pids()) - before
        stored = self.stored(topic)
        if stored is not None and stored < found.sent:
            raise SideFailed(f"{self.label} {case}: {found.sent} messages were acknowledged, the server has {stored}")
        return found._replace(broker_cpu_us=broker_s / found.sent * 1e6)

    def _run_server(self, name: str, command: list[str], port: int, *, tethered: bool = False) -> None:
        """Start a server that listens on the port when it serves."""
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                ["taskset", "-c", str(self._server_core), *command],
                stdin=subprocess.PIPE if tethered else subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, cwd=self._directory, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                said = (self._directory / f"{name}.log").read_text(errors="replace")[-2000:]
                raise SideFailed(f"{name} does not serve on port {port}; it said:\n{said}")
            time.sleep(0.02)


class Official(Rival):
    """The proxy in local mode: with the broker in one process, which saves a hop."""

    label = "official"
    load = "official"
    warm_up_s = 45.0
    mode = "local"

    def __init__(self, server_core: int, load_core: int, heap_mb: int = 1024, quick: bool = False) -> None:
        super().__init__(server_core, load_core)
        self._heap_mb = heap_mb
        self._jvm = QUICK_START if quick else AS_SHIPPED
        self._others: ApacheCluster | None = None
        self._broker = ""

    @property
    def _namesrv(self) -> str:
        assert self._others is not None
        return self._others.namesrv

    def _launch(self, directory: Path) -> None:
        self._start_others(directory)
        grpc_port = free_port()
        self.address = f"127.0.0.1:{grpc_port}"
        proxy_conf = {
            "rocketMQClusterName": "DefaultCluster", "namesrvAddr": self._namesrv, "proxyMode": self.mode,
            "grpcServerPort": grpc_port, "remotingListenPort": free_port(), "localServeAddr": "127.0.0.1",
            "enablePrintJstack": False,
        }  # fmt: skip
        proxy_path = directory / "proxy.json"
        proxy_path.write_text(json.dumps(proxy_conf))
        (directory / "logback.xml").write_text(LOGBACK)
        self._run_server("proxy", self._command(proxy_path), grpc_port, tethered=True)

    def _start_others(self, directory: Path) -> None:
        self._others = ApacheCluster(directory, broker=False, cpu=self._server_core, jvm_options=self._jvm).start()
        port = free_port(-2, 0, 1)
        self._broker = f"127.0.0.1:{port}"
        conf = {
            "brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0",
            "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "namesrvAddr": self._namesrv,
            "listenPort": str(port), "storePathRootDir": str(directory / "store"),
            "storePathCommitLog": str(directory / "store" / "commitlog"), **PATIENCE,
        }  # fmt: skip
        (directory / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in conf.items()))

    def _command(self, proxy_path: Path) -> list[str]:
        home = self._directory / "home"
        class_path = f"{compile_java(TETHER, '', 'tether')}:{classpath(PROXY)}"
        return [
            tool("java"), f"-Xms{self._heap_mb}m", f"-Xmx{self._heap_mb}m", *self._jvm, *MODULE_OPTIONS, *DISK_OPTIONS,
            f"-Duser.home={self._directory}", f"-Djava.io.tmpdir={home}", f"-Drocketmq.home.dir={home}",
            f"-Drmq.logback.configurationFile={self._directory / 'logback.xml'}", "-cp", class_path,
            "rocketline.support.Tethered", "org.apache.rocketmq.proxy.ProxyStartup",
            "-pm", self.mode, "-bc", str(self._directory / "broker.conf"), "-pc", str(proxy_path),
        ]  # fmt: skip

    def pids(self) -> list[int]:
        return super().pids() + (list(self._others.pids.values()) if self._others else [])

    def stop(self) -> None:
        super().stop()
        if self._others:
            self._others.kill()

    def create(self, topic: str) -> None:
        wire.create_topic(self._namesrv, self._broker, topic, QUEUES)

    def stored(self, topic: str) -> int | None:
        return wire.stored_messages(self._broker, topic, QUEUES)


class OfficialCluster(Official):
    """The proxy in its default mode: a process of its own in front of the broker."""

    label = "official-cluster"
    mode = "cluster"

    def _start_others(self, directory: Path) -> None:
        self._others = ApacheCluster(
            directory, broker_conf=PATIENCE, heap_mb=self._heap_mb, cpu=self._server_core, apache_defaults=True,
            jvm_options=self._jvm,
        ).start()  # fmt: skip
        self._broker = self._others.broker


class Nats(Rival):
    label = load = "nats"

    def _launch(self, directory: Path) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        command = [_found("nats-server"), "--addr", "127.0.0.1", "--port", str(port)]
        self._run_server("nats", [*command, "--jetstream", "--store_dir", str(directory / "store")], port)


class Redis(Rival):
    label = load = "redis"

    def _launch(self, directory: Path) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        settings = {"bind": "127.0.0.1", "port": str(port), "dir": str(directory), "save": "", "appendonly": "yes"}
        settings["appendfsync"] = "everysec"
        command = [_found("redis-server"), *(word for key, value in settings.items() for word in (f"--{key}", value))]
        self._run_server("redis", command, port)


RIVALS: dict[str, type[Rival]] = {each.label: each for each in (Official, OfficialCluster, Nats, Redis)}


def _found(program: str) -> str:
    found = shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
    if found is None:
        raise SideFailed(f"{program} is not on PATH: apt-get install {program}")
    return found


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
