"""What a replica costs: ratios inside pairs, the bars, and rows that are kept beside others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.replication import keep
from bench.replication_page import summary, table, verdicts


def run(side: str, pair: int, rate: float, p99_us: float, cpu_us: float) -> dict[str, Any]:
    return {"side": side, "pair": pair, "rate": rate, "p99_us": p99_us, "cpu_us": cpu_us}


RUNS = [
    run("rocketline", 0, 100.0, 1000.0, 6.0),
    run("apache", 0, 50.0, 4000.0, 60.0),
    run("alone", 0, 120.0, 900.0, 4.0),
    run("rocketline", 1, 300.0, 3000.0, 5.0),
    run("apache", 1, 100.0, 4000.0, 50.0),
    run("alone", 1, 310.0, 900.0, 5.0),
    run("rocketline", 2, 10.0, 3000.0, 5.0) | {"cores busy before": 0.9},  # the other sides of this pair failed
]
CAUGHT_UP = [
    {"side": "rocketline", "pair": 0, "mib_per_s": 200.0, "bytes": 1, "seconds": 1.0},
    {"side": "apache", "pair": 0, "mib_per_s": 250.0, "bytes": 1, "seconds": 1.0},
]


def test_ratios_are_taken_inside_pairs() -> None:
    ratios = summary("async-64", RUNS)["ratios"]
    assert ratios["rate"] == {"median": 2.5, "low": 2.0, "high": 3.0}
    assert ratios["p99"] == {"median": 0.5, "low": 0.25, "high": 0.75}
    assert ratios["CPU to alone"] == {"median": 1.25, "low": 1.0, "high": 1.5}


def test_a_missed_bar_is_named_and_rows_of_two_runs_stand_together(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    keep(path, {"catch-up": summary("catch-up", CAUGHT_UP) | {"runs": CAUGHT_UP}})
    keep(path, {"async-64": summary("async-64", RUNS) | {"runs": RUNS}})
    kept = json.loads(path.read_text())
    assert list(kept["rows"]) == ["async-64", "catch-up"]
    assert {each["name"]: each["is_reached"] for each in kept["verdicts"]} == {
        "async-64, rate": True,
        "async-64, p99": True,
        "async-64, CPU to alone": True,
        "catch-up": False,
    }
    assert [str(each) for each in verdicts(kept["rows"])][-1] == "catch-up: 0.80, at least 1 wanted: NOT REACHED"
    lines = table(kept["rows"]).splitlines()
    assert lines[2].startswith("| not waited for, 64 senders | 100 | 75 | 2.50 (2.00-3.00) | 3.00 : 4.00 |")
    assert lines[-3] == "Runs before which something else used more than 0.15 of a core: not waited for, 64 senders 1."
    assert lines[-1] == "Catching up: 200 MiB/s, Apache's 250: 0.80 (0.80-0.80)."
