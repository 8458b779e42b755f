"""A server that speaks S3, as a process of its own: moto's, from its package. What it is given is in memory."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE_S

ACCOUNT = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "tester-secret", "AWS_REGION": "us-east-1"}
"""What programs need in their environment."""


@dataclass(frozen=True)
class S3Server:
    port: int

    def address(self, path: str) -> str:
        """The address of a folder of the bucket `lake`, for everything that uses pyarrow."""
        return f"s3://lake/{path}?endpoint_override=127.0.0.1%3A{self.port}&scheme=http"

    @property
    def files(self) -> Any:
        """The file system of pyarrow."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            access_key=ACCOUNT["AWS_ACCESS_KEY_ID"],
            secret_key=ACCOUNT["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region=ACCOUNT["AWS_REGION"],
            allow_bucket_creation=True,
        )


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A running server with the empty bucket `lake`."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as said:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        try:
            server = S3Server(_port(log, process))
            server.files.create_dir("lake")
            yield server
        finally:
            process.terminate()
            process.wait()


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        text = log.read_text(errors="replace")
        if found := re.search(r"Running on http://127\.0\.0\.1:(\d+)", text):
            return int(found[1])
        assert process.poll() is None, f"moto's server ended: {text[-2000:]}"
        time.sleep(0.05)
    raise AssertionError("moto's server never listened")
