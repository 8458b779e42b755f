"""Results of soak runs: a line of JSON per work item, summed up in a table for the terminal and docs/reliability.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median

from .child import REPOSITORY
from .outcome import Outcome

FOLDER = REPOSITORY / "build" / "soak"
DOCUMENT = REPOSITORY / "docs" / "reliability.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
COLUMNS = (
    "scenario",
    "runs",
    "compiled",
    "acknowledged",
    "lost",
    "twice",
    "violations",
    "worst open",
    "worst start",
    "also",
)


def record(outcome: Outcome, folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{outcome.scenario}.jsonl", "a") as lines:
        lines.write(json.dumps(asdict(outcome)) + "\n")


def recorded(folder: Path = FOLDER) -> list[Outcome]:
    """Every outcome so far; of an item that was run again with the same implementation, the last one."""
    found: dict[tuple[str, str, int, str], Outcome] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            outcome = Outcome(**json.loads(line))
            found[outcome.scenario, outcome.variant, outcome.seed, outcome.impl] = outcome
    return list(found.values())


def row_name(scenario: str, variant: str) -> str:
    """The many variants of S3, S5 and S8 share a row."""
    return scenario if scenario in ("S3", "S5", "S8") or not variant else f"{scenario} {variant}"


def table(outcomes: Iterable[Outcome], planned: Mapping[str, int] | None = None) -> str:
    """A Markdown table with a row per scenario and variant. `planned` has the counts of runs that convince, by row."""
    rows: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=_place):
        rows.setdefault(row_name(outcome.scenario, outcome.variant), []).append(outcome)
    lines = [" | ".join(COLUMNS), " | ".join("---" for _ in COLUMNS)]
    lines += [" | ".join(_row(name, group)) for name, group in rows.items()]
    return "\n".join(_with_plan(f"| {line} |", planned or {}) for line in lines)


def _place(outcome: Outcome) -> tuple[str, int, str, int]:
    return *_row_place(f"{outcome.scenario} {outcome.variant}"), outcome.seed


def _row(name: str, group: list[Outcome]) -> list[str]:
    notes: dict[str, list[float]] = {}
    for outcome in group:
        for key, values in outcome.notes.items():
            notes.setdefault(key, []).extend(values)
    open_s = max(outcome.worst_open_s for outcome in group)
    start_s = max(outcome.worst_start_s for outcome in group)
    return [
        name,
        f"{sum(outcome.runs for outcome in group):,}",
        f"{sum(outcome.runs for outcome in group if outcome.impl == 'c'):,}",
        *(f"{sum(getattr(outcome, part) for outcome in group):,}" for part in ("acked", "lost", "duplicates")),
        str(sum(len(outcome.violations) for outcome in group)),
        f"{open_s:.2f} s" if open_s else "",
        f"{start_s:.2f} s" if start_s else "",
        ", ".join(f"{key} {_several(values)}" for key, values in sorted(notes.items())),
    ]


def _several(values: list[float]) -> str:
    """
    >>> _several([2.0, 1.0, 4.0]), _several([3.0])
    ('2 (worst 4)', '3')
    """
    usual, worst = median(values), max(values)
    return f"{usual:.3g} (worst {worst:.3g})" if len(values) > 1 and worst > usual else f"{worst:.3g}"


def write_document(
    outcomes: Iterable[Outcome], document: Path = DOCUMENT, planned: Mapping[str, int] | None = None
) -> None:
    """Put the table between the marks in the document. Rows of what has no result here stay: others ran it elsewhere."""
    text = document.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    former, _, after = rest.partition(END)
    head, found = _rows_of(table(outcomes))
    rows = sorted((_rows_of(former)[1] | found).items(), key=lambda row: _row_place(row[0]))
    lines = "\n".join([*head, *(_with_plan(line, planned or {}) for _, line in rows)])
    document.write_text(f"{before}{BEGIN}\n\n{lines}\n\n{END}{after}", "utf-8")


def _with_plan(line: str, planned: Mapping[str, int]) -> str:
    """A row that says so if fewer runs were made than are planned.

    >>> _with_plan("| F1 | 20 | 20 |", {"F1": 500}), _with_plan("| F2 | 20 of 30 | 20 |", {"F2": 10})
    ('| F1 | 20 of 500 | 20 |', '| F2 | 20 | 20 |')
    """
    cells = line.split("|")
    wanted = planned.get(cells[1].strip())
    if wanted is not None:
        runs = int(cells[2].split()[0].replace(",", ""))
        cells[2] = f" {runs:,} of {wanted:,} " if runs < wanted else f" {runs:,} "
    return "|".join(cells)


def _rows_of(text: str) -> tuple[list[str], dict[str, str]]:
    """The head of a table, and its other lines by their first column."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return lines[:2], {line.split("|")[1].strip(): line for line in lines[2:]}


def _row_place(name: str) -> tuple[str, int, str]:
    """From the first column. Scenarios before what has only the name of an invariant; S2 before S13."""
    scenario, _, variant = name.partition(" ")
    return "" if scenario[0] == "S" else scenario[0], int(scenario[1:]), variant
