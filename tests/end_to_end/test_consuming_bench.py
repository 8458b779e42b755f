"""The benchmark of consuming works, in miniature: its figures mean nothing there, its checks of what it read do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import cli_environment

PROGRAM = Path(__file__).parents[2] / "bench" / "consuming.py"

pytestmark = pytest.mark.skipif(
    shutil.which("taskset") is None or (os.cpu_count() or 1) < 2, reason="needs the taskset tool and two cores"
)


def bench(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=cli_environment(),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_polls_and_filters() -> None:
    said = bench("polls", "filters", "--quick", "--polls", "50", "--messages", "3200")
    assert "50 polls held" in said
    assert re.findall(r"([\d.]+)x of everything", said)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_drain_with_our_consumers() -> None:
    said = bench("drain", "--quick", "--no-java", "--messages", "3200")
    readers = [line.split("  ")[1] for line in said.splitlines() if "msg/s" in line]
    assert readers == ["push", "push, lists of 32", "push, threads", "pull"]


def test_an_unknown_part_is_named() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM), "drian"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert "there is no drian" in done.stderr
