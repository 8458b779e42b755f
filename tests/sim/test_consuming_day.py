"""Consuming in the simulated world: four hours of it; `ROCKETLINE_SIM_DAYS=20 pytest tests/sim` runs as many whole days, and
so does the command `python -m tests.sim.day --count 20`, which also repeats the seed of a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sim.faults import FAULTS, FOUND_AS

ROOT = Path(__file__).parents[2]
DAYS = int(os.environ.get("ROCKETLINE_SIM_DAYS", "0"))
HOURS_TO_FIND = {"progress_past_unfinished": 2}
"""How long a world must run until a planted mistake shows; all others show within an hour."""


def day(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a run is repeated only with the same hashes of names."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "tests.sim.day", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def sound_days(seed: int, count: int, hours: float) -> str:
    done = day("--seed", str(seed), "--count", str(count), "--hours", str(hours))
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3600 * max(DAYS, 1))
def test_days_with_members_faults_and_resets() -> None:
    report = sound_days(2026, DAYS, 24) if DAYS else sound_days(2026, 1, 4)
    assert report.count(" 0 violations") == max(DAYS, 1), report


@pytest.mark.slow
def test_a_seed_repeats_its_run() -> None:
    first, second = (sound_days(7, 1, 1).rpartition(", ")[0] for _ in range(2))
    assert "trace" in first
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_planted_mistakes_are_found(fault: str) -> None:
    done = day("--seed", "5", "--hours", str(HOURS_TO_FIND.get(fault, 1)), "--plant", fault)
    assert done.returncode == 1, done.stdout + done.stderr[-5000:]
    assert f"  {FOUND_AS[fault]}: " in done.stdout, done.stdout
