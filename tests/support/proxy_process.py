"""`rocketline proxy` in a process of its own: started, killed, and started again on its port."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Self

from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import cli_environment

from .java import ROOT

READY = re.compile(r"ready grpc=(?P<address>\S+)\n")


class ProxyProcess:
    """A gRPC front before the brokers of a name server; a context manager."""

    def __init__(self, namesrv: str, settings: Mapping[str, str | int] | None = None) -> None:
        self._arguments = ["--namesrv", namesrv, *(f"--set={key}={value}" for key, value in (settings or {}).items())]
        self._process: subprocess.Popen[str] | None = None
        self.grpc = "127.0.0.1:0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Returns when it serves, on the port it had before."""
        port = self.grpc.rpartition(":")[2]
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.patient_cli", "proxy", "--grpc-port", port, *self._arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=cli_environment(),
        )
        assert process.stdout is not None
        ready = READY.fullmatch(process.stdout.readline())
        assert ready is not None, f"`rocketline proxy` ended with {process.wait(PATIENCE_S)}"
        self.grpc = ready["address"]

    def kill(self) -> None:
        """As a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
