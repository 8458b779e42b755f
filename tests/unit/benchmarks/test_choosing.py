"""Which workloads are measured, in which order, with which topics; and the arithmetic of the harness."""

from __future__ import annotations

import doctest
import sys
from types import ModuleType

import pytest
from bench import bars, cold, compare, loads, machine, page, recovery
from bench.bars import BARS, is_reached
from bench.growth import DECADES
from bench.loads import topics_of
from bench.stored import STEP_NAMES
from bench.workloads import SETS, WORKLOADS, FlushKind, choose, families

from .results import workload

OTHER_BARS = {"first ack", "idle memory", "memory after runs", "growth"}


def names(chosen: str | None, *, raw_only: bool = False, of_set: str = "default") -> list[str]:
    return [one.name for one in choose(chosen, raw_only, of_set)]


def test_a_list_is_measured_in_the_order_of_the_table() -> None:
    assert names("raw-1,raw-64") == ["raw-64", "raw-1"]


def test_an_unknown_workload_is_named() -> None:
    with pytest.raises(ValueError, match="no such workload: raw-7;"):
        choose("raw-64,raw-7", raw_only=False)


def test_sets_contain_each_other_and_names_are_unique() -> None:
    quick, default, full = (set(names(None, of_set=of_set)) for of_set in ("quick", "default", "full"))
    assert quick < default < full
    assert full == set(names("all"))
    assert len(WORKLOADS) == len(full)
    assert list(SETS) == ["quick", "default", "full"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([], {"pairs": 3, "seconds": 10.0, "recoveries": 2, "backlog": 1_000_000}),
        (["--sets", "quick"], {"seconds": 5.0, "recoveries": 0, "stored": ()}),
        (["--smoke", "--pairs", "2", "--backlog", "100"], {"pairs": 2, "backlog": 96, "starts": 1}),
        (["--recoveries", "0", "--no-growth", "--calm", "0"], {"recoveries": 0, "stored": (), "calm_s": 0.0}),
    ],
)
def test_options_change_the_plan(words: list[str], wanted: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["compare.py", *words])
    plan = compare.plan_of(compare.arguments())
    assert {name: getattr(plan, name) for name in wanted} == wanted


def test_raw_only_leaves_out_java() -> None:
    assert not [name for name in names("all", raw_only=True) if name.startswith("java")]


def test_every_bar_belongs_to_a_default_workload_and_can_be_judged() -> None:
    figures = {
        "ratio": 1.0,
        "cpu": 1.0,
        "p99": 1.0,
        "time": 1.0,
        "memory": 1.0,
        "per-decade": 1.0,
        "client-bound": True,
    }
    assert set(BARS) - OTHER_BARS <= set(names(None))
    assert all(is_reached(line, figures) is not None for bar in BARS.values() for line in (bar.compiled, bar.pure))


@pytest.mark.parametrize(
    ("figures", "reached"),
    [
        ({"ratio": 1.3, "client-bound": False, "cpu": 0.9}, True),
        ({"ratio": 1.1, "client-bound": True, "cpu": 0.5}, True),
        ({"ratio": 1.1, "client-bound": True, "cpu": 0.6}, False),
        ({"ratio": 1.1, "client-bound": False, "cpu": 0.1}, False),
        ({"ratio": None, "client-bound": False, "cpu": 0.1}, None),
    ],
)
def test_a_bar_may_offer_two_ways(figures: dict[str, float | bool | None], reached: bool | None) -> None:
    assert is_reached(BARS["java-push"].compiled, figures) is reached


def test_neighbours_of_a_family_take_turns() -> None:
    grouped = [[one.name for one in group] for group in families(choose("raw-64,raw-10,raw-1000,topics-10", False))]
    assert grouped == [["raw-64"], ["raw-10", "raw-1000"], ["topics-10"]]


def test_growth_has_a_workload_for_every_size() -> None:
    assert {name for sizes in DECADES.values() for name in sizes} <= {*names(None), *STEP_NAMES}


def test_many_topics_have_the_names_the_generator_makes() -> None:
    assert topics_of(workload("topics-10"))[9] == "bench-topics-10-9"
    assert topics_of(workload("e2e-5k")) == ["bench-flow"]
    assert topics_of(workload("raw-64")) == ["bench-send"]
    assert topics_of(workload("filter-tag")) == ["bench-backlog-tags"]


def test_sync_flush_has_workloads_of_its_own() -> None:
    assert [one.name for one in WORKLOADS if one.flush is FlushKind.SYNC] == ["raw-sync-64", "java-sync-64"]


@pytest.mark.parametrize("module", [bars, cold, loads, machine, page, recovery])
def test_the_examples_of_the_harness_hold(module: ModuleType) -> None:
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


def test_what_reads_has_a_backlog_to_read() -> None:
    assert {workload.name for workload in WORKLOADS if workload.kind.reads} == {
        workload.name for workload in WORKLOADS if workload.backlog
    }
