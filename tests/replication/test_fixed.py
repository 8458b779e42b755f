"""Fixed roles: a replica that cannot take anything, and a master that is gone. `make soak` has S9 and S10 many times."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.conftest import IS_SOAK
from tests.replication import fixed
from tests.replication.planted import FIXED_FAULTS

SEED = 3
IN_MAKE_TEST = ("ahead", fixed.GONE)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="members have loopback addresses of their own")


@pytest.mark.parametrize("variant", [*fixed.AWAY, fixed.GONE] if IS_SOAK else IN_MAKE_TEST)
async def test_nothing_is_acknowledged_without_the_replica(variant: str, tmp_path: Path) -> None:
    outcome = await fixed.run(tmp_path, SEED, variant)
    assert not outcome.violations, outcome
    assert outcome.acked > 30


@pytest.mark.skipif(not IS_SOAK, reason="half a minute; the rule itself has unit tests")
@pytest.mark.parametrize("mistake", FIXED_FAULTS)
async def test_a_planted_mistake_is_found(mistake: str, tmp_path: Path) -> None:
    outcome = await fixed.run(tmp_path, SEED, "copied", faults=(mistake,))
    assert [text for text in outcome.violations if text.startswith("S9")], outcome
