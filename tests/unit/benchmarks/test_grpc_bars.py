"""The bars of the gRPC front: what counts, and on which side of each bar a figure has to be."""

from __future__ import annotations

from bench.grpc_bars import MARKS, kept_table, page_table, verdicts
from bench.page import put_between
from tests.support.java import ROOT


def test_medians_and_limits_decide() -> None:
    found = verdicts({"send-1": [0.5, 1.0, 3.0], "send-64": [0.9, 0.99, 5.0]}, 0.2, 1.5)
    assert {verdict.name: verdict.is_reached for verdict in found} == {
        "send-1": True,
        "send-64": False,
        "memory": True,
        "start": False,
    }
    assert str(found[0]) == "send-1: 1.00, at least 1 wanted: reached"
    assert str(found[3]) == "start: 1.50, at most 1 wanted: NOT REACHED"
    assert found[1].shown()["is_reached"] is False


def test_figures_become_a_table_of_the_page() -> None:
    load = {"rocketline": {"rate": 12_345.6, "cpu_us": 80.4}, "apache": {"rate": 10_000.0, "cpu_us": 91.0}}
    sides = {
        "rocketline": {"anonymous_bytes": 40 << 20, "ready_s": 0.345},
        "apache": {"anonymous_bytes": 400 << 20, "ready_s": 9.0},
    }
    assert page_table({"send-1": load}, {"send-1": [1.0, 0.9, 0.95]}, sides).splitlines()[2:] == [
        "| `send-1` | 12,346 msg/s, 80 us of CPU | 10,000 msg/s, 91 us of CPU | 0.95 (0.90-1.00) | at least 1 | **no** |",
        "| memory after the runs, without mapped files | 40 MiB | 400 MiB | 0.10 | at most 0.2 | yes |",
        "| ready after | 0.34 s | 9.0 s |  | at most 1 s | yes |",
    ]


def test_the_page_has_the_figures_that_were_kept() -> None:
    page = (ROOT / "docs/performance.md").read_text()
    assert put_between(page, kept_table(), MARKS) == page, "python bench/grpc_bars.py --write docs/performance.md"
