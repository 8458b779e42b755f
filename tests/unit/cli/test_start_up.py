"""Verbs and servers start quickly because they import little: modules they must not import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import cli_environment
from rocketline.testing import LocalCluster

SLOW = {
    "typer", "click", "rich", "uvloop", "difflib", "pyspark", "pyarrow", "numpy", "pandas", "rocketline.broker",
    "rocketline.store", "rocketline.nameserver", "rocketline.spark", "rocketline.pipelines", "rocketline.filtering",
}  # fmt: skip
PROGRAM = """
import sys
from rocketline.cli.entry import main
code = main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("words", ["topicList", "consumerProgress", "clusterList --output json", "doctor --pause 0"])
def test_a_verb_imports_nothing_slow(words: str) -> None:
    with LocalCluster() as cluster:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "admin", *words.split(), "-n", cluster.namesrv],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=cli_environment(),
        )
    assert done.returncode == 0, done.stderr
    imported = set(done.stderr.split())
    assert "rocketline.admin" in imported
    assert imported & SLOW == set()
    assert not any(name.startswith("rocketline.client.consumer.") for name in imported)


SERVER_PROGRAM = (
    """
import os, signal, sys
from rocketline.cli.servers import serving
serving.print = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
"""
    + PROGRAM
)
SLOW_FOR_SERVERS = {
    "typer", "click", "rich", "pydantic", "difflib", "rocketline.client", "rocketline.admin", "rocketline.spark",
    "rocketline.filtering.sql92", "pyspark", "numpy",
}  # fmt: skip


@pytest.mark.parametrize("processes", [[], ["--processes"]])
def test_a_server_imports_nothing_slow(processes: list[str], tmp_path: Path) -> None:
    flags = ["--data", str(tmp_path), "--namesrv-port", "0", "--broker-port", "0", *processes]
    done = subprocess.run(
        [sys.executable, "-c", SERVER_PROGRAM, "up", *flags],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=cli_environment(),
    )
    assert done.returncode == 0, done.stderr
    imported = set(done.stderr.split())
    assert "rocketline.nameserver" in imported
    assert ("rocketline.broker.broker" in imported) is not bool(processes)
    assert imported & SLOW_FOR_SERVERS == set()


def test_a_console_imports_nothing_slow() -> None:
    flags = ["--namesrv", "127.0.0.1:1", "--port", "0", "--lifeline"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "console", *flags],
        capture_output=True,
        text=True,
        input="",  # the end of its lifeline
        timeout=PATIENCE_S,
        env=cli_environment(),
    )
    assert done.returncode == 0, done.stderr
    imported = set(done.stderr.split())
    assert "rocketline.console.app" in imported
    assert imported & {"typer", "rich", "pydantic", "rocketline.broker.broker", "pyspark", "numpy"} == set()
