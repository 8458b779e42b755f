"""One run each of the faults that tell most. `make soak ARGS="--scenario F3"` runs the counts that convince.

Several share one group: after each fault it is whole again, which is itself part of what is tested.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import IS_SOAK
from tests.crash.child import DidNotStart
from tests.crash.outcome import Outcome
from tests.crash.plan import Troubles
from tests.replication import errands, scenarios
from tests.replication.group import ReplicatedGroup
from tests.replication.load import GroupLedger
from tests.replication.planted import GROUP_FAULTS, JUMPING_CLOCKS
from tests.replication.scenarios import SMALL_FILES, TWO, run_round
from tests.replication.verdict import Judge
from tests.support.etcd import need_etcd
from tests.support.patience import PATIENCE_S

SEED = 7
QUICK = {
    "masters": ("F1", "F3", "F7", "F9"),
    "three": ("F2", "F4", "F5", "F6", "F11", "F12"),
    "disks": ("F8", "F10", "F13", "F14"),
}
CONDITIONS: dict[str, dict[str, Any]] = {
    "masters": {"settings": SMALL_FILES, "may_lose_power": True},
    "three": {
        "size": 3,
        "etcd_count": 3,
        "settings": {"minInSyncReplicas": "2"},
        "faults": tuple(JUMPING_CLOCKS),
    },
    "disks": {
        "may_lose_power": True,
        "troubles": Troubles(sync_delay_ms=(200, 500), slow_part="/commitlog/", from_start=False),
        "settings": {**SMALL_FILES, **errands.SETTINGS},
    },
}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="members have loopback addresses of their own")


@pytest.mark.parametrize("faults", QUICK)
async def test_nothing_acknowledged_is_lost(faults: str, tmp_path: Path) -> None:
    need_etcd()
    outcome = Outcome("F", faults, SEED)
    ledger = GroupLedger()
    async with ReplicatedGroup(tmp_path, **CONDITIONS[faults]) as group:
        judge = Judge(group, ledger, outcome)
        for scenario in QUICK[faults]:
            await run_round(group, scenario, ledger, SEED, outcome)
            await judge.check()
            assert not outcome.violations, (scenario, outcome)
    assert outcome.runs == len(QUICK[faults])
    assert outcome.acked > 100


LOST = ("I1", "I3", "R3")
"""Something acknowledged or read is gone, or stands in the epoch of another master."""
FOUND_BY = {
    "acknowledged_before_the_replica": ("F6", LOST),
    "in_sync_shrunk_locally_first": ("F4", LOST),
    "empty_epoch_kept": ("F7", ("I1", "I3", "R4")),
    "read_before_confirmed": ("F6", ("I3",)),
    "nothing_cut_off": ("F6", ("R4",)),
    "reported_before_the_flush": ("F8", LOST),
    "epoch_file_not_flushed": ("F8", ("R4",)),
}
"""Mistakes, the fault that shows each, and what it violates: nothing else counts."""
REFUSED_FOR = {"epoch_file_not_flushed": "epochFileCheckpoint"}
"""What a member says that does not start because of a mistake."""
IN_MAKE_TEST = ("in_sync_shrunk_locally_first", "empty_epoch_kept")
MOST_SEEDS = 6
WHOLE_S = 15.0
"""Members that notice that their logs differ stay apart: the rest is compared then."""


def test_every_mistake_has_a_scenario() -> None:
    assert FOUND_BY.keys() == GROUP_FAULTS.keys()


@pytest.mark.parametrize("mistake", FOUND_BY if IS_SOAK else IN_MAKE_TEST)
async def test_a_planted_mistake_is_found_and_without_it_nothing(mistake: str, tmp_path: Path) -> None:
    need_etcd()
    scenario, invariants = FOUND_BY[mistake]
    found: list[str] = []
    for seed in range(SEED, SEED + MOST_SEEDS):
        found = await _violations(tmp_path / str(seed), seed, scenario, mistake)
        if any(text.startswith(invariants) for text in found):
            control = await scenarios.run(
                tmp_path / "control", seed, TWO, scenario=scenario, whole_s=PATIENCE_S, is_long=False
            )
            assert not [text for text in control.violations if not text.startswith("R7")], control
            return
    pytest.fail(f"not found, but: {found}")


async def _violations(folder: Path, seed: int, scenario: str, mistake: str) -> list[str]:
    try:
        outcome = await scenarios.run(
            folder, seed, TWO, scenario=scenario, faults=(mistake,), whole_s=WHOLE_S, is_long=False
        )
    except DidNotStart as refused:
        assert mistake in REFUSED_FOR, refused
        assert REFUSED_FOR[mistake] in str(refused)
        return ["R4: a member does not start with its epoch file"]
    return outcome.violations


@pytest.mark.skipif(not IS_SOAK, reason="minutes; and a busy machine may be slower than the limit")
@pytest.mark.parametrize("scenario", sorted({"F0", *(scenario for scenario, _ in FOUND_BY.values())}))
async def test_without_a_mistake_nothing_is_found(scenario: str, tmp_path: Path) -> None:
    """The control, with the limit at which mistakes are looked for."""
    need_etcd()
    outcome = await scenarios.run(tmp_path, SEED, TWO, scenario=scenario, whole_s=WHOLE_S)
    assert not outcome.violations, outcome
