from __future__ import annotations

import pytest

from rocketline.client.consumer.group.stats import ConsumerStats
from rocketline.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stats(clock: ManualClock) -> ConsumerStats:
    return ConsumerStats(clock)


def test_nothing_counted_is_all_zero(stats: ConsumerStats) -> None:
    status = stats.status("T")
    assert (status.pull_tps, status.pull_rt, status.consume_ok_tps, status.consume_failed_tps) == (0, 0, 0, 0)
    assert (status.consume_rt, status.consume_failed_msgs) == (0, 0)


def test_rates_show_after_the_first_step(stats: ConsumerStats, clock: ManualClock) -> None:
    clock.advance(3)
    stats.pulled("T", 20.0, 30)
    stats.pulled("T", 40.0, 0)
    stats.succeeded("T", 25)
    stats.failed("T", 5)
    stats.handled("T", 8.0)
    stats.handled("T", 4.0)
    assert stats.status("T").pull_tps == 0
    clock.advance(7)
    status = stats.status("T")
    # The first window of a counter is one step of 10 s, whenever in it the counter appeared.
    assert (status.pull_tps, status.consume_ok_tps, status.consume_failed_tps) == (3.0, 2.5, 0.5)
    assert (status.pull_rt, status.consume_rt) == (30.0, 6.0)
    assert stats.status("other").pull_tps == 0


def test_a_minute_is_six_steps(stats: ConsumerStats, clock: ManualClock) -> None:
    for _ in range(6):
        stats.succeeded("T", 60)
        clock.advance(10)
    assert stats.status("T").consume_ok_tps == 6.0
    for seconds, rate in ((10, 5.0), (10, 4.0), (30, 1.0), (10, 0.0)):
        clock.advance(seconds)
        assert stats.status("T").consume_ok_tps == pytest.approx(rate)


def test_a_long_silence_ends_with_zero_and_counting_goes_on(stats: ConsumerStats, clock: ManualClock) -> None:
    stats.succeeded("T", 100)
    clock.advance(24 * 3600)
    assert stats.status("T").consume_ok_tps == 0
    stats.succeeded("T", 60)
    clock.advance(10)
    assert stats.status("T").consume_ok_tps == pytest.approx(1.0)


def test_failures_are_counted_over_an_hour_and_shown_at_once(stats: ConsumerStats, clock: ManualClock) -> None:
    stats.failed("T", 2)
    assert stats.status("T").consume_failed_msgs == 2
    clock.advance(1800)
    stats.failed("T", 3)
    assert stats.status("T").consume_failed_msgs == 5
    clock.advance(2400)
    assert stats.status("T").consume_failed_msgs == 3
    clock.advance(3600)
    assert stats.status("T").consume_failed_msgs == 0


def test_handler_times_of_a_quiet_minute_are_those_of_the_hour(stats: ConsumerStats, clock: ManualClock) -> None:
    stats.handled("T", 40.0)
    clock.advance(600)
    assert stats.status("T").consume_rt == 40.0
    clock.advance(4000)
    assert stats.status("T").consume_rt == 0.0


def test_the_wall_clock_does_not_matter(stats: ConsumerStats, clock: ManualClock) -> None:
    stats.succeeded("T", 10)
    clock.jump_wall(-86400)
    clock.advance(10)
    assert stats.status("T").consume_ok_tps == 1.0
