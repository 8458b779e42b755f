"""Replicated groups in virtual time: nothing acknowledged is lost, the same seed gives the same run, mistakes are found.

`python -m tests.sim.replicas` runs more, and repeats the seed of a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.replication.planted import SIMULATED_FAULTS
from tests.sim.replicas import KINDS as ALL_KINDS

ROOT = Path(__file__).parents[2]
FOUND_BY: dict[str, tuple[int, tuple[str, ...]]] = {
    "acknowledged_before_the_replica": (4, ("I1", "I3", "R3")),
    "in_sync_shrunk_locally_first": (4, ("I1", "I3", "R3")),
    "nothing_cut_off": (4, ("R4", "R8")),
    "read_before_confirmed": (4, ("I3",)),
    "no_fencing": (4, ("R3",)),
    "cut_below_confirmed": (1, ("I1", "I3", "R3")),
    "own_epoch_resumed": (1, ("R3",)),
    "lease_counted_from_the_answer": (1, ("R3",)),
    "deposed_master_drains_its_queue": (1, ("I1", "R3")),
    "partial_record_reported": (1, ("R1",)),
    "told_before_the_epoch_entry": (1, ("R3",)),
    "record_written_without_comparison": (1, ("R3",)),
}
"""Mistakes, a seed near one that finds each, and what it violates."""
KINDS = {"lease_counted_from_the_answer": ("late",), "own_epoch_resumed": ("order", "kill")}
"""Only these faults, for a mistake that takes one of them."""
MOST_SEEDS = 20


def hours(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a run is repeated only with the same hashes of names."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "tests.sim.replicas", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("seed", "size"), [("1", "2"), ("2", "3")])
def test_a_group_keeps_what_it_acknowledged_and_a_seed_repeats_its_run(seed: str, size: str) -> None:
    first, second = (hours("--seed", seed, "--size", size, "--faults", "8") for _ in range(2))
    assert first.returncode == 0, first.stdout + first.stderr[-5000:]
    assert " 0 violations, trace " in first.stdout
    assert first.stdout.rpartition(", ")[0] == second.stdout.rpartition(", ")[0]


def test_every_mistake_of_the_simulation_is_looked_for() -> None:
    assert SIMULATED_FAULTS.keys() <= FOUND_BY.keys()


@pytest.mark.parametrize("mistake", FOUND_BY)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    seed, invariants = FOUND_BY[mistake]
    done = hours(
        "--seed", str(seed), "--count", str(MOST_SEEDS), "--faults", "8", "--size", "2", "--plant", mistake,
        "--until", *invariants, "--kinds", *KINDS.get(mistake, ALL_KINDS),
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr[-5000:]
