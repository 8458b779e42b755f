"""The benchmark of popping works, in miniature: its figures mean nothing there, its checks of what was popped do."""

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

PROGRAM = Path(__file__).parents[2] / "bench" / "pop.py"

pytestmark = pytest.mark.skipif(
    shutil.which("taskset") is None or shutil.which("cc") is None or (os.cpu_count() or 1) < 2,
    reason="needs the taskset tool, a C compiler and two cores",
)


@pytest.mark.parametrize("options", [(), ("--merge",)])
def test_a_backlog_is_popped_and_acknowledged(options: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--quick", "--no-apache", "--messages", "640", *options],
        capture_output=True, text=True, timeout=PATIENCE_S, env=cli_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| (ack each|batch ack), rocketline \| [\d,]+ \|", done.stdout, flags=re.MULTILINE)
    assert rows == ["ack each", "batch ack"]
