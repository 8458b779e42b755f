"""The console as a child process: started with flags, ready when it says so, its log kept."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import cli_command, cli_environment

READY = re.compile(r"ready console=(\S+)\n")


class ConsoleFailed(RuntimeError):
    """It did not start."""


class ConsoleProcess:
    """`rocketline console`, on a free port of loopback; a context manager."""

    def __init__(self, namesrv: str, *flags: str, environment: Mapping[str, str] | None = None) -> None:
        port = [] if "--port" in flags else ["--port", "0"]
        self.command = cli_command("console", "--namesrv", namesrv, *port, *flags)
        self._environment = cli_environment() | dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._log: list[str] = []
        self.link = ""
        """As it was printed: with the one-time token, if there are no users."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._environment
        )
        self._collector = threading.Thread(target=self._collect, args=(self._process,), daemon=True)
        self._collector.start()
        assert self._process.stdout is not None
        ready = READY.fullmatch(self._process.stdout.readline())
        if ready is None:
            code = self._process.wait(PATIENCE_S)
            self.stop()
            raise ConsoleFailed(f"exit code {code}: {self.log}")
        self.link = ready[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        """Without a path and without a slash at the end."""
        return "/".join(self.link.split("/", 3)[:3])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        return "".join(self._log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        process = self._process
        assert process is not None
        process.terminate()
        code = process.wait(PATIENCE_S)
        self._collector.join(PATIENCE_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        return code

    def _collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self._log.extend(process.stderr)


def refused(namesrv: str, *flags: str) -> tuple[int, str]:
    """(exit code, what it says) of a console that must not start."""
    done = subprocess.run(
        cli_command("console", "--namesrv", namesrv, "--port", "0", *flags),
        capture_output=True,
        text=True,
        env=cli_environment(),
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stdout + done.stderr


def add_user(file: Path, name: str, role: str, password: str) -> None:
    command = [
        sys.executable,
        "-m",
        "rocketline.cli",
        "console",
        "users",
        "add",
        name,
        "--role",
        role,
        "--file",
        str(file),
    ]
    environment = cli_environment() | {"ROCKETLINE_NEW_PASSWORD": password}
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=PATIENCE_S)
