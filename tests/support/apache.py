"""Apache RocketMQ's own name server and broker, started from their jars on free loopback ports.

    with ApacheCluster(tmp_path) as cluster:
        ...  # clients use cluster.namesrv

Rules kept here:

* Every file a server makes (store, logs, configuration) stays inside the given directory.
* "Started" means the server said "boot success" and the name server shows the broker (it registers a moment
  later); a server that dies or stays silent raises with its log.
* No server outlives the process that started it: its standard input is a pipe, and it ends when the pipe does.
* `stop()` is the clean way (SIGTERM, up to half a minute for a broker); `kill()` is a crash.
* No pytest in here: the benchmarks use it too.
"""

from __future__ import annotations

import hmac
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.patience import PATIENCE_MS, PATIENCE_S

from .java import classpath, compile_java, tail, tool

SERVER_VERSION = "5.4.0"
NAMESRV_HEAP_MB = 128
TETHER = Path(__file__).parent / "tether"
GET_BROKER_CLUSTER_INFO = 106
UPDATE_BROKER_CONFIG = 25

# Below Linux's ephemeral range, so that no outgoing connection takes a port between our look and the bind.
PORT_RANGE = range(15_000, 31_000)

# What bin/runbroker.sh passes, so that a measured broker is the one its users run. Given a single core the
# JVM would otherwise choose the serial collector.
AS_SHIPPED = (
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
)
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

# Small files (Apache preallocates 1 GiB segments and 420 MB index files), and patience on a busy machine. An idle broker
# copies its whole timer wheel, 38 MB, at every flush of the timers: once a second that is a sixth of a core.
TEST_CONF = {
    "timerFlushIntervalMs": "10000",
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 10_000),
    "mappedFileSizeTimerLog": str(52 * 20_000),
    "maxHashSlotNum": "20000",
    "maxIndexNum": "80000",
    **{f"waitTimeMillsIn{work}Queue": str(PATIENCE_MS) for work in ("Send", "Pull", "LitePull", "Heartbeat")},
    **{f"waitTimeMillsIn{work}Queue": str(PATIENCE_MS) for work in ("Transaction", "Ack", "AdminBroker")},
    "osPageCacheBusyTimeOutMills": str(PATIENCE_MS),
    "diskMaxUsedSpaceRatio": "95",
    # Until this time is over its thread for statistics of transactions loops without a pause; by default ten seconds.
    "transactionMetricFlushInterval": "300",
}

# Memory-mapped files are released through JDK internals that Java 17 closed.
MODULE_OPTIONS = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.nio", "sun.nio.ch", "jdk.internal.ref")
)

# The tests' disks may be fuller than a broker's should be; by default it refuses messages above 90 %.
DISK_OPTIONS = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.98",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.97",
)

LOGBACK = """<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="STDOUT"/></root>
</configuration>
"""


LOGBACK_NAMES = ("logback_broker.xml", "logback_namesrv.xml")  # 4.x insists on these two names


def server_coordinates(version: str) -> tuple[str, str]:
    """The Maven coordinates of a version's name server and broker."""
    group = "org.apache.rocketmq"
    return f"{group}:rocketmq-namesrv:{version}", f"{group}:rocketmq-broker:{version}"


class ApacheFailed(RuntimeError):
    """An Apache server did not start, or did not stop."""


