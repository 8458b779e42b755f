"""Made-up results, in the form bench/compare.py writes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bench.measure import Comparison
from bench.report import as_dict
from bench.results import BenchPlan, MeasuredRun, RecoveryTime, Rest, Start
from bench.workloads import WORKLOADS, Workload

LABELS = ["rocketline", "apache"]
ABOUT = {
    "implementation": "c", "processor": "a chip", "cores": "2", "memory_gib": "8.0", "kernel": "6.1", "versions": "some",
    "commit": "abc1234", "dirty": "no", "when": "2026-01-02 03:04", "server_core": "0",
}  # fmt: skip


def workload(name: str) -> Workload:
    (found,) = (one for one in WORKLOADS if one.name == name)
    return found


def run(side: str, name: str, pair: int, rate: float, cpu: float = 10.0, **more: Any) -> MeasuredRun:
    known: dict[str, Any] = {"void": "", "p50_us": 50.0, "p99_us": 100.0, "p999_us": 200.0}
    return MeasuredRun(side, name, pair, rate=rate, cpu_per_million_s=cpu, **(known | more))


def comparison(runs: list[MeasuredRun]) -> Comparison:
    """Only what reports look at."""
    sides = list(zip(LABELS, (0.3, 6.0), (40, 500)))
    made: Any = SimpleNamespace(
        labels=LABELS,
        runs=runs,
        plan=BenchPlan(),
        warmth={},
        warm_cpu_s={},
        peer_runs=[],
        stored_runs=[],
        starts=[Start(side, time_s, time_s, mib << 20, mib << 20) for side, time_s, mib in sides],
        rests=[Rest(side, 0.01, mib << 20, mib << 20) for side, _, mib in sides],
        recoveries=[RecoveryTime(side, 0, 100, time_s, time_s) for side, time_s, _ in sides],
    )
    made.as_dict = lambda: Comparison.as_dict(made)
    return made  # type: ignore[no-any-return]


def document(runs: list[MeasuredRun], **about: str) -> dict[str, Any]:
    names = list(dict.fromkeys(one.workload for one in runs))
    return as_dict(comparison(runs), [workload(name) for name in names], ABOUT | about)
