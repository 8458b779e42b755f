"""A foreign server to compare with: one program on loopback, pinned, frozen and measured like the brokers."""

from __future__ import annotations

import shutil
import subprocess
import time
from abc import abstractmethod
from pathlib import Path

from bench.sides import READY_TIMEOUT_S, Side, SideFailed
from tests.support.apache import free_port


class ServerSide(Side):
    """Base of foreign servers; subclasses define the arguments and the first request."""

    def __init__(self, label: str, core: int, program: str) -> None:
        super().__init__(label)
        self._core = core
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def arguments(self, port: int, directory: Path) -> list[str]:
        """Arguments to listen on a port of 127.0.0.1 and keep all data in a folder."""

    @abstractmethod
    def greet(self) -> None:
        """Make a first request that prepares it; OSError or SideFailed while it does not answer."""

    def start_empty(self, directory: Path) -> None:
        """Start it in a new folder; returns when it answers."""
        directory.mkdir(parents=True)
        self._launch(directory)

    def _launch(self, directory: Path) -> None:
        taskset = shutil.which("taskset")
        if taskset is None:
            raise SideFailed("the taskset tool (util-linux) is needed to pin servers to a core")
        port = free_port()
        command = [taskset, "-c", str(self._core), self._program, *self.arguments(port, directory)]
        with (directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.broker = f"127.0.0.1:{port}"
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                return self.greet()
            except (OSError, SideFailed) as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = (directory / "server.log").read_text(errors="replace")[-2000:]
                    raise SideFailed(f"{self._program} does not serve: {error}; it said:\n{said}") from error
            time.sleep(0.01)

    def pids(self) -> list[int]:
        return [self._process.pid] if self._process else []

    def stop(self) -> None:
        self.crash()

    def crash(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
