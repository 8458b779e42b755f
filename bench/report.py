"""Medians and ratios of a comparison, as a table for people and a dictionary for programs.

A ratio is ours / peer inside one pair; the table shows the median of the pairs and their range. For msg/s more
is better, for microseconds and processor time less.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from bench.measure import NOISY_CORES, Comparison
from bench.results import Rest, Run, Start
from bench.workloads import Workload
from rich.console import Console
from rich.table import Table

WARM_ENOUGH_S = 50.0  # what a JVM needs
LOAD_BOUND = 0.9  # a generator this busy limits the figure, not the server


@dataclass(frozen=True)
class Spread:
    """The median of some figures and their range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        known = list(values)
        return cls(statistics.median(known), min(known), max(known)) if known else None


@dataclass(frozen=True)
class Row:
    """A workload's result: per side the medians, between them the ratios."""

    workload: str
    pairs: int
    void: int
    rate: dict[str, Spread | None]
    p50_us: dict[str, Spread | None]
    p99_us: dict[str, Spread | None]
    cpu_per_million_s: dict[str, Spread | None]
    ratio: Spread | None
    p50_ratio: Spread | None
    p99_ratio: Spread | None
    cpu_ratio: Spread | None
    notes: list[str]


def summarize(comparison: Comparison, workloads: list[Workload]) -> list[Row]:
    return [_row(comparison, workload) for workload in workloads]


def _row(comparison: Comparison, workload: Workload) -> Row:
    runs = [run for run in comparison.runs if run.workload == workload.name]
    labels = [side.label for side in comparison.sides]
    pairs = _whole_pairs(runs, labels)
    sides = {label: [pair[label] for pair in pairs] for label in labels}

    def each(figure: Callable[[Run], float | None]) -> dict[str, Spread | None]:
        return {
            label: Spread.of(value for run in sides[label] if (value := figure(run)) is not None) for label in labels
        }

    def ratio(figure: Callable[[Run], float | None]) -> Spread | None:
        ours, peer = labels
        both = [(figure(pair[ours]), figure(pair[peer])) for pair in pairs]
        return Spread.of(mine / other for mine, other in both if mine is not None and other)

    return Row(
        workload=workload.name,
        pairs=len(pairs),
        void=sum(bool(run.void) for run in runs),
        rate=each(lambda run: run.rate),
        p50_us=each(lambda run: run.p50_us),
        p99_us=each(lambda run: run.p99_us),
        cpu_per_million_s=each(lambda run: run.cpu_per_million_s),
        ratio=ratio(lambda run: run.rate),
        p50_ratio=ratio(lambda run: run.p50_us),
        p99_ratio=ratio(lambda run: run.p99_us),
        cpu_ratio=ratio(lambda run: run.cpu_per_million_s),
        notes=_notes(runs, workload, labels),
    )


def _whole_pairs(runs: list[Run], labels: list[str]) -> list[dict[str, Run]]:
    """A void run takes its partner with it: a ratio needs both of the same moment."""
    pairs: dict[int, dict[str, Run]] = {}
    for run in runs:
        if not run.void:
            pairs.setdefault(run.pair, {})[run.side] = run
    return [pair for _, pair in sorted(pairs.items()) if len(pair) == len(labels)]


def _notes(runs: list[Run], workload: Workload, labels: list[str]) -> list[str]:
    notes = []
    for label in labels:
        mine = [run for run in runs if run.side == label and not run.void]
        if mine and not workload.open_loop and statistics.median(run.load_busy for run in mine) > LOAD_BOUND:
            notes.append(f"{label}: the load generator was the limit")
    noisy = sum(run.others_busy > NOISY_CORES for run in runs)
    if noisy:
        notes.append(f"{noisy} of {len(runs)} runs had a busy neighbour")
    notes += [f"{run.side} pair {run.pair + 1} void: {run.void}" for run in runs if run.void]
    return notes


def show(comparison: Comparison, workloads: list[Workload], about: dict[str, str], console: Console) -> None:
    rows = summarize(comparison, workloads)
    ours, peer = (side.label for side in comparison.sides)
    console.print(_workload_table(rows, ours, peer))
    console.print(_start_table(comparison, ours, peer))
    for row in rows:
        for note in row.notes:
            console.print(f"  {row.workload}: {note}", highlight=False, soft_wrap=True)
    for workload in workloads:
        console.print(f"  {workload.name} = {workload.what}", highlight=False, style="dim")
    console.print(conditions(comparison, about), highlight=False)
    if comparison.plan.warmup_s < WARM_ENOUGH_S:
        console.print(
            "Not warmed up: these figures show that the harness works, and nothing else.", style="bold yellow"
        )


