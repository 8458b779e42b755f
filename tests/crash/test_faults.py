"""The harness can fail: each planted fault is seen by the scenario that looks for its kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from .faults import FAULTS, planted
from .outcome import Outcome
from .plan import Troubles
from .scenarios import failing_flush, kills, metadata, power_cuts, slow_disk, torn_writes
from .scenarios.lives import MAX_LIFE_S

MOST_SEEDS = 12
"""A fault that shows only when the power fails at a bad moment gets so many chances. Each time the broker lives longer
before the cut: on a busy machine nothing happens in a short life."""

SLOW = Troubles(sync_delay_ms=(10, 40))
Runs = Callable[[Path, int, tuple[str, ...]], Awaitable[Outcome]]


async def killed(folder: Path, seed: int, faults: tuple[str, ...]) -> Outcome:
    return await kills.run(folder, seed, runs=2, faults=faults)


async def powerless(folder: Path, seed: int, faults: tuple[str, ...]) -> Outcome:
    return await power_cuts.run(folder, seed, runs=4, faults=faults, most_s=seed * MAX_LIFE_S)


async def powerless_async(folder: Path, seed: int, faults: tuple[str, ...]) -> Outcome:
    # Marks are made of what is on disk, so the thorough flush of the queues would flush the log as well.
    never = {"flushIntervalCommitLog": "100000", "flushConsumeQueueThoroughInterval": "100000"}
    most_s = seed * MAX_LIFE_S
    return await power_cuts.run(folder, seed, "ASYNC_FLUSH", runs=3, faults=faults, settings=never, most_s=most_s)


async def flush_fails(folder: Path, seed: int, faults: tuple[str, ...]) -> Outcome:
    return await failing_flush.run(folder, seed + 5, faults=faults, troubles=SLOW)


async def dies_in_a_save(folder: Path, seed: int, faults: tuple[str, ...]) -> Outcome:
    return await metadata.run(folder, seed, f"{metadata.TOPICS}, write", faults=faults)


async def disk_stalls(folder: Path, seed: int, faults: tuple[str, ...]) -> Outcome:
    return await slow_disk.run(folder, seed, slow_disk.FROM_START, faults=faults)


async def tables_stall(folder: Path, seed: int, faults: tuple[str, ...]) -> Outcome:
    return await slow_disk.run(folder, seed, slow_disk.TABLES, faults=faults)


CAUGHT_BY: dict[str, Runs] = {
    "log_never_flushed": powerless,
    "acknowledged_before_flush": flush_fails,
    "readable_before_flush": flush_fails,
    "failed_flush_counted": flush_fails,
    "failed_flush_tried_again": flush_fails,
    "metadata_written_in_place": dies_in_a_save,
    "queue_numbers_forgotten": killed,
    "wrong_place_told": killed,
    "group_offsets_uncapped": powerless_async,
    "new_file_unnamed": powerless,
    "tables_saved_on_the_loop": disk_stalls,
    "unsaved_topics_forgotten": tables_stall,
}
CAUGHT_BY_TEARING = {
    "checksum_forgotten": "several sectors",
    "torn_end_kept": "several sectors",
    "durable_end_overstated": "several sectors",
}


def test_every_fault_has_its_catcher() -> None:
    assert set(FAULTS) == set(CAUGHT_BY) | set(CAUGHT_BY_TEARING)
    assert len(FAULTS) >= 10


@pytest.mark.parametrize("fault", CAUGHT_BY)
async def test_a_planted_fault_is_caught(fault: str, tmp_path: Path) -> None:
    for seed in range(1, MOST_SEEDS + 1):
        outcome = await CAUGHT_BY[fault](tmp_path / str(seed), seed, (fault,))
        if outcome.violations:
            return
    pytest.fail(f"{fault} went unnoticed with {MOST_SEEDS} seeds")


@pytest.mark.parametrize("fault", CAUGHT_BY_TEARING)
def test_a_planted_fault_of_recovery_is_caught(fault: str, tmp_path: Path) -> None:
    with planted(fault):
        assert torn_writes.run(tmp_path, 1, CAUGHT_BY_TEARING[fault], stride=50).violations
    assert not torn_writes.run(tmp_path, 1, CAUGHT_BY_TEARING[fault], stride=50).violations
