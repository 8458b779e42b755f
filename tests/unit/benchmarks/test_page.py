"""The tables of docs/performance.md: which figures, which bar, and whether it is reached."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from bench import page
from bench.page import BEGIN, END, NotAResult, merged_rows, put_between, read, without_runs
from bench.results import MeasuredRun
from bench.stored import STEP_NAMES
from bench.summary import peer_rows

from .results import document, run


def pair(name: str, ours: float, peer: float, **more: float) -> list[MeasuredRun]:
    return [run("rocketline", name, 0, ours, **more), run("apache", name, 0, peer, cpu=20.0)]


def line_of(tables: str, name: str) -> list[str]:
    (found,) = (line for line in tables.splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_a_row_has_both_medians_the_ratio_the_cpu_and_the_bar() -> None:
    tables = page.page([document(pair("raw-64", 60_000, 20_000))])
    assert "### Compiled, against Apache's broker" in tables
    cells = line_of(tables, "`raw-64`")
    assert cells[1:] == ["60,000", "20,000", "3.00 (3.00-3.00)", "10.0 : 20.0", "0.50", "ratio >= 2.5", "yes"]


def test_lines_outside_of_tables_are_short() -> None:
    conditions = "a long account of the machine, the load and the hour; " * 10
    tables = page.page([document(pair("raw-64", 60_000, 20_000)) | {"conditions": conditions}])
    assert "Conditions:\n\n- a long account" in tables
    assert max(len(line) for line in tables.splitlines() if not line.startswith("|")) <= page.LINE


def test_each_implementation_has_its_own_bar() -> None:
    runs = pair("raw-64", 40_000, 20_000)
    compiled, pure = page.page([document(runs)]), page.page([document(runs, implementation="python")])
    assert line_of(compiled, "`raw-64`")[-2:] == ["ratio >= 2.5", "**no**"]
    assert line_of(pure, "`raw-64`")[-2:] == ["ratio >= 1.3", "yes"]


def test_a_load_at_a_given_rate_is_judged_by_its_latency() -> None:
    tables = page.page([document(pair("e2e-5k", 5000, 5000, p99_us=49.0))])
    cells = line_of(tables, "`e2e-5k`")
    assert cells[2] == "49 : 100"
    assert cells[-2:] == ["p99 <= 0.5", "yes"]


def test_start_memory_and_recovery_are_judged_too() -> None:
    tables = page.page([document(pair("raw-64", 3, 1))])
    assert line_of(tables, "start to first ack")[1:] == ["0.30", "6.00", "0.050", "time <= 0.08", "yes"]
    assert line_of(tables, "kill -9 with 0.5 GiB")[3] == "0.050"
    assert line_of(tables, "idle, MiB")[1:] == ["40", "500", "0.080", "memory <= 0.12", "yes"]


def test_growth_shows_the_cost_per_decade() -> None:
    runs = [
        one
        for name, cpu in (("raw-10", 20.0), ("raw-100", 22.0), ("raw-1000", 33.0))
        for one in pair(name, 10, 10, cpu=cpu)
    ]
    cells = line_of(page.page([document(runs)]), "10, 100, 1,000 connections")
    assert cells[1:] == ["20.0", "22.0", "33.0", "1.10, 1.50", "per-decade <= 1.15", "**no**"]


def test_growth_with_what_is_stored_has_a_row_too() -> None:
    whole = document(pair("raw-64", 3, 1))
    whole["stored"] = {
        name: {"median": cost, "low": cost, "high": cost} for name, cost in zip(STEP_NAMES, (10.0, 10.5, 11.0))
    }
    assert line_of(page.page([whole]), "10^5")[1:5] == ["10.0", "10.5", "11.0", "1.05, 1.05"]


def test_other_servers_are_compared_with_ours_of_the_same_round() -> None:
    whole = document(pair("raw-64", 3, 1))
    rounds = [run("rocketline", "raw-64", 0, 50), run("redis", "raw-64", 0, 100, cpu=5.0)]
    whole["peers"] = [asdict(row) for row in peer_rows(rounds)]
    (line,) = (line for line in page.page([whole]).splitlines() if "| redis |" in line)
    assert line == "| `raw-64` | redis | 100 | 0.50 (0.50-0.50) | 100 | 5.0 | 2.00 |"


def test_several_results_of_one_implementation_are_taken_together() -> None:
    first, second = document(pair("raw-64", 20, 10)), document(pair("raw-64", 40, 10))
    (row,) = merged_rows([first, second])
    assert row["ratio"] == {"median": 3.0, "low": 2.0, "high": 4.0}
    assert row["rate"]["rocketline"]["median"] == 30.0
    assert row["pairs"] == 2


def test_equal_notes_share_a_line_and_nothing_is_hidden() -> None:
    runs = pair("raw-64", 2, 1, others_busy=0.5) + pair("raw-1", 2, 1, others_busy=0.5)
    runs.append(run("apache", "raw-1", 1, 0, void="it lost one"))
    tables = page.page([document(runs)])
    assert "- raw-64: 1 of 2 runs had a busy neighbour" in tables
    assert "- raw-1: apache pair 2 void: it lost one" in tables


def test_what_is_kept_has_no_runs_and_makes_the_same_page() -> None:
    whole = document(pair("raw-64", 30, 10))
    kept = json.loads(json.dumps(without_runs(whole)))
    assert "runs" not in kept
    assert page.page([kept]) == page.page([whole])


def test_kept_results_are_small_and_make_a_page() -> None:
    kept = sorted((Path(page.__file__).parent / "results").glob("*.json"))
    assert all(path.stat().st_size < 100_000 for path in kept)
    assert page.page([read(path) for path in kept]).count("###") <= len(kept)


def test_tables_go_between_the_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, target = tmp_path / "a.json", tmp_path / "page.md"
    result.write_text(json.dumps(document(pair("raw-64", 30, 10))))
    target.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    monkeypatch.setattr(sys, "argv", ["page.py", str(result), "--write", str(target)])
    assert page.main() == 0
    text = target.read_text()
    assert text.startswith(f"before\n{BEGIN}\n\n### Compiled")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text


def test_a_page_without_markers_and_a_file_that_is_no_result_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAResult, match="no lines"):
        put_between("nothing", "tables")
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(NotAResult, match="not a result"):
        read(tmp_path / "a.json")
    with pytest.raises(NotAResult, match="cannot be read"):
        read(tmp_path / "absent.json")
