"""Rates from counters."""

from __future__ import annotations

import pytest

from rocketline.admin.rates import Rates, Speed
from rocketline.clock import ManualClock


def told(put: object, got: object) -> dict[str, str]:
    return {"msgPutTotalTodayNow": str(put), "msgGetTotalTodayNow": str(got)}


def test_a_rate_is_the_growth_since_the_last_reading() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    assert rates.of("a", told(100, 50)) is None
    clock.advance(2.0)
    assert rates.of("a", told(110, 90)) == Speed(5.0, 20.0)
    assert rates.of("b", told(7, 7)) is None
    clock.advance(0.5)
    assert rates.of("a", told(110, 91)) == Speed(0.0, 2.0)


def test_what_a_tool_reads_itself_is_no_traffic() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    rates.of("a", told(100, 50), read=10)
    clock.advance(1.0)
    assert rates.of("a", told(100, 150), read=70) == Speed(0.0, 40.0)
    clock.advance(1.0)
    assert rates.of("a", told(100, 150), read=90) == Speed(0.0, 0.0)  # the broker counts them a moment later


@pytest.mark.parametrize("second", [told(3, 90), told(200, 0), told("", 60), {}])
def test_a_broker_that_began_again_or_tells_nothing_has_none(second: dict[str, str]) -> None:
    clock = ManualClock()
    rates = Rates(clock)
    rates.of("a", told(100, 50))
    clock.advance(1.0)
    assert rates.of("a", second) is None
