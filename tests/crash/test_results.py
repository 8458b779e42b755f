"""Soak results: one line per item, the last one counts, and the document gets the table between its marks."""

from __future__ import annotations

from pathlib import Path

from .outcome import Outcome
from .results import BEGIN, DOCUMENT, END, record, recorded, table, write_document
from .soak import parts


def outcome(seed: int, runs: int, scenario: str = "S1", variant: str = "SYNC_FLUSH", acked: int = 0) -> Outcome:
    found = Outcome(scenario, variant, seed, runs=runs, acked=acked)
    found.opened(0.1 * seed, 0.2 * seed)
    return found


def test_the_last_result_of_an_item_counts(tmp_path: Path) -> None:
    failed = outcome(1, 10)
    failed.violations.append("I1: lost")
    for result in (failed, outcome(2, 10), outcome(1, 10)):
        record(result, tmp_path)
    assert [(each.seed, each.violations) for each in recorded(tmp_path)] == [(1, []), (2, [])]


def test_items_of_a_scenario_become_one_row() -> None:
    late = outcome(3, 5, acked=7)
    for seconds in (0.05, 0.02, 0.03):
        late.note("loop lag s", seconds)
    rows = table([late, outcome(2, 10, acked=1000), outcome(1, 1, "S3", "plain"), outcome(1, 2, "S3", "one byte")])
    assert rows.splitlines()[2:] == [
        "| S1 SYNC_FLUSH | 15 | 0 | 1,007 | 0 | 0 | 0 | 0.30 s | 0.60 s | loop lag s 0.03 (worst 0.05) |",
        "| S3 | 3 | 0 | 0 | 0 | 0 | 0 | 0.10 s | 0.20 s |  |",
    ]


def test_both_implementations_count_and_the_compiled_one_by_itself(tmp_path: Path) -> None:
    for impl in ("python", "c", "c"):
        result = outcome(1, 10, acked=100)
        result.impl = impl
        record(result, tmp_path)
    assert table(recorded(tmp_path)).splitlines()[2].startswith("| S1 SYNC_FLUSH | 20 | 10 | 200 |")


def test_invariants_have_rows_after_the_scenarios(tmp_path: Path) -> None:
    for scenario in ("I7", "S13", "S2"):
        record(outcome(1, 1, scenario, "v"), tmp_path)
    assert [row.split(" | ")[0] for row in table(recorded(tmp_path)).splitlines()[2:]] == [
        "| S2 v",
        "| S13 v",
        "| I7 v",
    ]


def test_a_scenario_may_have_a_mode_in_its_name_and_rows_say_how_many_runs_are_missing() -> None:
    rows = table(
        [outcome(1, 4, "F8 ASYNC_FLUSH", "v"), outcome(1, 5, "F10", "v")], {"F8 ASYNC_FLUSH v": 1500, "F10 v": 5}
    )
    assert [row[:26] for row in rows.splitlines()[2:]] == ["| F8 ASYNC_FLUSH v | 4 of ", "| F10 v | 5 | 0 | 0 | 0 | "]


def test_the_document_keeps_everything_but_the_table(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"before\n{BEGIN}\nold table\n{END}\nafter\n")
    write_document([outcome(1, 4)], document)
    write_document([outcome(1, 5)], document)
    write_document([outcome(1, 6, "S2", "SYNC_FLUSH")], document, planned={"S1 SYNC_FLUSH": 10, "S2 SYNC_FLUSH": 6})
    text = document.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "| S1 SYNC_FLUSH | 5 of 10 |" in text
    assert "| S2 SYNC_FLUSH | 6 |" in text
    assert "old table" not in text
    assert text.count("S1 SYNC_FLUSH") == 1


def test_the_real_document_has_its_marks() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert text.count(BEGIN) == text.count(END) == 1


def test_the_counts_are_those_that_convince() -> None:
    counts: dict[tuple[str, str], int] = {}
    for part in parts():
        for item in part.all_items():
            counts[part.scenario, part.variant] = counts.get((part.scenario, part.variant), 0) + item.runs
    by_scenario: dict[str, int] = {}
    for (scenario, _), runs in counts.items():
        by_scenario[scenario] = by_scenario.get(scenario, 0) + runs
    assert counts["S1", "SYNC_FLUSH"] == 3000
    assert counts["S2", "SYNC_FLUSH"] == counts["S2", "ASYNC_FLUSH"] == 1000
    assert by_scenario["S4"] >= 2000
    assert by_scenario["S5"] >= 500
    assert counts["S6", "patched"] == 200
    assert counts["S7", "injected"] + counts.get(("S7", "tmpfs"), 20) == 200
    assert {runs for (scenario, _), runs in counts.items() if scenario == "S8"} == {50}
    assert by_scenario["S23"] == 100
    assert counts["S26", "in use"] == 20
