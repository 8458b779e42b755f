"""A few runs of every scenario. `make soak` runs the counts that convince; a failure names the seed to repeat it with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rocketline.broker.delays.clock_rollback import SetBack

from .outcome import Outcome
from .scenarios import (
    bit_rot,
    clocks,
    consumers,
    derived_files,
    failing_flush,
    floods,
    full_disk,
    kills,
    metadata,
    name_servers,
    ownership,
    pops,
    power_cuts,
    slow_disk,
    strangers,
    timers,
    torn_writes,
    transactions,
)

SEED = 20
SEEDS = range(SEED, SEED + 20)
"""On a busy machine a kill may come before the first message; then another one proves more."""


async def convincing(folder: Path, run: Callable[[Path, int], Awaitable[Outcome]]) -> Outcome:
    """The outcome with the first seed that had anything acknowledged; there was no violation with any."""
    for seed in SEEDS:
        place = folder / str(seed)
        place.mkdir()
        outcome = await run(place, seed)
        assert not outcome.violations, outcome
        if outcome.acked:
            return outcome
    pytest.fail("nothing was acknowledged: it proves nothing")


@pytest.mark.parametrize(("variant", "runs"), [("SYNC_FLUSH", 12), ("ASYNC_FLUSH", 4)])
async def test_s1_kill_under_load(variant: str, runs: int, tmp_path: Path) -> None:
    outcome = await convincing(tmp_path, lambda folder, seed: kills.run(folder, seed, variant, runs))
    assert outcome.runs == runs


@pytest.mark.parametrize("variant", power_cuts.MODES)
async def test_s2_power_cut_under_load(variant: str, tmp_path: Path) -> None:
    acked = lost = 0.0
    for seed in SEEDS:
        outcome = await power_cuts.run(tmp_path / str(seed), seed, variant, runs=4)
        assert not outcome.violations, outcome
        acked += outcome.acked
        lost += max(outcome.notes["sectors lost"])
        if seed > SEED and acked and lost:
            return
    pytest.fail("nothing was acknowledged, or no cut took anything: it proves nothing")


@pytest.mark.parametrize("shape", torn_writes.shapes())
def test_s3_torn_last_record(shape: str, tmp_path: Path) -> None:
    outcome = torn_writes.run(tmp_path, SEED, shape, stride=29)
    assert not outcome.violations, outcome
    assert outcome.runs


@pytest.mark.parametrize("variant", bit_rot.VARIANTS)
def test_s4_bit_rot_in_an_old_file(variant: str, tmp_path: Path) -> None:
    outcome = bit_rot.run(tmp_path, SEED, variant, runs=12)
    assert not outcome.violations, outcome


@pytest.mark.parametrize("variant", derived_files.VARIANTS)
def test_s5_damaged_derived_files(variant: str, tmp_path: Path) -> None:
    outcome = derived_files.run(tmp_path, SEED, variant, runs=2)
    assert not outcome.violations, outcome


@pytest.mark.parametrize("nth", [1, 2, 5, 17])
async def test_s6_a_failed_flush(nth: int, tmp_path: Path) -> None:
    outcome = await failing_flush.run(tmp_path, nth)
    assert not outcome.violations, outcome


async def test_s6_a_flush_the_kernel_fails(tmp_path: Path) -> None:
    if not failing_flush.can_strace():
        pytest.skip("strace is missing or may not inject failures here")
    outcome = await failing_flush.run(tmp_path, 4, failing_flush.STRACE)
    assert not outcome.violations, outcome


async def test_s7_no_space(tmp_path: Path) -> None:
    outcome = await full_disk.run(tmp_path, SEED, full_disk.INJECTED, runs=2)
    assert not outcome.violations, outcome


async def test_s7_a_full_file_system(tmp_path: Path) -> None:
    if not full_disk.can_mount(tmp_path / "probe"):
        pytest.skip("only root may mount a small file system")
    outcome = await full_disk.run(tmp_path / "disk", SEED, full_disk.TMPFS)
    assert not outcome.violations, outcome


@pytest.mark.parametrize("variant", metadata.VARIANTS)
async def test_s8_death_inside_a_metadata_write(variant: str, tmp_path: Path) -> None:
    seed = SEED + metadata.VARIANTS.index(variant) // 2
    outcome = await metadata.run(tmp_path, seed, variant)
    assert not outcome.violations, outcome


@pytest.mark.parametrize("variant", name_servers.VARIANTS)
async def test_s13_name_servers_gone_and_stale(variant: str, tmp_path: Path) -> None:
    outcome = await name_servers.run(tmp_path, SEED, variant)
    assert not outcome.violations, outcome
    assert outcome.acked


@pytest.mark.parametrize("variant", consumers.VARIANTS)
async def test_s14_consumers_that_hang_or_vanish(variant: str, tmp_path: Path) -> None:
    outcome = await consumers.run(tmp_path, SEED, variant)
    assert not outcome.violations, outcome
    assert outcome.acked


@pytest.mark.parametrize("variant", pops.VARIANTS)
async def test_i7_popped_messages_of_killed_brokers_and_members(variant: str, tmp_path: Path) -> None:
    outcome = await pops.run(tmp_path, SEED, variant)
    assert not outcome.violations, outcome
    assert outcome.acked >= pops.KILLS * (pops.PER_LIFE - 1)


@pytest.mark.parametrize("variant", ["+1 h", "-1 h", "+1 day", clocks.DRIFT])
async def test_s15_clocks_that_jump_and_drift(variant: str, tmp_path: Path) -> None:
    """Without the clock that was set back a day: the day that is waited for takes a while, even a simulated one."""
    outcome = await clocks.run(tmp_path, SEED, variant, runs=3)
    assert not outcome.violations, outcome
    assert outcome.acked


async def test_s15_a_clock_set_back_would_deliver_levels_early_without_care(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By RocketMQ's rule: what is further away than its delay is delivered at once."""
    monkeypatch.setattr(SetBack, "left_ms", lambda self, queue_id, offset, wait_ms, delay_ms: min(0, wait_ms))
    outcome = await clocks.run(tmp_path, SEED, "-1 h", runs=3)
    assert any("before its time" in violation for violation in outcome.violations)


