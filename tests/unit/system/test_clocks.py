"""The clock for intervals counts the time in which the machine slept, where the system can tell."""

from __future__ import annotations

import sys
import time

import pytest

from rocketline.clock import SYSTEM_CLOCK


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such clock, or another name for it")
def test_it_counts_the_time_since_the_start_of_the_machine() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SYSTEM_CLOCK.monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)
