"""A standalone Spark cluster from the pip package: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

START_LIMIT_S = 120.0


@contextmanager
def standalone_cluster(folder: Path, workers: int, environment: dict[str, str]) -> Iterator[str]:
    """The address of a master that has its workers."""
    with ExitStack() as stack:
        log = _start(stack, folder, "master", environment, "org.apache.spark.deploy.master.Master", "--port", "0")
        address = _wait_for(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            _start(
                stack, folder, f"worker-{number}", environment, "org.apache.spark.deploy.worker.Worker", "--cores", "1",
                "--memory", "600m", "--work-dir", str(folder / f"work-{number}"), address,
            )  # fmt: skip
        _wait_for(log, r"Registering worker", workers)
        yield address


def _start(
    stack: ExitStack, folder: Path, name: str, environment: dict[str, str], class_name: str, *arguments: str
) -> Path:
    path = folder / f"{name}.log"
    command = [str(Path(sys.executable).parent / "spark-class"), class_name, "--host", "127.0.0.1", "--webui-port", "0"]
    log = stack.enter_context(path.open("wb"))
    process = subprocess.Popen(
        [*command, *arguments],
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", **environment},
    )
    stack.callback(_stop, process)
    return path


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(log: Path, pattern: str, times: int = 1) -> str:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        found = re.findall(pattern, log.read_text(errors="replace"))
        if len(found) >= times:
            return str(found[0])
        time.sleep(0.1)
    raise AssertionError(f"{log} never said {pattern!r}:\n{log.read_text(errors='replace')[-2000:]}")