async def test_s15_killed_while_it_delivers(tmp_path: Path) -> None:
    await convincing(tmp_path, lambda folder, seed: timers.run(folder, seed, runs=2))


@pytest.mark.parametrize("variant", transactions.VARIANTS)
async def test_s22_killed_between_half_message_and_end(variant: str, tmp_path: Path) -> None:
    await convincing(tmp_path, lambda folder, seed: transactions.run(folder, seed, variant, runs=3))


@pytest.mark.parametrize("variant", slow_disk.VARIANTS)
async def test_s23_slow_disk(variant: str, tmp_path: Path) -> None:
    outcome = await slow_disk.run(tmp_path, SEED, variant)
    assert not outcome.violations, outcome


@pytest.mark.parametrize("variant", strangers.VARIANTS)
async def test_s11_hostile_bytes_at_the_ha_port(variant: str, tmp_path: Path) -> None:
    outcome = await strangers.run(tmp_path, SEED, variant, runs=400)
    assert not outcome.violations, outcome


@pytest.mark.parametrize(
    ("variant", "mistakes", "found"),
    [
        (strangers.REFUSED, {"rocketline.haStrangers": "serve"}, "a stranger got"),
        (strangers.SERVED, {"rocketline.haTrusted": "127.0.0.1", "slaveTimeout": "1000"}, "a send was acknowledged"),
    ],
)
async def test_s11_finds_a_port_that_is_open(
    variant: str, mistakes: dict[str, str], found: str, tmp_path: Path
) -> None:
    outcome = await strangers.run(tmp_path, SEED, variant, runs=200, mistakes=mistakes)
    assert any(found in violation for violation in outcome.violations), outcome


@pytest.mark.parametrize("variant", floods.VARIANTS)
async def test_s19_a_flood_of_connections(variant: str, tmp_path: Path) -> None:
    outcome = await floods.run(tmp_path, SEED, variant, peers=600, limit=200)
    assert not outcome.violations, outcome
    assert max(outcome.notes["connections at the end"]) <= 200


@pytest.mark.parametrize("variant", ownership.VARIANTS)
async def test_s26_other_owners_and_formats(variant: str, tmp_path: Path) -> None:
    outcome = await ownership.run(tmp_path, SEED, variant, runs=2)
    assert not outcome.violations, outcome
