"""The benchmark of producing works, in miniature: its figures mean nothing there, its check of what is stored does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import cli_environment

PROGRAM = Path(__file__).parents[2] / "bench" / "producing.py"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=cli_environment(),
    )


@pytest.mark.skipif(
    shutil.which("taskset") is None or (os.cpu_count() or 1) < 2, reason="needs the taskset tool and two cores"
)
def test_every_kind_of_case() -> None:
    done = bench("64", "batched-256", "blocking-32", "--quick")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["64", "batched-256", "blocking-32"]


def test_an_unknown_case_is_named() -> None:
    done = bench("65")
    assert done.returncode == 2
    assert "there is no 65" in done.stderr