class ApacheCluster:
    """A name server, a broker, or both; see the module's docstring.

    `store` opens an existing store directory in place (default: `directory/store`); the file sizes in
    `broker_conf` must be those it was written with. `broker_conf` adds to or overrides TEST_CONF; with
    `apache_defaults=True` TEST_CONF is left out. `cpu` pins both servers to a core. `account` is the access key and
    secret key of one who may change the broker's settings, where it asks for that.
    """

    def __init__(
        self,
        directory: Path,
        version: str = SERVER_VERSION,
        broker_conf: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        cpu: int | None = None,
        namesrv: bool = True,
        namesrv_addr: str | None = None,
        *,
        broker: bool = True,
        store: Path | None = None,
        apache_defaults: bool = False,
        jvm_options: Sequence[str] = AS_SHIPPED,
        account: tuple[str, str] | None = None,
    ) -> None:
        if namesrv == (namesrv_addr is not None):
            raise ValueError("give either namesrv=True or the namesrv_addr of a running name server")
        self.directory = directory.resolve()
        self.version = version
        self.heap_mb = heap_mb
        self.cpu = cpu
        self.store = (store or self.directory / "store").resolve()
        self.broker_name = "broker-a"
        self.jvm_options = tuple(jvm_options)
        self.account = account
        self._broker_conf = {} if apache_defaults else dict(TEST_CONF)
        self._broker_conf.update(broker_conf or {})
        self._starts_namesrv = namesrv
        self._starts_broker = broker
        self._namesrv_addr = namesrv_addr
        self._broker_addr: str | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def namesrv(self) -> str:
        """The name server's "127.0.0.1:port"."""
        if self._namesrv_addr is None:
            raise ApacheFailed("the name server has not been started")
        return self._namesrv_addr

    @property
    def broker(self) -> str:
        """The broker's "127.0.0.1:port"."""
        if self._broker_addr is None:
            raise ApacheFailed("the broker has not been started")
        return self._broker_addr

    @property
    def brokers(self) -> list[str]:
        return [self._broker_addr] if self._broker_addr is not None else []

    @property
    def coordinates(self) -> Sequence[str]:
        """The Maven coordinates of the jars that all servers run from."""
        return server_coordinates(self.version)

    @property
    def pids(self) -> dict[str, int]:
        """The running servers' process ids, by "namesrv" and "broker"."""
        return {name: process.pid for name, process in self._processes.items()}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start what was asked for and wait until it serves."""
        with ExitStack() as undo:
            undo.callback(self.kill)
            self._write_home()
            if self._starts_namesrv:
                self._start_namesrv()
            if self._starts_broker:
                self._start_broker()
            undo.pop_all()
        return self

    def stop(self) -> None:
        """SIGTERM and wait: the broker first, so that it can unregister. Stopping twice does nothing."""
        with ExitStack() as undo:
            undo.callback(self.kill)
            for name in ("broker", "namesrv"):
                process = self._processes.get(name)
                if process is None:
                    continue
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired as error:
                    raise self._failure(name, f"did not stop within {PATIENCE_S:.0f} s") from error
                self._forget(name)
            undo.pop_all()

    def kill(self) -> None:
        """SIGKILL: what a crash leaves behind."""
        for process in self._processes.values():
            process.kill()
        for name in list(self._processes):
            self._forget(name)

    def log_tail(self, name: str, lines: int = 40) -> str:
        """The end of what "namesrv" or "broker" printed."""
        try:
            return tail(self._log_path(name).read_text(encoding="utf-8", errors="replace"), lines)
        except FileNotFoundError:
            return "(no output)"

    def _forget(self, name: str) -> None:
        process = self._processes.pop(name)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def _start_namesrv(self) -> None:
        port = free_port()
        conf = {"listenPort": str(port), "bindAddress": "127.0.0.1"}
        command = ("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", self._write_conf("namesrv", conf))
        self._launch("namesrv", command, NAMESRV_HEAP_MB)
        self._namesrv_addr = f"127.0.0.1:{port}"

    def _start_broker(self) -> None:
        # The broker also listens on port - 2 ("VIP") and port + 1 (replication).
        port = free_port(-2, 0, 1)
        conf = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": self.broker_name,
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "namesrvAddr": self.namesrv,
            "listenPort": str(port),
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            **self._broker_conf,
        }
        self.broker_name = conf["brokerName"]
        self.store.mkdir(parents=True, exist_ok=True)
        self._launch("broker", self._broker_command(self._write_conf("broker", conf)), self.heap_mb)
        self._broker_addr = f"127.0.0.1:{conf['listenPort']}"
        self._await("broker", "did not register", self._is_registered)

    def _broker_command(self, conf_path: str) -> Sequence[str]:
        """The main class of the broker's process, and its arguments."""
        return ("org.apache.rocketmq.broker.BrokerStartup", "-c", conf_path)

    def _write_conf(self, name: str, conf: Mapping[str, str]) -> str:
        path = self.directory / f"{name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in conf.items()), encoding="utf-8")
        return str(path)

    def _launch(self, name: str, main: Sequence[str], heap_mb: int) -> None:
        command = [*self._pinning(), tool("java"), f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", *self.jvm_options]
        command += [*MODULE_OPTIONS, *DISK_OPTIONS]
        command += [f"-Duser.home={self.directory}", f"-Djava.io.tmpdir={self._home}", "-XX:-UsePerfData"]
        command += [f"-Drocketmq.home.dir={self._home}"]
        command += [f"-Drmq.logback.configurationFile={self._home}/conf/logback_broker.xml"]
        class_path = f"{compile_java(TETHER, '', 'tether')}:{classpath(*self.coordinates)}"
        command += ["-cp", class_path, "rocketline.support.Tethered", *main]
        hidden = ("ROCKETMQ_HOME", "NAMESRV_ADDR")
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        with self._log_path(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal is for the tests; they stop us in order
            )
        log_path = self._log_path(name)
        said = self._ready_text(name)
        self._await(name, f"did not say '{said.decode()}'", lambda: said in log_path.read_bytes())

    def _ready_text(self, name: str) -> bytes:
        return b"boot success"

    def _is_registered(self) -> bool:
        """A 5.x broker may start before its client has found the name server usable, and then registers only
        ten seconds later; a change of its permission makes it register at once."""
        name_server = self.namesrv.split(";")[0]
        if f'"{self.broker}"'.encode() in request(name_server, GET_BROKER_CLUSTER_INFO):
            return True
        request(self.broker, UPDATE_BROKER_CONFIG, b"brokerPermission=6\n", self.account)
        return False

    def _await(self, name: str, complaint: str, done: Callable[[], bool]) -> None:
        process = self._processes[name]
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if process.poll() is not None:
                raise self._failure(name, f"ended with exit code {process.returncode} before it served")
            if time.monotonic() > deadline:
                raise self._failure(name, f"{complaint} within {PATIENCE_S:.0f} s")
            time.sleep(0.02)

    def _failure(self, name: str, what: str) -> ApacheFailed:
        log = self._log_path(name)
        return ApacheFailed(f"Apache {name} {self.version} {what}; {log} ends:\n{self.log_tail(name)}")

    def _write_home(self) -> None:
        conf = self._home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in LOGBACK_NAMES:
            (conf / name).write_text(LOGBACK, encoding="utf-8")

    def _pinning(self) -> list[str]:
        if self.cpu is None:
            return []
        taskset = shutil.which("taskset")
        if taskset is None:
            raise ApacheFailed("cpu= needs the taskset tool (util-linux)")
        return [taskset, "-c", str(self.cpu)]

    @property
    def _home(self) -> Path:
        return self.directory / "home"

    def _log_path(self, name: str) -> Path:
        return self.directory / f"{name}.log"


def request(address: str, code: int, body: bytes = b"", account: tuple[str, str] | None = None) -> bytes:
    """One remoting request without header fields but those of an account; the whole reply frame, or nothing if there is
    none."""
    host, _, port = address.rpartition(":")
    fields = b""
    if account is not None:
        access_key, secret_key = (part.encode() for part in account)
        signature = b64encode(hmac.digest(secret_key, access_key + body, "sha1"))
        fields = b'"extFields":{"AccessKey":"%s","Signature":"%s"},' % (access_key, signature)
    header = b'{"code":%d,%b"flag":0,"language":"PYTHON","opaque":1,"version":0}' % (code, fields)
    sizes = struct.pack(">II", 4 + len(header) + len(body), len(header))
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            connection.sendall(sizes + header + body)
            with connection.makefile("rb") as reader:
                (size,) = struct.unpack(">I", reader.read(4))
                return reader.read(size)
    except (OSError, struct.error):
        return b""


def free_port(*offsets: int) -> int:
    """A loopback port P for which P + offset can be bound too, for each of the offsets."""
    for port in random.sample(PORT_RANGE, 200):
        if all(_can_bind(port + offset) for offset in offsets or (0,)):
            return port
    raise ApacheFailed(f"no free port in {PORT_RANGE}")


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # the replication port is bound on every interface
        except OSError:
            return False
        return True
