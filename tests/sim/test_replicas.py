"""Replicated groups in virtual time: nothing acknowledged is lost, the same seed gives the same run, mistakes are found."""

from __future__ import annotations

import pytest
from tests.crash.faults import Patches
from tests.replication.planted import GROUP_FAULTS, SIMULATED_FAULTS
from tests.sim.replicas import run_hours

FOUND_BY = {
    "acknowledged_before_the_replica": 4,
    "in_sync_shrunk_locally_first": 4,
    "nothing_cut_off": 4,
    "read_before_confirmed": 4,
    "no_fencing": 4,
    "cut_below_confirmed": 1,
}
"""Mistakes, and a seed that finds each."""
MOST_SEEDS = 20


@pytest.mark.parametrize(("seed", "size"), [(1, 2), (2, 3)])
def test_a_group_keeps_what_it_acknowledged(seed: int, size: int) -> None:
    report = run_hours(seed, faults=8, size=size)
    assert not report.violations, (report, report.faults)
    assert report.acked > 100
    assert report.elections > 1


@pytest.mark.parametrize("mistake", FOUND_BY)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    patches = Patches()
    (GROUP_FAULTS | SIMULATED_FAULTS)[mistake](patches)
    try:
        for seed in range(FOUND_BY[mistake], FOUND_BY[mistake] + MOST_SEEDS):
            if run_hours(seed, faults=8, size=2).violations:
                return
    finally:
        patches.undo()
    pytest.fail("not found")
