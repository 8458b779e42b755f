"""Medians, ratios and notes of a comparison."""

from __future__ import annotations

from bench.summary import summarize

from .results import comparison, run, workload


def test_a_ratio_is_taken_inside_a_pair_and_a_void_run_takes_its_partner_with_it() -> None:
    runs = [
        run("rocketline", "raw-64", 0, 200),
        run("apache", "raw-64", 0, 100),
        run("rocketline", "raw-64", 1, 900, void="it lost one"),
        run("apache", "raw-64", 1, 100),
        run("rocketline", "raw-64", 2, 400),
        run("apache", "raw-64", 2, 100, cpu=40.0),
    ]
    (row,) = summarize(comparison(runs), [workload("raw-64")])
    assert (row.pairs, row.void) == (2, 1)
    assert row.ratio is not None
    assert (row.ratio.low, row.ratio.median, row.ratio.high) == (2.0, 3.0, 4.0)
    assert row.cpu_ratio is not None
    assert row.cpu_ratio.low == 0.25
    assert row.notes == ["rocketline pair 2 void: it lost one"]


def test_a_workload_without_a_whole_pair_has_no_figures() -> None:
    runs = [run("rocketline", "raw-64", 0, 1), run("apache", "raw-64", 0, 0, void="refused")]
    (row,) = summarize(comparison(runs), [workload("raw-64")])
    assert row.pairs == 0
    assert row.ratio is None
    assert row.rate == {"rocketline": None, "apache": None}


def test_a_busy_generator_is_the_limit_unless_the_load_is_open() -> None:
    closed, is_open = (
        summarize(
            comparison([run(side, name, 0, 5000, load_busy=0.99) for side in ("rocketline", "apache")]),
            [workload(name)],
        )[0]
        for name in ("raw-pull", "e2e-5k")
    )
    assert closed.client_bound
    assert "rocketline: the load generator was the limit" in closed.notes
    assert not is_open.client_bound
    assert is_open.notes == []


def test_sync_flush_says_how_many_messages_share_a_flush_of_the_disk() -> None:
    runs = [run("rocketline", "raw-sync-64", 0, 6000, flushes_per_s=100.0), run("apache", "raw-sync-64", 0, 3000)]
    (row,) = summarize(comparison(runs), [workload("raw-sync-64")])
    assert row.notes == ["rocketline: 100 flushes of the disk per second, 60.0 messages to each"]
