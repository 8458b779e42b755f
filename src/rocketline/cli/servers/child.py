"""`rocketline up` as a child process: for the demonstration, and for tests that need a real server process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Self

from rocketline.errors import ConfigError
from rocketline.system.processes import memory_of

READY = re.compile(r"ready namesrv=(?P<namesrv>\S+) brokers=(?P<brokers>\S+)( grpc=(?P<grpc>\S+))?( metrics=\S+)?\n")
START_LIMIT_S = 30.0
STOP_LIMIT_S = 30.0


class ChildCluster:
    """A name server and brokers in a process of their own, on free ports; a context manager.

    >>> with ChildCluster() as cluster:  # doctest: +SKIP
    ...     print(cluster.namesrv, cluster.start_s, cluster.memory_bytes)
    """

    def __init__(self, arguments: Iterable[str] = (), *, ports: tuple[int, int] = (0, 0)) -> None:
        self._arguments = ["--namesrv-port", str(ports[0]), "--broker-port", str(ports[1]), *arguments]
        self._process: subprocess.Popen[str] | None = None
        self._stderr: list[str] = []
        self.namesrv = ""
        self.brokers: dict[str, str] = {}
        """Addresses by broker name."""
        self.grpc = ""
        """Address for gRPC clients, if they are served."""
        self.start_s = 0.0
        """From the start of the process to the line that says it is ready."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def errors(self) -> str:
        """Everything on its standard error so far."""
        return "".join(self._stderr)

    @property
    def memory_bytes(self) -> int | None:
        """Resident memory now; None where the system does not tell."""
        return memory_of(self.pid)

    def start(self) -> None:
        """Return when it serves; ConfigError with its own error text when it does not."""
        started = monotonic()
        process = self._process = subprocess.Popen(  # noqa: S603 (our own command line)
            cli_command("up", *self._arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=cli_environment(),
        )
        self._collector = Thread(target=self._collect, args=(process,), daemon=True)
        self._collector.start()
        line = _first_line(process, START_LIMIT_S)
        ready = READY.fullmatch(line)
        if ready is None:
            self.kill()
            raise ConfigError(f"`rocketline up` did not start: {self.errors.strip() or line.strip() or 'no output'}")
        self.start_s = monotonic() - started
        self.namesrv = ready["namesrv"]
        self.grpc = ready["grpc"] or ""
        self.brokers = dict(item.split("@", 1) for item in ready["brokers"].split(","))

    def stop(self) -> int:
        """Stop it cleanly; returns its exit code."""
        process = self._running
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        return self._ended(process)

    def kill(self) -> int:
        """Kill it, as a crash would; returns its exit code."""
        process = self._running
        process.kill()
        process.wait(STOP_LIMIT_S)
        return self._ended(process)

    def _ended(self, process: subprocess.Popen[str]) -> int:
        self._collector.join(STOP_LIMIT_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        return process.returncode

    def _collect(self, process: subprocess.Popen[str]) -> None:
        """Read its standard error all the time, so that it never waits for a full pipe."""
        assert process.stderr is not None
        self._stderr.extend(process.stderr)

    @property
    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise ConfigError("the child cluster is not running: use it inside 'with'")
        return self._process


def cli_command(*arguments: str) -> list[str]:
    """A `rocketline` command line that runs with this Python interpreter."""
    return [sys.executable, "-m", "rocketline.cli", *arguments]


def cli_environment() -> dict[str, str]:
    """The environment of this process, with this package on PYTHONPATH, in case it is not installed."""
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _first_line(process: subprocess.Popen[str], limit_s: float) -> str:
    """The first line of its output, or the part of it that was written before it ended or took too long."""
    lines: list[str] = []
    stdout = process.stdout
    assert stdout is not None
    reader = Thread(target=lambda: lines.append(stdout.readline()), daemon=True)
    reader.start()
    reader.join(limit_s)
    if reader.is_alive():
        process.kill()
        reader.join()
    return lines[0]
