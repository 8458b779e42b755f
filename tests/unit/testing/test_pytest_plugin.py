"""The plugin in a test run of its own, as a user has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.patience import PATIENCE_S

import rocketline.testing
from rocketline.cli.servers.child import cli_environment

TESTS = """
import socket

def reach(cluster):
    host, _, port = cluster.namesrv.rpartition(":")
    socket.create_connection((host, int(port)), timeout=60).close()

def test_own(rocketline_cluster, seen=set()):
    reach(rocketline_cluster)
    assert [broker.name for broker in rocketline_cluster.brokers] == ["broker-a", "broker-b"]

shared = []

def test_first(rocketline_session_cluster):
    shared.append(rocketline_session_cluster)

def test_second(rocketline_session_cluster, rocketline_cluster):
    assert shared == [rocketline_session_cluster]
    assert rocketline_cluster.namesrv != rocketline_session_cluster.namesrv
"""

OPTIONS = """
import pytest

@pytest.fixture(scope="session")
def rocketline_cluster_options():
    return {"brokers": 2}
"""


def python(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**cli_environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


def test_the_fixtures_start_real_clusters(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(OPTIONS)
    options = ("-W", "error", "-p", "rocketline.testing.pytest_plugin", "-p", "no:cacheprovider", "--rootdir", ".")
    result = python("-m", "pytest", *options, folder=tmp_path)
    assert "3 passed" in result.stdout, result.stdout + result.stderr


def test_loading_the_plugin_costs_every_test_run_next_to_nothing() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules)\n"
        "import rocketline.testing.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before), sep='\\n')"
    )
    loaded = python("-c", script).stdout.splitlines()
    assert set(loaded) <= {"rocketline", "rocketline.testing", "rocketline.testing.pytest_plugin"}


def test_everything_promised_is_there() -> None:
    for name in rocketline.testing.__all__:
        assert getattr(rocketline.testing, name).__name__ == name
    assert set(rocketline.testing.__all__) <= set(dir(rocketline.testing))
    assert not hasattr(rocketline.testing, "SomethingElse")
