"""The servers that are compared, behind one interface.

A side is a name server and a broker on the server core. While the other side is measured it is stopped with SIGSTOP:
it then uses no CPU, and its timers and garbage collection have no effect on the figures of the other.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench import machine, wire
from tests.support.apache import AS_SHIPPED, QUICK_START, ApacheCluster, ApacheFailed

APACHE_VERSION = "5.4.0"
READY_LINE = re.compile(
    r"^ready namesrv=(?P<namesrv>\S+:\d+) brokers=(?P<name>[^@\s]+)@(?P<broker>[^,\s]+:\d+).*\n", re.MULTILINE
)
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
PATIENCE = {"waitTimeMillsInSendQueue": "10000", "osPageCacheBusyTimeOutMills": "10000"}
FIRST_TOPIC = "bench-start"
ACCOUNTS = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": f'{{"username":"{wire.ACCOUNT}","password":"{wire.SECRET}"}}',
}
_AUTH = "org.apache.rocketmq.auth"
APACHE_ACCOUNTS = ACCOUNTS | {
    "authorizationEnabled": "true",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{wire.ACCOUNT}","secretKey":"{wire.SECRET}"}}',
}


class SideFailed(RuntimeError):
    """A server under test did not start, or died."""


@dataclass(frozen=True)
class StartTimes:
    """Seconds from the start of the first process until the ready line, and until the first acknowledged message."""

    ready_s: float
    first_ack_s: float


class Side(ABC):
    """A server under test. `label` names it in tables; addresses are valid between start and stop.

    `accounts`: it asks for accounts, and loads are signed.
    """

    def __init__(self, label: str, accounts: bool = False) -> None:
        self.label = label
        self.accounts = accounts
        self.namesrv = self.broker = self.broker_name = ""
        self.directory = Path()

    def start(self, directory: Path) -> StartTimes:
        """Start on a fresh directory and prove that it stores a message."""
        directory.mkdir(parents=True)
        self.directory = directory
        times = self.start_again()
        if self.accounts:
            wire.create_sender(self.broker)
        return times

    def launch(self, directory: Path) -> None:
        """Start on a fresh directory; whether it takes messages is not asked."""
        directory.mkdir(parents=True)
        self.directory = directory
        self._launch(directory)

    def start_again(self) -> StartTimes:
        """Start again on the existing directory."""
        began = time.monotonic()
        self._launch(self.directory)
        ready = time.monotonic()
        while True:
            try:
                wire.send_one(self.broker, self.broker_name, FIRST_TOPIC)
                break
            except wire.WireError as error:
                if time.monotonic() - began > READY_TIMEOUT_S:
                    raise SideFailed(f"{self.label} acknowledged nothing for {READY_TIMEOUT_S} s: {error}") from error
            time.sleep(0.002)
        return StartTimes(ready - began, time.monotonic() - began)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            os.kill(pid, number)

    @abstractmethod
    def pids(self) -> list[int]:
        """Every process of the side, name server included."""

    @abstractmethod
    def stop(self) -> None:
        """End its processes, frozen or not."""

    @abstractmethod
    def crash(self) -> None:
        """End its processes with SIGKILL; the directory stays as it is."""

    @abstractmethod
    def _launch(self, directory: Path) -> None:
        """Start the processes and set the addresses when they serve."""


class ApacheSide(Side):
    """Apache's servers with the flags they ship with, G1 among them (one core would give the serial collector).

    By default its broker refuses a send that waited 200 ms in its queue. A stall caused by a neighbour would then void the
    run, so it is set to wait longer, like ours. `quick` makes it start faster (small files, no optimising compiler): for a
    smoke run, not for figures.
    """

    cluster_class: type[ApacheCluster] = ApacheCluster

    def __init__(
        self,
        label: str,
        core: int,
        heap_mb: int,
        quick: bool = False,
        settings: Mapping[str, str] | None = None,
        accounts: bool = False,
    ) -> None:
        super().__init__(label, accounts)
        self._settings = dict(settings or {}) | (APACHE_ACCOUNTS if accounts else {})
        self._core = core
        self._heap_mb = heap_mb
        self._quick = quick
        self._cluster: ApacheCluster | None = None

    def _launch(self, directory: Path) -> None:
        self._cluster = self.cluster_class(
            directory,
            version=APACHE_VERSION,
            broker_conf=PATIENCE | self._settings,
            heap_mb=self._heap_mb,
            cpu=self._core,
            apache_defaults=not self._quick,
            jvm_options=QUICK_START if self._quick else AS_SHIPPED,
            account=(wire.ACCOUNT, wire.SECRET) if self.accounts else None,
        )
        try:
            self._cluster.start()
        except ApacheFailed as error:
            raise SideFailed(str(error)) from error
        self.namesrv, self.broker = self._cluster.namesrv, self._cluster.broker
        self.broker_name = self._cluster.broker_name

    def pids(self) -> list[int]:
        return list(self._cluster.pids.values()) if self._cluster else []

    def stop(self) -> None:
        # A clean stop takes Apache's broker half a minute, and its files are thrown away next.
        self.crash()

    def crash(self) -> None:
        if self._cluster:
            self._cluster.kill()
            self._cluster = None


def _as_installed(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without PYTHONDONTWRITEBYTECODE: with it, a start would compile every module again, which does not
    happen to an installed package."""
    return {name: value for name, value in environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class CommandSide(Side):
    """A server started by a command that prints `ready namesrv=HOST:PORT brokers=NAME@HOST:PORT`.

    `{data}` in the command becomes the data directory, `{flush}` the word async or sync. SIGTERM must end it with exit
    code 0, within `stop_s`.
    """

    def __init__(
        self,
        label: str,
        core: int,
        command: str,
        stop_s: float = STOP_TIMEOUT_S,
        flush: str = "async",
        accounts: bool = False,
    ) -> None:
        super().__init__(label, accounts)
        self._stop_s = stop_s
        self._core = core
        self._command = command.replace("{flush}", flush)
        if accounts:
            self._command += "".join(f" --set {shlex.quote(f'{key}={value}')}" for key, value in ACCOUNTS.items())
        self._process: subprocess.Popen[bytes] | None = None

    def _launch(self, directory: Path) -> None:
        words = [word.replace("{data}", str(directory / "data")) for word in shlex.split(self._command)]
        taskset = shutil.which("taskset")
        if taskset is None:
            raise SideFailed("the taskset tool (util-linux) is needed to pin servers to a core")
        # Files and not pipes: nobody reads a pipe during a run.
        out_path, log_path = directory / "server.out", directory / "server.log"
        with out_path.open("wb") as out, log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [taskset, "-c", str(self._core), *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
                env=_as_installed(os.environ),
            )
        said = self._await_ready(self._process, out_path, log_path)
        self.namesrv, self.broker, self.broker_name = said["namesrv"], said["broker"], said["name"]

    def _await_ready(self, process: subprocess.Popen[bytes], out_path: Path, log_path: Path) -> dict[str, str]:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            found = READY_LINE.search(out_path.read_text(errors="replace"))
            if found:
                return found.groupdict()
            time.sleep(0.001)
        what = f"printed no ready line within {READY_TIMEOUT_S:.0f} s"
        if process.returncode is not None:
            what = f"ended with exit code {process.returncode} before it was ready"
        said = (out_path.read_text(errors="replace") + log_path.read_text(errors="replace"))[-2000:]
        raise SideFailed(f"{self.label} {what} ({self._command}); it said:\n{said}")

    def pids(self) -> list[int]:
        return machine.process_tree(self._process.pid) if self._process else []

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGCONT):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        try:
            code = process.wait(self._stop_s)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise SideFailed(f"{self.label} did not stop within {self._stop_s:.0f} s of SIGTERM") from error
        if code != 0:
            raise SideFailed(f"{self.label} ended with exit code {code} upon SIGTERM")

    def crash(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