def _workload_table(rows: list[Row], ours: str, peer: str) -> Table:
    table = Table(title=f"{ours} against {peer}; ratio = {ours} / {peer}, median of pairs (range)")
    table.add_column("workload", no_wrap=True)
    for head in (
        f"msg/s {ours}",
        f"msg/s {peer}",
        "ratio",
        f"p50 us {ours} : {peer}",
        f"p99 us {ours} : {peer}",
        f"CPU-s per 10^6 {ours} : {peer}",
        "CPU ratio",
        "pairs",
    ):
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(
            row.workload,
            _number(row.rate[ours]),
            _number(row.rate[peer]),
            _ratio(row.ratio),
            f"{_number(row.p50_us[ours])} : {_number(row.p50_us[peer])}",
            f"{_number(row.p99_us[ours])} : {_number(row.p99_us[peer])}",
            f"{_number(row.cpu_per_million_s[ours], 1)} : {_number(row.cpu_per_million_s[peer], 1)}",
            _ratio(row.cpu_ratio),
            f"{row.pairs}" + (f" ({row.void} void)" if row.void else ""),
        )
    return table


def _start_table(comparison: Comparison, ours: str, peer: str) -> Table:
    table = Table(title="start and memory (name server and broker together), median (range)")
    table.add_column("figure")
    for label in (ours, peer):
        table.add_column(label, justify="right")
    starts: list[tuple[str, Callable[[Start], float]]] = [
        ("start to ready, s", lambda start: start.ready_s),
        ("start to first ack, s", lambda start: start.first_ack_s),
        ("idle RSS after a start, MiB", lambda start: start.idle_rss / 2**20),
        ("  without mapped files", lambda start: start.idle_anonymous / 2**20),
    ]
    for name, of_start in starts:
        spreads = (
            Spread.of(of_start(start) for start in comparison.starts if start.side == label) for label in (ours, peer)
        )
        table.add_row(name, *map(_span, spreads))
    rests: list[tuple[str, Callable[[Rest], float]]] = [
        ("idle RSS after all runs, MiB", lambda rest: rest.rss / 2**20),
        ("  without mapped files", lambda rest: rest.anonymous / 2**20),
        ("idle CPU after all runs, % of a core", lambda rest: rest.cpu * 100),
    ]
    for name, of_rest in rests:
        cells = {rest.side: f"{of_rest(rest):,.1f}" for rest in comparison.rests}
        table.add_row(name, *(cells.get(label, "-") for label in (ours, peer)))
    return table


def conditions(comparison: Comparison, about: dict[str, str]) -> str:
    """What has to stand beside every figure."""
    plan = comparison.plan
    fsync = Spread.of(run.fsync_p50_us for run in comparison.runs if run.fsync_p50_us)
    memcpy = Spread.of(run.memcpy_gb_s for run in comparison.runs if run.memcpy_gb_s)
    warm = ", ".join(
        f"{label} {rates[0]:,.0f} to {rates[-1]:,.0f} msg/s" for label, rates in comparison.warmth.items() if rates
    )
    return (
        f"Servers on core {about['server_core']}, load on core {plan.load_core}; the idle side "
        f"{'frozen' if plan.freeze else 'left running'}; {plan.seconds:g} s per run after {plan.cut_s:g} s cut off; "
        f"{plan.warmup_s:g} s of warm-up per side ({warm}).\n"
        f"Async flush, no replication, {plan.queues} queues, bodies half random. Disk: fsync p50 "
        f"{_span(fsync)} us; memory: memcpy {_span(memcpy, 1)} GB/s.\n"
        f"{about['processor']}, {about['cores']} cores, {about['memory_gib']} GiB, Linux {about['kernel']}; "
        f"{about['versions']}; commit {about['commit']}; {about['when']}."
    )


def as_dict(comparison: Comparison, workloads: list[Workload], about: dict[str, str]) -> dict[str, Any]:
    summary = [asdict(row) for row in summarize(comparison, workloads)]
    return {"about": about, "summary": summary, **comparison.as_dict()}


def _number(spread: Spread | None, digits: int = 0) -> str:
    return "-" if spread is None else f"{spread.median:,.{digits}f}"


def _ratio(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.median:.2f}x ({spread.low:.2f}-{spread.high:.2f})"


def _span(spread: Spread | None, digits: int | None = None) -> str:
    if spread is None:
        return "-"
    places = digits if digits is not None else (2 if spread.high < 20 else 0)
    return f"{spread.median:,.{places}f} ({spread.low:,.{places}f}-{spread.high:,.{places}f})"
