"""Clients, and a cluster for development, work on systems that lack what Linux has (`tests/support/other_system.py`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.patience import PATIENCE_S

import rocketline

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "tests.support.other_system"
ELSEWHERE = ROOT / "tests" / "support" / "elsewhere.txt"
"""The files that the job for Windows runs."""
RUN_HERE_TOO = (
    "tests/unit/cli/test_serving.py",
    "tests/unit/store/files/test_segmented_file.py",
    "tests/unit/testing/test_local_cluster.py",
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In pure Python, as on Windows, where nothing is compiled at install."""
    command, environment = [sys.executable, *arguments], {**os.environ, "ROCKETLINE_IMPL": "python"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_clients_and_a_cluster_work_without_what_linux_has() -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN, f"@{ELSEWHERE}", *RUN_HERE_TOO)
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = re.findall(r"^SKIPPED \[\d+\] \S+ (.*)$", done.stdout, re.MULTILINE)
    assert set(skipped) == {"this system does not fork", "this system has no signals for threads"}


def test_the_job_for_windows_runs_these_files() -> None:
    assert f"@{ELSEWHERE.relative_to(ROOT)}" in (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")


def test_the_lock_of_windows_keeps_other_processes_out(tmp_path: Path) -> None:
    start = f"""
import {PLUGIN}, subprocess, sys
from pathlib import Path
from rocketline.store.files.process_lock import ProcessLock, StoreInUse, is_locked
path = Path({str(tmp_path / "lock")!r})
print(is_locked(path))
"""
    second = (
        start
        + """
try:
    ProcessLock(path)
except StoreInUse:
    print("refused")
"""
    )
    first = (
        start
        + f"""
held = ProcessLock(path)
print(subprocess.run([sys.executable, "-c", {second!r}], capture_output=True, text=True, check=True).stdout)
held.release()
print(is_locked(path))
"""
    )
    done = run("-c", first)
    assert done.stdout.split() == ["False", "True", "refused", "False"], done.stderr


def test_a_broken_import_says_what_failed() -> None:
    script = (
        "import sys, types\nsys.modules['rocketline.message'] = types.ModuleType('rocketline.message')\n"
        "from rocketline import Message"
    )
    done = run("-c", script)
    assert (
        "rocketline.Message cannot be used here: importing rocketline.message failed with AttributeError" in done.stderr
    )


ASKS = re.compile(r"sys\.platform|os\.name\b|hasattr\((os|select|mmap|socket|signal), |[\"']/proc[/\"']")
MAY_ASK = ("system/", "store/files/")


def test_only_the_modules_for_it_ask_which_system_this_is() -> None:
    source = Path(rocketline.__file__).parent
    asking = [
        str(path.relative_to(source)) for path in sorted(source.rglob("*.py")) if ASKS.search(path.read_text("utf-8"))
    ]
    assert [name for name in asking if not name.startswith(MAY_ASK)] == []
    assert asking
