"""A redis server to compare with: Debian's redis-server with its append-only file, one stream as the backlog.

It is pinned, frozen and watched as the brokers are. appendfsync is everysec, its default, and the closest to async flush.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from bench.sides import READY_TIMEOUT_S, Side, SideFailed
from tests.support.apache import free_port

PER_WRITE = 1000


class RedisSide(Side):
    def __init__(self, label: str, core: int, program: str) -> None:
        super().__init__(label)
        self._core = core
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def start_empty(self, directory: Path) -> None:
        """Started, and answering."""
        directory.mkdir(parents=True)
        self._launch(directory)

    def _launch(self, directory: Path) -> None:
        taskset = shutil.which("taskset")
        if taskset is None:
            raise SideFailed("the taskset tool (util-linux) is needed to pin servers to a core")
        port = free_port()
        command = [taskset, "-c", str(self._core), self._program, "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--dir", str(directory), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        with (directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.broker = f"127.0.0.1:{port}"
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                return self.call([b"PING"])
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

    def fill(self, stream: str, count: int, body: bytes) -> None:
        """The entries 1-1 to 1-COUNT."""
        name = stream.encode()
        for start in range(1, count + 1, PER_WRITE):
            numbers = range(start, min(start + PER_WRITE, count + 1))
            self.call(*([b"XADD", name, b"1-%d" % number, b"body", body] for number in numbers))

    def length(self, stream: str) -> int:
        """How many entries the stream has."""
        host, _, port = self.broker.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(_encode([b"XLEN", stream.encode()]))
            with connection.makefile("rb") as answers:
                line = answers.readline()
        if line[:1] != b":":
            raise SideFailed(f"redis at {self.broker} answered {line!r}")
        return int(line[1:])

    def new_group(self, stream: str, group: str) -> None:
        self.call([b"XGROUP", b"CREATE", stream.encode(), group.encode(), b"0"])

    def call(self, *commands: list[bytes]) -> None:
        """Commands whose answers are one line each, or a text; SideFailed when one is an error."""
        host, _, port = self.broker.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"".join(map(_encode, commands)))
            with connection.makefile("rb") as answers:
                for _ in commands:
                    line = answers.readline()
                    if not line or line[:1] == b"-":
                        raise SideFailed(f"redis at {self.broker} answered {line!r}")
                    if line[:1] == b"$":
                        answers.readline()


def _encode(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
