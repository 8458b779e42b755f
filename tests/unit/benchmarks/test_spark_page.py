"""The tables about Spark: medians over rounds, ratios within a round, and the bars."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.spark import page

MACHINE = {
    "processor": "P", "cores": "2", "memory_gib": "8", "kernel": "6", "python": "3.11", "spark": "4.2.1", "commit": "c",
}  # fmt: skip


def runs(*rows_s: float, server_us: float = 2.0, spark_us: float = 4.0) -> list[dict[str, float]]:
    return [{"rows_s": rate, "server_us": server_us, "spark_us": spark_us} for rate in rows_s]


def kafka() -> dict[str, Any]:
    return {
        "machine": MACHINE,
        "loads": {
            "sink": {"rocketmq": runs(100, 300, 400), "kafka": runs(200, 200, 200)},
            "trickle": {"rocketmq": runs(100, spark_us=6.0), "kafka": runs(100)},
        },
        "java_us": [1.0, 1.25, 9.0],
    }


def growth() -> dict[str, Any]:
    seconds = {(100, 1): 3.0, (100, 2): 2.0, (1000, 1): 3.6, (1000, 2): 2.0}
    lines = [
        {
            "work": "read", "rows": rows, "queues": 8, "workers": workers, "seconds_per_million": spent,
            "gain_of_two": seconds[rows, 1] / spent if workers == 2 else None,
        }
        for (rows, workers), spent in seconds.items()
    ]  # fmt: skip
    return {"machine": MACHINE, "lines": lines}


def cells(tables: str, begins: str) -> list[str]:
    (line,) = (line for line in tables.splitlines() if line.startswith(f"| {begins}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_loads_have_medians_ranges_and_verdicts() -> None:
    tables = page.page(kafka(), None)
    assert cells(tables, "sink")[1:] == [
        "300", "200", "1.50 (0.50-2.00)", "2.0 : 2.0", "4.0 : 4.0", "1.00 (1.00-1.00)", "ratio >= 1.0", "yes",
    ]  # fmt: skip
    assert cells(tables, "trickle")[-3:] == ["1.50 (1.50-1.50)", "cpu <= 1.2", "**no**"]
    assert cells(tables, "rows of the sink")[1:] == ["2.00", "1.25", "1.60", "cpu <= 1.5", "**no**"]


def test_growth_and_workers_are_judged() -> None:
    tables = page.page(None, growth())
    assert cells(tables, "read | 8 | 1 ")[3:] == ["3.00", "3.60", "1.20", "per-decade <= 1.15", "**no**"]
    assert cells(tables, "read | 8 | 2 ")[3:] == ["2.00", "2.00", "1.00", "per-decade <= 1.15", "yes"]
    assert cells(tables, "read | 8 | 1.80")[3:] == ["gain >= 1.7", "yes"]


def test_the_page_gets_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "page.md"
    target.write_text("\n".join(["before", *page.MARKS, "after"]))
    monkeypatch.setattr(sys, "argv", ["page", "--results", str(tmp_path), "--write", str(target)])
    assert page.main() == 1
    assert "run against_kafka.py and growth.py first" in capsys.readouterr().err
    (tmp_path / "growth.json").write_text(json.dumps(growth()))
    assert page.main() == 0
    text = target.read_text()
    assert text.startswith("before") and text.endswith("after")
    assert "two workers" in text and "sink" not in text
    (tmp_path / "kafka.json").write_text("[]")
    assert page.main() == 1
    assert "is no result of a benchmark of Spark" in capsys.readouterr().err
