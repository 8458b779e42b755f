"""Spark as processes of their own, all from the pip package: a standalone master with workers, and a Connect server.

Everything listens on loopback, on free ports, and ends with the context that started it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.spark.class_archive import archive_option
from tests.support.admin import eventually
from tests.support.java import BUILD
from tests.support.patience import PATIENCE_S

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # Queries over a few hundred rows: to interpret them takes less than to compile them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # On a busy machine everybody is late.
    "spark.network.timeout": f"{PATIENCE_S:.0f}s",
    "spark.python.authenticate.socketTimeout": f"{PATIENCE_S:.0f}s",
}


def quick_jvm() -> str:
    """Programs that live for seconds are not worth being compiled well. Hadoop runs a `chmod` for every file it makes:
    without VFORK each is two new processes instead of one."""
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djdk.lang.Process.launchMechanism=VFORK"
    return f"{options} -Xlog:disable {archive_option()}".rstrip()


def quick() -> dict[str, str]:
    """Settings of every session of the tests."""
    return {**_SETTINGS, **{f"spark.{side}.extraJavaOptions": quick_jvm() for side in ("driver", "executor")}}


def worker_python() -> str:
    """The program for PYSPARK_PYTHON: this Python, whose workers connect to Spark before they load anything."""
    path, python = BUILD / "worker-python", shlex.quote(sys.executable)
    early = shlex.quote(str(Path(__file__).with_name("early_worker.py")))
    text = f"""#!/bin/sh
if [ -n "$PYTHON_WORKER_FACTORY_PORT" ]; then exec {python} {early} "$@"; else exec {python} "$@"; fi
"""
    if not path.exists() or path.read_text() != text:
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(path)
    return str(path)


def bin_path(name: str) -> str:
    """A program of the pip package."""
    return str(Path(sys.executable).parent / name)


def as_conf(settings: Mapping[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[str]:
    """The address of a master that has its workers. They know nothing of rocketline."""
    environment = {
        "PYSPARK_PYTHON": worker_python(),
        "PYTHONPATH": "",
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": f"{quick_jvm()} -Dspark.worker.timeout={PATIENCE_S:.0f}",
    }
    common = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        command = [bin_path("spark-class"), "org.apache.spark.deploy.master.Master", *common, "--port", "0"]
        log = stack.enter_context(_running(folder / "master.log", command, environment))
        address = wait_for(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            command = [
                bin_path("spark-class"), "org.apache.spark.deploy.worker.Worker", *common, "--cores", "1",
                "--memory", "600m", "--work-dir", str(folder / f"work-{number}"), address,
            ]  # fmt: skip
            stack.enter_context(_running(folder / f"worker-{number}.log", command, environment))
        wait_for(log, r"Registering worker", workers)
        yield address


@contextmanager
def connect_server(folder: Path, python_path: str) -> Iterator[str]:
    """The address of a Connect server of two cores."""
    settings = {
        **quick(),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "768m",
    }
    command = [
        bin_path("spark-submit"), "--master", "local[2]", "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer", *as_conf(settings), "spark-internal",
    ]  # fmt: skip
    environment = {"PYSPARK_PYTHON": worker_python(), "PYTHONPATH": python_path}
    with _running(folder / "connect.log", command, environment) as log:
        port = wait_for(log, r"Spark Connect server started at: \S*?:(\d+)")
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _running(path: Path, command: list[str], environment: Mapping[str, str]) -> Iterator[Path]:
    """The file with what the program says."""
    with path.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            cwd=path.parent,
        )
    try:
        yield path
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def kill_when(is_time: Callable[[], bool], command: list[str], log: Path, environment: Mapping[str, str]) -> None:
    """Run a job as a user does, and kill its driver with all its processes."""
    with log.open("wb") as file:
        job = subprocess.Popen(
            command, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment}, stdin=subprocess.DEVNULL,
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
        try:
            eventually(lambda: is_time() or job.poll() is not None, "the job is in the middle")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    assert job.returncode == -signal.SIGKILL, log.read_text()[-3000:]


def wait_for(log: Path, pattern: str, times: int = 1) -> str:
    """What the pattern found, once it was found so often."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = re.findall(pattern, log.read_text(errors="replace"))
        if len(found) >= times:
            return str(found[0])
        time.sleep(0.1)
    raise AssertionError(f"{log} never said {pattern!r}:\n{log.read_text(errors='replace')[-2000:]}")


def run_program(command: list[str], **environment: str) -> str:
    """What a program printed; it must end well."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": worker_python(), **environment},
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-5000:]}"
    return done.stdout
